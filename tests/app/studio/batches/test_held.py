"""What holds for the rows of a batch, what it costs, their scores, and their way to other tools."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from app.batch.row_answers import time_left
from engine.engine import Engine
from engine.store import Store
from tests.app.conftest import PROMPT, SCHEMA
from tests.app.studio.asked import Asked
from tests.engine.cases import model_of

ROWS = """id,picks,text,set temperature,set scope,expect regex,expect json,expect max words
a,tokyo,What {{is}} here?,,,.,,
b,rome,And there?,0.5,,.,,
c,oslo,,,,,,
d,,Last?,,scaffold,,{},9
"""
SETTINGS = {"max_new_tokens": 2, "reuse": "off", "repair": "link:2"}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("studio")
    with Engine(model_of("llama-gqa"), Store.open(folder / "cache")) as engine:
        yield Asked(folder, engine=engine)


def rows(**more: Any) -> dict[str, Any]:
    texts = {"schema": SCHEMA, "prompt": PROMPT, "settings": SETTINGS}
    return {**texts, "source": "table", "table": ROWS, **more}


@pytest.fixture(scope="module")
def key(asked: Asked) -> str:
    assert "error" not in asked.ask("batch_start", rows(key="held"))
    asked.ended("held")
    return "held"


def files(asked: Asked, key: str, form: str) -> list[dict[str, Any]]:
    found = asked.ask("batch_files", {"key": key, "form": form})
    assert "error" not in found, found
    return found["files"]


def test_the_page_is_told_which_prompt_and_settings_hold(asked: Asked) -> None:
    held = asked.ask("batch_held", rows(table=""))
    assert held["modules"] == ["plan", "plan/tokyo"]
    assert "Where should I eat?" in held["question"]
    told = {one["name"]: (one["value"], one["changed"]) for one in held["settings"]}
    assert told["repair"] == ("link:2", True)
    assert (told["scope"], told["max_new_tokens"]) == (("anchored", False), ("2 tokens", True))
    assert "seed" not in told, "it matters only with sampling"
    alone = asked.ask("batch_held", rows(alone=True, settings={}))
    assert (alone["modules"], alone["question"]) == ([], "")
    assert [one["name"] for one in alone["settings"]][:2] == ["reuse", "max_kl"]


def test_a_scope_that_encodes_each_row_anew_is_named_with_its_cost(asked: Asked) -> None:
    picks = "id,picks,plan/duration\n" + "".join(f"{n},tokyo,{n} days\n" for n in range(5))
    near = asked.ask("batch_read", rows(table=picks, settings={"reuse": "off"}))["encoded"]
    assert (near["rows"], near["scope"]) == (5, "")
    own = asked.ask("batch_read", rows(table=picks, settings={"scope": "scaffold"}))["encoded"]
    assert (own["scope"], own["anchored"]) == ("scaffold", near["tokens"])
    assert own["tokens"] > 2 * near["tokens"] > 0


def test_the_estimate_is_what_the_rows_encode(asked: Asked) -> None:
    schema = SCHEMA.replace("gardens", "lakes").replace("ruins", "hills")
    sent = rows(table="id,picks\na,tokyo\nb,rome\n", schema=schema, settings={"max_new_tokens": 2})
    estimate = asked.ask("batch_read", sent)["encoded"]["tokens"]
    asked.ask("batch_start", {**sent, "key": "estimated"})
    asked.ended("estimated")
    batch = asked.ask("batch_state", {"key": "estimated", "known": -1})["batch"]
    assert [one["cached"]["tokens"]["from_cache"] > 0 for one in batch["rows"]] == [True, True]
    assert batch["summary"]["encoded"] == estimate > 0
    assert all(
        one["cached"]["tokens"]["encoded_segments"] > one["cached"]["tokens"]["encoded"]
        for one in batch["rows"]
    )


def test_results_and_files_name_what_held(asked: Asked, key: str) -> None:
    batch = asked.ask("batch_state", {"key": key, "known": -1})["batch"]
    assert batch["held"] == asked.ask("batch_held", rows())
    (table,) = files(asked, key, "csv")
    read = list(csv.DictReader(io.StringIO(table["text"].removeprefix("\ufeff"))))
    assert read[1]["all modules"] == "plan plan/rome"
    assert "repair=link:2" in read[1]["all settings"]
    assert "temperature=0.5" in read[1]["all settings"]
    assert "temperature=0" in read[0]["all settings"].split()
    (whole,) = (json.loads(one["text"]) for one in files(asked, key, "json"))
    assert (whole["prompt"], whole["settings"]["repair"]) == (PROMPT, "link:2")
    assert whole["rows"][0]["modules"] == ["plan", "plan/tokyo"]
    assert whole["summary"]["answered"] == 3, "a failed row is not answered"


def test_scores_are_stored_and_equal_answers_share_them(asked: Asked, key: str) -> None:
    found = asked.ask("batch_score", {"key": key, "number": 3, "side": "uncached", "score": 1})
    assert found["row"]["same_text"], "its scope is exact"
    assert (found["row"]["cached"]["score"], found["row"]["uncached"]["score"]) == (1, 1)
    found = asked.ask("batch_score", {"key": key, "number": 0, "side": "cached", "score": 0.5})
    assert found["row"]["cached"]["score"] == 0.5
    assert (found["summary"]["scored"], found["summary"]["score_cached"]) == (2, 0.75)
    again = Asked(asked.parts.database.folder.parent).ask("batch_state", {"key": key, "only": True})["batch"]
    assert again["rows"][0]["cached"]["score"] == 0.5, "after a restart"
    (table,) = files(asked, key, "csv")
    assert next(csv.DictReader(io.StringIO(table["text"].removeprefix("\ufeff"))))["cached score"] == "0.5"
    assert "error" in asked.ask("batch_score", {"key": key, "number": 0, "side": "cached", "score": 2})
    assert "no such answer" in asked.ask("batch_score", {"key": key, "number": 2, "side": "cached"})["error"]
    gone = asked.ask("batch_score", {"key": key, "number": 0, "side": "cached"})
    assert gone["row"]["cached"]["score"] is None


def test_promptfoo_gets_messages_assertions_and_results(asked: Asked, key: str) -> None:
    asked.ask("batch_score", {"key": key, "number": 1, "side": "cached", "score": 0.25})
    config, results = files(asked, key, "promptfoo")
    assert (config["filename"], results["filename"]) == ("promptfooconfig.json", "promptfoo-results.json")
    assert any("left out: 1" in note for note in config["notes"])
    told = json.loads(config["text"])
    first = told["tests"][0]
    assert "{{" not in first["vars"]["messages"], "promptfoo would take it as a template"
    messages = json.loads(first["vars"]["messages"])
    assert "What {{is}} here?" in messages[-1]["content"]
    assert first["assert"] == [{"type": "regex", "value": "."}]
    kinds = [(one["type"], one["value"]) for one in told["tests"][2]["assert"]]
    assert kinds == [("is-json", {}), ("word-count", {"max": 9})]
    whole = json.loads(results["text"])["results"]
    assert (whole["version"], len(whole["results"])) == (3, 6)
    stats = whole["stats"]
    assert stats["successes"] + stats["failures"] == 6
    scored = next(one for one in whole["results"] if one["testIdx"] == 1 and one["promptId"] == "cached")
    assert (scored["success"], scored["score"]) == (False, 0.25)
    assert scored["gradingResult"]["componentResults"][-1]["assertion"] == {"type": "human"}


def test_langfuse_gets_an_item_for_each_row(asked: Asked, key: str) -> None:
    (found,) = files(asked, key, "langfuse")
    items = [json.loads(line) for line in found["text"].splitlines()]
    assert [item["metadata"]["row"] for item in items] == ["a", "b", "d"]
    assert items[1]["metadata"]["settings"]["temperature"] == 0.5
    assert set(items[0]["metadata"]["answers"]) == {"cached", "uncached"}
    assert items[0]["input"]["messages"][-1]["role"] == "user"
    assert len({item["datasetName"] for item in items}) == 1


def test_the_time_left_never_increases() -> None:
    assert time_left(None, 5, 0, 9) is None
    left = time_left(None, 4, 2, 10)
    assert left == 20
    assert time_left(left, 30, 3, 9) == 20, "slow rows"
    assert time_left(left, 6, 3, 9) == 18
