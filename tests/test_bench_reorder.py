"""`pml bench reorder`: what is asked in which order, and what of it counts. No times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli.command import main
from benchmarks import reorder
from benchmarks.reorder import CHAT, MESSAGES, WAYS, asked_of
from engine.base.errors import PromptCacheError
from tests.engine.tiny import save_tiny

SMALL = {"blocks": 3, "tokens": 80, "repeats": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def report(folder: str) -> dict[str, Any]:
    return reorder.run(folder, **SMALL)


def test_what_has_a_name_is_read_where_it_moved_and_what_is_marked_is_not(report: dict[str, Any]) -> None:
    assert [one["name"] for one in report["results"]] == [way.name for way in WAYS]
    for way, one in zip(WAYS, report["results"], strict=True):
        assert one["first"]["read"] == 0, "the texts of each round are new, and no way reads of another"
        assert [len(one[order]["samples_ms"]) for order in ("first", "moved")] == [2, 2]
        assert one["prompt"] > 3 * 70
        if way.named:
            assert one["moved"]["read"] >= one["prompt"] - 64
        else:
            assert one["moved"]["read"] < 64, "but for the opening of the turn"


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
def test_what_breaks_off_or_says_nothing_is_told(path: str) -> None:
    with pytest.raises(PromptCacheError, match="broke off: it is full"):
        asked_of(path, [(1.0, {"type": "error", "error": "it is full"})])
    with pytest.raises(PromptCacheError, match="no text came"):
        asked_of(path, [(1.0, {"type": "message_stop", "choices": []})])


@pytest.mark.parametrize("changed", [{"blocks": 1}, {"tokens": 0}, {"repeats": 0}])
def test_numbers_that_cannot_be_run_are_refused_before_a_model_is_looked_for(changed: dict[str, int]) -> None:
    with pytest.raises(PromptCacheError, match="at least"):
        reorder.run("none", **{**SMALL, **changed})


def test_what_does_not_fit_is_a_fault_in_words(folder: str) -> None:
    with pytest.raises(PromptCacheError, match="do not fit the model's 2048"):
        reorder.run(folder, **{**SMALL, "tokens": 700})


def test_the_command_shows_both_orders(
    report: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    asked: dict[str, Any] = {}

    def run(model: str, **given: Any) -> dict[str, Any]:
        asked.update(model=model, **given)
        return report

    monkeypatch.setattr(reorder, "run", run)
    for words in (["--blocks", "4"], ["--json"]):
        with pytest.raises(SystemExit) as left:
            main(["bench", "reorder", "--model", str(tmp_path), *words])
        assert left.value.code == 0
        assert asked["model"] == str(tmp_path)
        told = capsys.readouterr().out
        if words == ["--json"]:
            assert json.loads(told) == report
        else:
            assert asked["blocks"] == 4
            for shown in (*(way.name for way in WAYS), "MOVED", "processor "):
                assert shown in told
