"""`suite`: every part at a tiny scale, errors, interruptions and goals. No times."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.base.case import Group
from benchmarks.suite import suite
from benchmarks.suite.goals import GOALS, rows, verdicts
from benchmarks.suite.suite import BY_NAME, NOT_YET, PARTS, TINY, Part, measured, read, run


def silent(_: str) -> None:
    pass


def group(name: str = "1.1B bf16", **fields: Any) -> dict[str, Any]:
    return Group(name, **fields).to_json()


def report(part: str, *groups: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"part": part, "scale": "full", "groups": list(groups), "machine": {}, **fields}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("suite")
    found = run(folder, TINY, (), silent)
    assert {path.stem for path in folder.iterdir()} == set(BY_NAME)
    assert {name: read(folder / f"{name}.json") for name in found} == json.loads(json.dumps(found))
    return dict(found)


@pytest.mark.long
def test_every_part_measures_something(reports: dict[str, dict[str, Any]]) -> None:
    assert {name: found["error"] for name, found in reports.items() if "error" in found} == {}
    assert list(reports) == [part.name for part in PARTS]
    for name, found in reports.items():
        assert found["groups"], name
        names = [one["name"] for one in found["groups"]]
        assert len(set(names)) == len(names), f"{name}: the names of groups are unique"
        for one in found["groups"]:
            assert one["samples_ms"] or one["values"]
            assert all(min(s for s in taken if s is not None) > 0 for taken in one["samples_ms"].values())


@pytest.mark.long
def test_every_goal_has_a_figure_where_nothing_is_missing(reports: dict[str, dict[str, Any]]) -> None:
    """So a renamed group or side does not leave a goal without a figure."""
    missing = {(goal.part, goal.over, goal.under) for goal, figure, _ in verdicts(reports) if figure is None}
    of_the_machine = {
        ("arrivals", "half shared ÷ nothing shared, prompts a second", ""),  # with other work
        ("T5", "files_cold", "cached"),  # with files in memory
    }
    assert missing - of_the_machine == {
        ("T10", "key to mark, 95%", ""),
        ("T13", "token", "llama.cpp:decode"),
        ("T13", "step with guesses", "llama.cpp:decode"),
        ("T14", "studio to its page", ""),
        ("T14", "pml run", ""),  # with a studio running
    }
    assert {goal.part for goal in GOALS} == set(BY_NAME) - {"lengths"}
    exact = {goal.over: figure for goal, figure, _ in verdicts(reports) if goal.part == "T7"}
    assert {over: figure.value for over, figure in exact.items() if figure} == dict.fromkeys(exact, 0)


def test_measured_parts_are_kept_and_failed_ones_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    here = suite.circumstances()

    def fake(part: Part, *_: object) -> dict[str, Any]:
        log.append(part.name)
        if part.name == "T2" and log.count("T2") == 1:
            return report("T2", scale="tiny", under=here, error="MemoryError: none left")
        return report(part.name, group(), scale="tiny", under=here)

    monkeypatch.setattr(suite, "measured", fake)
    chosen = ("T1", "T2", "T3")
    assert run(tmp_path, TINY, chosen, silent)["T2"]["error"] == "MemoryError: none left"
    run(tmp_path, TINY, chosen, silent)
    assert log == ["T1", "T2", "T3", "T2"]
    (tmp_path / "T3.json").write_text('{"part": "T3", "sca')
    run(tmp_path, TINY, chosen, silent)
    assert log[4:] == ["T3"], "a part of a file does not count"
    run(tmp_path, TINY, chosen, silent, again=True)
    assert log[5:] == ["T1", "T2", "T3"]
    told: list[str] = []
    monkeypatch.setattr(suite, "circumstances", lambda: {"code": "other"})
    run(tmp_path, TINY, ("T2",), told.append)
    assert log[8:] == ["T2"]
    assert told[0] == "T2: measured before with another code, so again"


def test_an_error_becomes_words() -> None:
    found = measured(Part("T1", "t", lambda scale: [1 / 0]), TINY, silent)
    assert found["error"].startswith("ZeroDivisionError: ")
    assert not found["groups"]


def test_goals_are_met_missed_or_not_measured_with_the_reason() -> None:
    met = group(samples={"uncached": [1100.0, 1111.0, 1200.0], "cached": [10.0, 10.0, 11.0]})
    missed = group(samples={"cached": [13.51], "floor": [10.0]})
    absent = {"llama.cpp": {"version": "", "absent": "it is not installed"}}
    quoting = group(
        "bundled model, quoting",
        samples={"step with guesses": [1.0], "llama.cpp:decode": [2.0]},
        values={"same text": "no"},
    )
    alone = group(samples={"token": [1.0]}, peers=absent)
    parts = {"T1": report("T1", met), "T3": report("T3", missed), "T13": report("T13", alone, quoting)}
    lines = [" | ".join(row) for row in rows({**parts, "T5": report("T5", error="OSError: full")})]
    assert lines[0].endswith("| 1.1B bf16 | 111 (109 to 111) | ≥ 110 | met")
    for part, end in (
        ("T3 ", "1.35 | ≤ 1.35 | missed"),
        ("T5 ", "failed: OSError: full"),
        ("T13 ", "not measured: it is not installed"),
        ("T13 ", "missed: another text"),
        ("T4 ", "| – | ≥ 1.1 | not measured"),
    ):
        assert any(line.startswith(part) and line.endswith(end) for line in lines), (part, end)


def test_the_command(
    run_bench: Callable[..., SimpleNamespace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = run_bench("suite", "--only", "T12")
    assert refused.status == 2
    assert "T12 is not measured yet: it needs a GPU" in refused.err
    assert set(NOT_YET) == {"T12", "T15"}
    assert "there is no part 'T99'; there are T1, T2" in run_bench("suite", "--only", "T99").err
    tiny = run_bench("suite", "--scale", "tiny", "--only", "T10")
    assert tiny.status == 0
    assert "The scale is tiny" in tiny.out
    assert [path.name for path in tmp_path.iterdir()] == ["bench-tiny"]
    monkeypatch.setattr(suite, "measured", lambda part, *_: report(part.name, scale="tiny", error="broke"))
    broken = run_bench("suite", "--scale", "tiny", "--only", "T2", "--json")
    assert broken.status == 1
    assert '"T2": "broke"' in broken.out
