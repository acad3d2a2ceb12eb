"""One timing loop: turns, warm-ups, fewer rounds for long sides, and failures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise

import pytest

from app.studio.sweeps.turns import Way, in_turns, orders, ratio, timed
from benchmarks.base.case import Case, Group, Pace, Say, report_of, words_of


def way(name: str, log: list[str], ms: float = 1.0) -> Way:
    return Way(name, lambda: log.append(name) or ms, lambda: log.append(f"prepare {name}"))


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_every_way_follows_every_other_equally_often(count: int) -> None:
    rounds = count if count % 2 == 0 else 2 * count
    found = orders(count, rounds, 1)
    assert all(sorted(order) == list(range(count)) for order in found)
    follows = [pair for order in found for pair in pairwise(order)]
    assert {follows.count(pair) for pair in follows} == {rounds // count}
    assert len(set(follows)) == count * (count - 1)


def test_each_sample_is_taken_after_a_run_that_does_not_count() -> None:
    log: list[str] = []
    assert timed([way("a", log), way("b", log)], 3, 0) == {"a": [1.0] * 3, "b": [1.0] * 3}
    assert log.count("a") == log.count("prepare a") == 6
    assert log[:4] in (["prepare a", "a"] * 2, ["prepare b", "b"] * 2)


def test_long_ways_are_in_few_rounds() -> None:
    log: list[str] = []
    ways = [way("short", log, 1.0), way("seconds", log, 3e3), way("minute", log, 6e4)]
    found = in_turns(ways, 7, 0, fewer=(3, 2))
    assert found["short"] == [1.0] * 7
    assert found["seconds"] == [3e3, None, None, 3e3, None, None, 3e3]
    assert found["minute"] == [6e4, None, None, None, None, None, 6e4]
    assert log.count("minute") == 2, "its first run counts"
    assert log.count("seconds") == 4, "it is warmed up once"


def test_a_ratio_is_of_the_rounds_that_both_were_in() -> None:
    samples = {"over": [30.0, None, 90.0], "under": [10.0, 1000.0, 30.0], "apart": [None, 20.0, None]}
    assert ratio(samples, "over", "under") == {"ratio": 2.0, "low": 2.0, "high": 3.0}
    assert ratio(samples, "over", "apart") == {"ratio": 3.0, "low": 1.5, "high": 4.5}
    assert ratio(samples, "over", "none") is None


def test_another_program_may_fail_and_ours_may_not() -> None:
    def broken() -> float:
        raise ZeroDivisionError

    def case(name: str) -> Case:
        @contextlib.contextmanager
        def setup(group: Group, say: Say) -> Iterator[list[Way]]:
            group.params = {"cached": 1}
            yield [way("ours", []), Way(name, broken)]
            group.values["after"] = len(group.samples["ours"])

        return Case("a case", setup)

    report = report_of([case("other:full")], Pace(2), lambda _: None)
    (group,) = report["groups"]
    assert group["samples_ms"] == {"ours": [1.0, 1.0]}
    assert group["values"] == {"after": 2}
    assert group["notes"] == ["other:full failed: ZeroDivisionError: "]
    assert "a case" in words_of(report)
    assert "OURS ÷" in words_of(report)
    with pytest.raises(ZeroDivisionError):
        report_of([case("mine")], Pace(2), lambda _: None)
