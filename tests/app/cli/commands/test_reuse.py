"""`pml run --reuse auto`: the remedy that was taken, and the check behind the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.base.signals import StoppedError
from engine.fidelity import check

pytestmark = pytest.mark.usefixtures("place")
Run = Callable[..., SimpleNamespace]
RUN = ("run", "prompt.pml", "--schema", "trip.pml", "--max-new-tokens", "4", "--server", "never")
AUTO = (*RUN, "--reuse", "auto")


def told(run_pml: Run, *more: str) -> Any:
    done = run_pml(*AUTO, *more, "--json")
    assert done.status == 0, done.err
    return json.loads(done.out)["reuse"]


def test_it_says_which_remedy_was_taken_and_comes_down_where_none_is_needed(run_pml: Run) -> None:
    first = told(run_pml, "--max-kl", "100", "--mode", "cached")
    assert first["taken"] == {"scope": "anchored", "repair": "impact:0.15"}
    assert first["checked"]
    assert re.match(r"Recomputed \d+ of \d+ cached tokens: mean KL ", first["why"])
    assert first["kl"] >= 0
    second = told(run_pml, "--max-kl", "100", "--mode", "cached")
    assert second["taken"] == {"scope": "anchored", "repair": "none"}
    words = run_pml(*AUTO, "--max-kl", "100")
    assert words.status == 0, words.err
    assert words.out.splitlines()[-1].startswith("Reused as stored: mean KL ")


def test_a_broken_promise_is_told_and_more_is_taken_the_next_time(run_pml: Run) -> None:
    first = told(run_pml, "--max-kl", "0")
    assert "exceeds the limit of 0; the next run uses a more exact method" in first["why"]
    assert "KL <" not in first["why"], "a promise below what is shown else shows more digits"
    second = told(run_pml, "--max-kl", "0")
    assert second["taken"] in (
        {"scope": "preceding", "repair": "impact:0.15"},
        {"scope": "anchored", "repair": "none", "scaffold": ["plan", "plan/tokyo"]},
        "uncached",
    )


def test_off_is_as_before(run_pml: Run) -> None:
    done = run_pml(*RUN, "--reuse", "off", "--json")
    report = json.loads(done.out)
    assert "reuse" not in report
    assert (report["scope"], report["repair"]) == ("anchored", "none")


@pytest.mark.parametrize("own", [("--scope", "anchored"), ("--repair", "link:2")])
def test_a_choice_of_ones_own_beside_it_is_refused(run_pml: Run, own: tuple[str, str]) -> None:
    done = run_pml(*AUTO, *own)
    assert done.status == 2
    assert f"{own[0]} is given, and reuse 'auto' chooses scope and repair itself. Leave them out" in done.err


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (KeyboardInterrupt(), "The check of the answer was skipped. The answer is complete."),
        (RuntimeError("out of luck"), "The answer is complete, but it could not be checked: out of luck"),
    ],
)
def test_nothing_in_a_check_costs_the_answer(
    run_pml: Run, monkeypatch: pytest.MonkeyPatch, fault: BaseException, words: str
) -> None:
    def fail(*_: Any) -> Any:
        raise fault

    monkeypatch.setattr(check, "read", fail)
    done = run_pml(*AUTO, "--mode", "cached", "--json")
    assert done.status == 0, done.err
    report = json.loads(done.out)
    assert report["cached"]["text"] is not None
    assert (report["reuse"]["checked"], report["reuse"]["kl"]) == (False, None)
    assert words in done.err


def test_a_kill_ends_the_command(run_pml: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise StoppedError(15)

    monkeypatch.setattr(check, "read", fail)
    assert run_pml(*AUTO, "--mode", "cached").status == 143


def test_the_check_comes_behind_the_whole_answer(run_pml: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []

    def fail(*_: Any) -> Any:
        raise RuntimeError("checked")

    monkeypatch.setattr(check, "read", fail)
    monkeypatch.setattr("app.cli.base.run_answers.say", lambda text, **_: printed.append(text))
    monkeypatch.setattr("app.cli.commands.run.say", lambda text, **_: printed.append(text))
    assert run_pml(*AUTO, "--mode", "cached").status == 0
    at = next(number for number, text in enumerate(printed) if "could not be checked" in text)
    assert any("time to first token" in text for text in printed[:at])


def test_rows_of_a_batch_choose_and_are_not_checked(run_pml: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "Where?"}\n{"text": "When?"}\n', encoding="utf-8")
    given = ("--batch", "rows.jsonl", "--mode", "cached", "--max-new-tokens", "4")
    done = run_pml("run", "prompt.pml", "--schema", "trip.pml", *given, "--reuse", "auto")
    assert done.status == 0, done.err
    assert told(run_pml)["why"].startswith("Recomputed ")


def test_it_is_auto_unless_scope_or_repair_is_written(run_pml: Run) -> None:
    assert "reuse" in json.loads(run_pml(*RUN, "--json").out)
    for own in (("--scope", "anchored"), ("--repair", "none")):
        assert "reuse" not in json.loads(run_pml(*RUN, *own, "--json").out)


@pytest.mark.parametrize("own", [("--reuse", "off"), ("--scope", "preceding"), ("--repair", "link:2")])
def test_a_promise_that_nothing_keeps_is_refused(run_pml: Run, own: tuple[str, str]) -> None:
    done = run_pml(*RUN, "--max-kl", "0.01", *own)
    assert done.status == 2
    assert "--max-kl belongs to --reuse auto" in done.err


def test_the_json_says_what_was_taken_and_promised(run_pml: Run) -> None:
    report = json.loads(run_pml(*RUN, "--max-kl", "0.5", "--json").out)
    assert (report["scope"], report["repair"]) == ("anchored", "impact:0.15")
    assert report["reuse"]["promise"] == 0.5
