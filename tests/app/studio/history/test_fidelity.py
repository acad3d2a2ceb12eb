"""What reuse changed, as the page asks for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.studio.web.digests import digest, digest_of_schema
from app.studio.web.jobs import Job
from engine.engine import Engine
from engine.model.network import Network
from engine.pml import parse_schema
from engine.store import Store
from tests.app.studio.asked import Asked
from tests.engine.cases import model_of

SCHEMA = """<schema name="s">
  <user>Read. <module name="a">alpha</module> <module name="b">beta</module></user>
</schema>
"""
PROMPT = "<prompt><a/><b/><user>What?</user></prompt>"


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    engine = Engine(model_of("llama-gqa"), Store.open(tmp_path / "cache"))
    yield Asked(tmp_path, engine=engine)
    engine.close()


def begin(asked: Asked, key: str, prompt: str = PROMPT, **settings: Any) -> Any:
    return asked.ask(
        "measure_fidelity", {"key": key, "schema": SCHEMA, "prompt": prompt, "settings": settings}
    )


def test_a_measurement_ends_with_its_result_or_with_words(asked: Asked) -> None:
    assert begin(asked, "1", max_new_tokens=4)["key"] == "1"
    state = asked.ended("1")
    assert state["fault"] == ""
    assert [module["path"] for module in state["result"]["found"]["modules"]] == ["", "a", "b"]
    texts = {"schema": SCHEMA, "prompt": PROMPT}
    assert state["result"]["schema"] == "s"
    of, named = state["result"]["of"], asked.ask("check", texts)["texts"]
    assert {kind: of[kind] for kind in texts} == named, "greyed when the page names other texts"
    assert of["model"] == asked.ask("model")["model"]["digest"]
    drawn = asked.ask("measure", {**texts, "settings": {"scope": "isolated"}})
    assert (drawn["of"]["schema"], drawn["settings"]["scope"]) == (named["schema"], "isolated")
    begin(asked, "2", "<prompt><b/><a/></prompt>", placement="schema")
    assert "E506" in asked.ended("2")["fault"]
    with asked.parts.engine.computing.step():  # a run goes on, so the measurement waits
        begin(asked, "3", max_new_tokens=4)
        asked.ask("stop_job", {"key": "3"})
    assert asked.ended("3")["fault"] == "Stopped."


def test_a_result_belongs_to_what_the_files_of_its_schema_say(asked: Asked, tmp_path: Path) -> None:
    source = '<schema name="s"><include src="more.pml"/><module name="a" src="a.txt"/></schema>'
    more = '<schema name="more"><module name="m">one <param name="p" len="{}"/></module></schema>'

    def named(text: str, length: int) -> str:
        (tmp_path / "a.txt").write_text(text)
        (tmp_path / "more.pml").write_text(more.format(length))
        parsed = parse_schema(source, base=tmp_path)
        assert parsed.ok, parsed.diagnostics
        found = digest_of_schema(source, parsed.tree)
        assert found == digest_of_schema(source, asked.parts.engine.schema(source, base=tmp_path).tree)
        return found

    first = named("alpha", 2)
    assert first == named("alpha", 2)
    assert len({first, named("beta", 2), named("alpha", 3)}) == 3
    alone = '<schema name="s"><module name="a">alpha</module></schema>'
    assert digest_of_schema(alone, parse_schema(alone).tree) == digest(alone)


def test_a_measurement_is_found_again_by_what_it_belongs_to(asked: Asked, tmp_path: Path) -> None:
    assert begin(asked, "1", max_new_tokens=4)["key"] == "1"
    result = asked.ended("1")["result"]
    texts = asked.ask("check", {"schema": SCHEMA, "prompt": PROMPT})["texts"]
    now = {**texts, "settings": {"max_new_tokens": 4}}
    assert asked.ask("find_fidelity", now) == {"kept": result, "under_way": ""}
    assert result["unkept"] == ""
    for other in ({"settings": {"max_new_tokens": 5}}, {"prompt": "x"}, {"schema": "x"}):
        assert asked.ask("find_fidelity", {**now, **other})["kept"] is None
    again = Asked(tmp_path, engine=asked.parts.engine)
    assert again.ask("find_fidelity", now)["kept"] == result, "a studio that was started again"
    (run,) = again.ask("list_runs")["runs"]
    assert (run["state"], run["fidelity"]["measured"]) == ("measured", result["measured"])


def test_a_measurement_under_way_is_joined_and_one_that_is_not_kept_says_so(
    asked: Asked, tmp_path: Path
) -> None:
    now = {**asked.ask("check", {"schema": SCHEMA, "prompt": PROMPT})["texts"], "settings": {}}
    with asked.parts.engine.computing.step():
        begin(asked, "1")
        assert asked.ask("find_fidelity", now) == {"kept": None, "under_way": "1"}
        asked.ask("stop_job", {"key": "1"})
    asked.ended("1")
    assert asked.ask("find_fidelity", now) == {"kept": None, "under_way": ""}
    asked.parts.database.close()
    for path in (tmp_path / "data").glob("studio.sqlite*"):
        path.unlink()
    (tmp_path / "data" / "studio.sqlite").mkdir(parents=True)
    begin(asked, "2", max_new_tokens=2)
    result = asked.ended("2")["result"]
    assert result["unkept"].startswith("The measurement is complete, but could not be saved.")
    assert result["found"]["modules"]


def test_a_prompt_that_cannot_be_read_is_refused_at_once(asked: Asked) -> None:
    assert "E1" in begin(asked, "1", "<prompt><")["error"]


def test_a_setting_out_of_its_range_is_refused_by_name_and_range(asked: Asked) -> None:
    assert (
        begin(asked, "1", temperature=11)["error"]
        == "Temperature must be a number, at least 0 and at most 10."
    )


def test_what_is_no_number_is_said_in_words_by_a_run_and_by_a_measurement(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = Network.forward
    monkeypatch.setattr(Network, "forward", lambda *given, **options: forward(*given, **options) * math.nan)
    said = "The model computed an invalid number at token 1 of the answer."
    begin(asked, "1", max_new_tokens=2)
    assert asked.ended("1")["fault"].startswith(said)
    asked.ask("run_prompt", {"key": "2", "schema": SCHEMA, "prompt": PROMPT})
    assert asked.ended("2")["result"]["message"].startswith(said)


def test_a_measurement_that_is_stopped_keeps_what_it_has_but_replaces_no_complete_one(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = {**asked.ask("check", {"schema": SCHEMA, "prompt": PROMPT})["texts"], "settings": {}}
    tell = Job.tell

    def stopped(job: Job, done: int, total: int, what: str) -> None:
        tell(job, done, total, what)
        if done >= 2:  # both answers are read
            job.stop()

    with monkeypatch.context() as patch:
        patch.setattr(Job, "tell", stopped)
        begin(asked, "1")
        part = asked.ended("1")["result"]
    assert (part["found"]["complete"], part["found"]["modules"], part["unkept"]) == (False, [], "")
    assert asked.ask("find_fidelity", now)["kept"] == part
    begin(asked, "2")
    whole = asked.ended("2")["result"]
    assert whole["found"]["complete"]
    assert part["found"]["kl_mean"] == whole["found"]["kl_mean"]
    monkeypatch.setattr(Job, "tell", stopped)
    begin(asked, "3")
    assert asked.ended("3")["result"]["unkept"] == "Stopped: the earlier complete measurement stays saved."
    assert asked.ask("find_fidelity", now)["kept"] == whole
