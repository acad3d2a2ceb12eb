"""`pml bench suite`: every part at a tiny scale, what it does with faults and interruptions, and no times."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import peers
from benchmarks.goals import GOALS, rows, verdicts
from benchmarks.suite import running
from benchmarks.suite.parts import BY_NAME, PARTS, Part
from benchmarks.suite.running import busy, measured, read, suite
from benchmarks.suite.sampling import Group, beside, ratio
from benchmarks.suite.scale import FULL, TINY
from benchmarks.turns import Way
from engine.base.errors import PromptCacheError


def silent(_: str) -> None:
    pass


def group(name: str = "1.1B bf16", **fields: Any) -> dict[str, Any]:
    return Group(name, **fields).to_json()


def report(part: str, *groups: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"part": part, "scale": "full", "groups": list(groups), "machine": {}, **fields}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("suite")
    found = suite(folder, TINY, (), silent)
    assert {path.stem for path in folder.iterdir()} == set(BY_NAME)
    assert {name: read(folder / f"{name}.json") for name in found} == json.loads(json.dumps(found))
    return found


def test_every_part_measures_something(reports: dict[str, dict[str, Any]]) -> None:
    assert {name: found["error"] for name, found in reports.items() if "error" in found} == {}
    assert list(reports) == [part.name for part in PARTS]
    for name, found in reports.items():
        assert found["groups"], name
        assert {"processor", "cores", "threads", "torch"} <= set(found["machine"])
        names = [one["name"] for one in found["groups"]]
        assert len(set(names)) == len(names), f"{name}: groups are told apart by their names"
        for one in found["groups"]:
            assert one["samples_ms"] or one["values"]
            assert all(min(s for s in taken if s is not None) > 0 for taken in one["samples_ms"].values())


def test_every_goal_has_a_figure_where_nothing_is_missing(reports: dict[str, dict[str, Any]]) -> None:
    """So a group or a way that is renamed in its part alone does not leave a goal unmeasured for ever."""
    missing = {(goal.part, goal.over, goal.under) for goal, figure, _ in verdicts(reports) if figure is None}
    busy = {("arrivals", "half shared ÷ nothing shared, prompts a second", "")}  # beside other work
    assert missing - busy == {
        ("T10", "key to mark, 95%", ""),
        ("T13", "token", "llama.cpp:decode"),
        ("T13", "step with guesses", "llama.cpp:decode"),
        ("T14", "studio to its page", ""),
        ("T14", "pml run", ""),  # with a studio running
    }
    assert {goal.part for goal in GOALS} == set(BY_NAME) - {"lengths", "answers", "store"}
    exact = {goal.over: figure for goal, figure, _ in verdicts(reports) if goal.part == "T7"}
    assert {over: figure.value for over, figure in exact.items() if figure} == dict.fromkeys(exact, 0)


def test_what_was_measured_is_not_measured_again_and_what_failed_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    here = running.circumstances()

    def run(part: Part, *_: object) -> dict[str, Any]:
        log.append(part.name)
        if part.name == "T2" and log.count("T2") == 1:
            return report("T2", scale="tiny", under=here, error="MemoryError: none left")
        return report(part.name, group(), scale="tiny", under=here)

    monkeypatch.setattr(running, "measured", run)
    chosen = ("T1", "T2", "T3")
    found = suite(tmp_path, TINY, chosen, silent)
    assert log == ["T1", "T2", "T3"], "a part that fails does not end the suite"
    assert found["T2"]["error"] == "MemoryError: none left"
    assert "error" not in suite(tmp_path, TINY, chosen, silent)["T2"]
    assert log == ["T1", "T2", "T3", "T2"]
    (tmp_path / "T3.json").write_text('{"part": "T3", "sca')
    suite(tmp_path, TINY, chosen, silent)
    assert log[4:] == ["T3"], "half a file is none"
    suite(tmp_path, TINY, chosen, silent, again=True)
    assert log[5:] == ["T1", "T2", "T3"]
    suite(tmp_path, replace(TINY, name="other"), ("T1",), silent)
    assert log[8:] == ["T1"], "a file of another scale is none of this one"
    told: list[str] = []
    monkeypatch.setattr(running, "circumstances", lambda: {"code": "other"})
    suite(tmp_path, TINY, ("T2",), told.append)
    assert log[9:] == ["T2"]
    assert told[0] == "T2: measured before with another code, so again"


def test_a_fault_becomes_words(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Part("T1", "t", ("nowhere", "run"), "")
    found = measured(broken, TINY, silent)
    assert found["error"].startswith("ModuleNotFoundError: ")
    assert not found["groups"]


def test_a_part_has_a_process_of_its_own(tmp_path: Path) -> None:
    """The tiny scale in the process that the full one has for each part."""
    told: list[str] = []
    found = suite(tmp_path, replace(TINY, own_process=True), ("store",), told.append)
    assert [one["name"] for one in found["store"]["groups"]] == ["10 segments", "20 segments"]
    assert told == ["store: Size of the store"], "what the process says, it says itself"
    (tmp_path / "store.json").unlink()
    ended = suite(tmp_path, replace(TINY, name="none", own_process=True), ("store",), silent)
    assert "status 1" in ended["store"]["error"]


def test_what_others_use_meanwhile_is_told_from_what_a_part_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    second = os.sysconf("SC_CLK_TCK")
    ticks = iter([(0, 0), (4 * second, 20 * second)])  # idle, and in all
    seconds = iter([1.0, 11.0])
    monkeypatch.setattr(running, "_ticks", lambda: next(ticks))
    monkeypatch.setattr(running, "_own_seconds", lambda: next(seconds))
    assert running.Others().share() == pytest.approx(0.3)


def test_long_ways_are_in_few_rounds_and_peers_may_fail() -> None:
    log: list[str] = []

    def way(name: str, ms: float, fault: str = "") -> Way:
        def run() -> float:
            log.append(name)
            if fault:
                raise RuntimeError(fault)
            return ms + log.count(name)

        return Way(name, run)

    taken = Group("g")
    ways = [way("soon", 1), way("seconds", 3000), way("minute", 40_000), way("other:full", 1, "no memory")]
    taken.measure(ways, replace(TINY, rounds=5, some=3, few=2), silent)
    assert taken.samples == {
        "soon": [3, 5, 7, 9, 11],  # each after a run to warm up
        "seconds": [3002, None, 3003, None, 3004],  # one such run before the first
        "minute": [40_001, None, None, None, 40_002],
    }
    assert log.count("other:full") == 1
    log.clear()
    few = Group("few rounds, as of whole answers")
    few.measure(ways[:3], replace(TINY, rounds=5, some=3, few=2), silent, rounds=3)
    assert [log.count(way.name) for way in ways[:3]] == [6, 4, 2], "a long way is not warmed up in each"
    assert taken.notes == ["other:full failed: RuntimeError: no memory"]
    falters = Way("other:prefix", iter([lambda: 1.0] * 3 + [lambda: 1 / 0] * 9).__next__)
    taken.measure([Way("other:prefix", lambda: falters.run()())], replace(TINY, rounds=4), silent)
    assert "other:prefix" not in taken.samples, "half a set of samples is none"
    with pytest.raises(RuntimeError, match="ours"):
        Group("g").measure([way("mine", 1, "ours")], TINY, silent)


def test_a_ratio_is_of_the_rounds_that_both_were_in() -> None:
    samples = {"over": [30.0, None, 90.0], "under": [10.0, 1000.0, 30.0], "apart": [None, 20.0, None]}
    assert ratio(samples, "over", "under") == {"ratio": 2.0, "low": 2.0, "high": 3.0}
    assert ratio(samples, "over", "apart") == {"ratio": 3.0, "low": 1.5, "high": 4.5}
    assert ratio(samples, "over", "none") is None


def test_other_software_is_named_where_it_is_missing_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> Any:
        raise PromptCacheError("this shape it cannot")

    made = [
        peers.Peer("absent", "", "not installed: pip install it", refused),
        peers.Peer("broken", "2", "", refused),
    ]
    monkeypatch.setattr(peers, "all_peers", lambda: made)
    taken = Group("g")
    with beside(taken, TINY.large, replace(TINY, peers=True), ("full",), silent) as ways:
        assert ways == []
    assert taken.peers["absent"] == {"version": "", "absent": "not installed: pip install it"}
    with pytest.raises(ZeroDivisionError), beside(taken, TINY.large, replace(TINY, peers=True), (), silent):
        raise ZeroDivisionError
    assert taken.peers["broken"]["absent"] == "failed: PromptCacheError: this shape it cannot"


def test_what_other_software_was_measured_with_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other:
        def ways(self) -> list[Way]:
            return [Way(f"other:{kind}", lambda: 1.0) for kind in ("full", "prefix", "decode")]

        def settings(self) -> dict[str, str]:
            return {"other:prefix": "slowly", "other:decode": "fast", "other:full": "slowly"}

    made = [peers.Peer("other", "1", "", lambda _: contextlib.nullcontext(Other()))]
    monkeypatch.setattr(peers, "all_peers", lambda: made)
    taken = Group("g")
    with beside(taken, TINY.large, replace(TINY, peers=True), ("full", "prefix"), silent) as ways:
        assert [way.name for way in ways] == ["other:full", "other:prefix"]
    assert taken.peers["other"]["settings"] == "full, prefix slowly; decode fast"


def test_other_software_gives_the_ways_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class Made:
        def ways(self) -> list[Way]:
            return [Way(f"made:{kind}", lambda: 1.0) for kind in ("full", "prefix", "answer")]

        def answer(self, tokens: int) -> Way:
            return Way("made:answer", lambda: float(tokens))

        def settings(self) -> dict[str, str]:
            return {}

    @contextlib.contextmanager
    def opened(shape: peers.Shape) -> Iterator[Made]:
        assert (shape.model, shape.cached, shape.answer) == (TINY.large.model, TINY.large.cached, 4)
        yield Made()

    monkeypatch.setattr(peers, "all_peers", lambda: [peers.Peer("made", "1", "", opened)])
    taken = Group("g")
    with beside(taken, TINY.large, replace(TINY, peers=True), ("prefix",), silent, answers=(2, 4)) as ways:
        assert [way.name for way in ways] == ["made:answer 2", "made:answer 4", "made:prefix"]
        assert [way.run() for way in ways] == [2.0, 4.0, 1.0]


def test_goals_are_met_missed_or_not_measured_and_say_why() -> None:
    met = group(samples={"uncached": [1100.0, 1111.0, 1200.0], "cached": [10.0, 10.0, 11.0]})
    missed = group(samples={"tokens_cached": [13.51], "tokens_floor": [10.0]})
    absent = {"llama.cpp": {"version": "", "absent": "it is not installed"}}
    alone = group(samples={"token": [1.0]}, peers=absent)
    found = rows(
        {
            "T1": report("T1", met),
            "T3": report("T3", missed),
            "T5": report("T5", error="OSError: full"),
            "T13": report("T13", alone),
        }
    )
    lines = [" | ".join(row) for row in found]
    assert lines[0].endswith("| 1.1B bf16 | 111 (109 to 111) | ≥ 110 | met")
    assert any(line.startswith("T3 ") and line.endswith("1.35 | ≤ 1.35 | missed") for line in lines), lines
    assert any(line.startswith("T5 ") and line.endswith("failed: OSError: full") for line in lines)
    assert any(
        line.startswith("T13 ") and line.endswith("not measured: it is not installed") for line in lines
    )
    assert any(line.startswith("T4 ") and line.endswith("| – | ≥ 1.1 | not measured") for line in lines)


@pytest.mark.parametrize(("same", "verdict"), [("yes", "met"), ("no", "missed: another text")])
def test_another_text_meets_no_goal(same: str, verdict: str) -> None:
    quoting = group(
        "bundled model, quoting",
        samples={"step with guesses": [1.0], "llama.cpp:decode": [2.0]},
        values={"same text": same},
    )
    found = [row[-1] for row in rows({"T13": report("T13", quoting)}) if row[2] == quoting["name"]]
    assert found == [verdict]


def test_the_full_scale_has_more_of_everything() -> None:
    assert FULL.own_process
    assert FULL.peers
    assert FULL.rounds >= 5
    share = busy(0.01)
    assert share is None or 0 <= share <= 1
