"""Runs under a promise in the studio: the remedy is told, and checked once nothing else is computed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.studio.history import read_frame
from engine.engine import Engine
from engine.fidelity import check
from engine.fidelity.teacher_forcing import Reading
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
    engine.check_when_idle()
    yield Asked(tmp_path, engine=engine)
    engine.close()


def ran(asked: Asked, key: str, mode: str = "both", schema: str = SCHEMA, **settings: Any) -> Any:
    given = {"max_new_tokens": 4, "repeats": 2, **settings}
    sent = {"key": key, "schema": schema, "prompt": PROMPT, "settings": given, "mode": mode}
    began = asked.ask("run_prompt", sent)
    assert "error" not in began, began
    return asked.ended(key)["result"]


def test_the_run_says_what_was_taken_and_later_what_a_check_found(asked: Asked) -> None:
    run = ran(asked, "1", max_kl=100)
    assert run["state"] == "done", run["message"]
    told = dict(run["reuse"])
    assert re.fullmatch(r"Recomputed \d+ of \d+ cached tokens: not measured yet", told.pop("why"))
    assert told == {
        "scope": "anchored",
        "repair": "impact:0.15",
        "kl": None,
        "checked": False,
        "follows": True,
        "broken": False,
    }
    assert asked.parts.engine.idle.wait(60)
    checked = asked.ask("show_run", {"number": run["number"]})["run"]["reuse"]
    assert checked["checked"]
    assert not checked["follows"]
    assert not checked["broken"]
    (kept,) = asked.ask("list_runs")["runs"]
    (told,) = asked.ask("compare_runs", {"ids": [kept["id"]]})["runs"]
    assert told["told"]["reuse"] == checked, "it is kept on disk as well"
    assert ran(asked, "2", max_kl=100)["reuse"]["repair"] == "none"
    known = asked.parts.engine.store.measured
    assert asked.parts.engine.idle.wait(60)
    assert known.of(_combination(asked)).runs == 2, "repeats for the clock are no runs of their own"


def _combination(asked: Asked) -> str:
    prompt = asked.parts.engine.schema(SCHEMA).prompt(PROMPT)
    taken = next(iter(prompt.submissions(reuse="auto"))).taken
    assert taken is not None
    return taken.combination


def test_a_broken_promise_is_told(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = Reading.divergence  # of a tiny model it may be 0
    monkeypatch.setattr(Reading, "divergence", lambda read, full: exact(read, full) + 0.5)
    run = ran(asked, "1", max_kl=0, repeats=1)
    assert asked.parts.engine.idle.wait(60)
    told = asked.ask("show_run", {"number": run["number"]})["run"]["reuse"]
    assert told["broken"]
    assert "exceeds the limit of 0" in told["why"]


def test_a_run_without_reuse_encodes_nothing_and_is_the_cached_side(asked: Asked) -> None:
    known, name = asked.parts.engine.store.measured, _combination(asked)
    known.count(name, "s")
    known.note(name, dict.fromkeys(range(5), 1.0))
    run = ran(asked, "1", max_kl=0, repeats=1)
    assert run["state"] == "done", run["message"]
    assert (run["reuse"]["scope"], run["encoding"]["segments"]) == ("", 0)
    assert run["sides"]["cached"]["text"] == run["sides"]["uncached"]["text"]
    assert run["comparison"]["kl_first_token"] == 0
    assert run["payback"]["words"] == "", "a cache that was not read neither pays off nor fails to"


def test_a_check_follows_where_one_is_due_and_nowhere_else(asked: Asked) -> None:
    first = ran(asked, "1", max_kl=100, mode="cached", repeats=1)["reuse"]
    assert first["follows"], "nobody has measured these modules yet"
    assert asked.parts.engine.idle.wait(60)
    assert not ran(asked, "2", max_kl=100, mode="cached", repeats=1)["reuse"]["follows"]
    assert ran(asked, "3", max_kl=100, repeats=1)["reuse"]["follows"], "it answers both sides"
    alone = '<schema name="s"><user><module name="a"></module><module name="b">beta</module></user></schema>'
    exact = ran(asked, "4", schema=alone, repeats=1)["reuse"]
    assert exact["why"].startswith("Reused as stored")
    assert not exact["follows"], "what is exact needs no check"


def test_a_kept_run_awaits_no_check() -> None:
    told = {"why": "Recomputed 3 of 40", "checked": False, "follows": True}
    reuse = read_frame({"reuse": told})["reuse"]
    assert reuse is not None
    assert not reuse["follows"]


def test_a_check_that_fails_leaves_the_run_as_it_is(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(check, "read", fail)
    run = ran(asked, "1", repeats=1)
    assert asked.parts.engine.idle.wait(60)
    again = asked.ask("show_run", {"number": run["number"]})["run"]
    assert again == run


def test_a_choice_of_ones_own_takes_its_place(asked: Asked) -> None:
    run = ran(asked, "1", scope="isolated", repeats=1)
    assert run["reuse"] is None
    assert (run["settings"]["reuse"], run["settings"]["scope"]) == ("off", "isolated")


@pytest.mark.parametrize("sent", [None, "much", {"scope": "anchored"}, {"why": 3}])
def test_what_is_no_remedy_is_left_out(sent: object) -> None:
    assert read_frame({"reuse": sent})["reuse"] is None
