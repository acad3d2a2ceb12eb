"""What reuse changed, as the page asks for it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from app.studio.fidelity import KEPT, Explanations
from app.studio.requests import settings_of
from engine import RunSettings
from engine.cache.store import Store
from engine.engine import Engine
from engine.errors import PromptCacheError
from tests.engine.cases import model_of

SCHEMA = """<schema name="s">
  <user>Read. <module name="a">alpha</module> <module name="b">beta</module></user>
</schema>
"""
PROMPT = "<prompt><a/><b/><user>What?</user></prompt>"


def ended(explanations: Explanations, key: str) -> dict[str, Any]:
    until = time.monotonic() + 60
    while not (state := explanations.state(key))["over"]:
        assert time.monotonic() < until
        time.sleep(0.01)
    return state


def test_a_measurement_ends_with_its_result_or_with_words(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    explanations = Explanations()
    schema = engine.schema(SCHEMA)
    prompt = schema.prompt(PROMPT)
    explanations.start("1", prompt, RunSettings(max_new_tokens=4))
    state = ended(explanations, "1")
    assert state["error"] == ""
    assert [module["path"] for module in state["result"]["modules"]] == ["", "a", "b"]
    explanations.start("2", schema.prompt("<prompt><b/><a/></prompt>"), RunSettings(placement="schema"))
    assert "E506" in ended(explanations, "2")["error"]
    with engine.computing.step():  # a run goes on, so the measurement waits
        explanations.start("3", prompt, RunSettings(max_new_tokens=4))
        explanations.stop("3")
    assert ended(explanations, "3")["error"] == "Stopped."
    engine.close()


def test_the_oldest_are_forgotten(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    explanations = Explanations()
    for number in range(KEPT + 1):
        prompt = engine.schema(SCHEMA).prompt(PROMPT)
        explanations.start(str(number), prompt, RunSettings(max_new_tokens=1))
    with pytest.raises(PromptCacheError, match="not kept any more"):
        explanations.state("0")
    assert ended(explanations, str(KEPT))["result"]
    engine.close()


def test_settings_of_the_page() -> None:
    sent = {
        "stop": "END\\n",
        "top_p": 0.5,
        "top_k": 4,
        "repair": "link:2",
        "placement": "schema",
        "scope": "isolated",
    }
    found = settings_of(sent)
    assert found.stop == ("END\n",)
    assert (found.top_p, found.top_k, found.repair, found.placement) == (0.5, 4, "link:2", "schema")
    assert settings_of({}) == RunSettings()
    for wrong in ({"repair": "x"}, {"scope": "x"}, {"placement": "x"}, {"top_p": "x"}):
        with pytest.raises(PromptCacheError):
            settings_of(wrong)


@pytest.mark.parametrize(
    ("sent", "stored"), [({}, False), ({"conversation": "memory"}, False), ({"conversation": "disk"}, True)]
)
def test_earlier_turns_are_stored_only_where_the_page_says_so(sent: dict, stored: bool) -> None:
    assert settings_of(sent).store_conversation is stored
