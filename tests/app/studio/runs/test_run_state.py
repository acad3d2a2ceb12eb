"""What a run makes of its events, and what it says of its times."""

from __future__ import annotations

import pytest

from app.studio.runs.differences import word_difference
from app.studio.runs.payback import apart
from app.studio.runs.run_frame import ModelOfRun
from app.studio.runs.run_state import Clock, Run, apply, payback
from app.studio.runs.settings import PageSettings
from engine import Answer, Delta, Finished
from engine.base.events import Ending

MODEL: ModelOfRun = {"name": "m", "fingerprint": "f", "device": "cpu", "dtype": "fp32", "weights": "plain"}


@pytest.mark.parametrize(
    ("encode", "cached", "uncached", "runs", "words"),
    [
        (500.0, 12.0, 220.0, 3, "after about 3 runs"),
        (0.0, 12.0, 220.0, 1, "Faster from the first run on"),
        (100.0, 10.0, 110.0, 2, "after about 2 runs"),  # after one both have taken as long
        (500.0, 20.0, 20.0, None, "Never pays off"),
        (None, 12.0, 220.0, None, "encoded earlier"),
        (500.0, 12.0, None, None, ""),
    ],
)
def test_payback_is_the_smallest_number_of_runs_that_is_quicker(
    encode: float | None, cached: float, uncached: float | None, runs: int | None, words: str
) -> None:
    found = payback(encode, cached, uncached)
    assert found["runs"] == runs
    assert words in found["words"]
    if runs is not None and encode is not None and uncached is not None:
        assert encode + runs * cached < runs * uncached
        assert runs == 1 or encode + (runs - 1) * cached >= (runs - 1) * uncached


def test_one_timing_each_proves_no_small_difference() -> None:
    assert [apart({"ttft_speedup": ratio}) for ratio in (0.5, 0.9, 1.2, 1.3)] == [True, False, False, True]
    assert apart({"ttft_speedup": 1.1, "least_speedup": 1.05, "most_speedup": 1.2})
    assert not apart({"ttft_speedup": 2.0, "least_speedup": 0.9, "most_speedup": 3.0})
    assert payback(500.0, 40.0, 20.0, repeated=False)["words"] == ""


def test_the_rate_of_a_run_that_shares_the_machine_is_of_its_own_steps() -> None:
    run, clock = Run("s", PageSettings(), ("cached", "uncached"), MODEL), Clock()
    for number in range(5):  # every tenth of a second a token, and each time as long for another run
        waited = 100.0 * number
        apply(run, Delta("cached", "word ", waited), 7.0 + 0.2 * number, clock)
    assert run.sides["cached"].tokens_per_second == pytest.approx(10)


def test_the_side_that_runs_next_is_no_longer_said_to_wait_its_turn() -> None:
    run = Run("s", PageSettings(), ("uncached", "cached"), MODEL)
    run.begin()
    assert [run.sides[side].state for side in run.order] == ["working", "waiting"]
    answer = Answer("a", (1,), 1.0, 0.0, {}, {}, (), "eos", waited_ms=2400.0)
    apply(run, Finished("uncached", answer), 0.0, Clock())
    assert [run.sides[side].state for side in run.order] == ["done", "working"]
    assert run.frame()["sides"]["uncached"]["waited_ms"] == 2400.0


@pytest.mark.parametrize(
    ("grammar", "text", "stopped", "fault"),
    [
        ("text", "a", "eos", None),
        ("regex:[a-z]", "a", "eos", ""),
        ("regex:[a-z]{2}", "a", "length", "incomplete: it reached the maximum length. Raise that setting."),
        ("regex:[a-z]", "a", "length", ""),
        ('schema:{"type": "integer"}', "true", "eos", "is not of type 'integer'."),
    ],
)
def test_an_answer_is_checked_against_its_format(
    grammar: str, text: str, stopped: Ending, fault: str | None
) -> None:
    run = Run("s", PageSettings(), ("cached",), MODEL)
    apply(
        run,
        Finished("cached", Answer(text, (1,), 1.0, 0.0, {}, {}, (), stopped, grammar=grammar)),
        0.0,
        Clock(),
    )
    found = run.frame()["sides"]["cached"]["format_fault"]
    assert (found is None) == (fault is None)
    assert (found or "").endswith(fault or "")
    assert bool(found) == bool(fault)


@pytest.mark.parametrize(
    ("left", "right", "differing"),
    [
        ("", "", 0),
        ("a b c", "a b c", 0),
        ("a b c", "a x c", 1),
        ("a b", "a b c d", 2),
        ("  a\nb", "a b", 0),
        ("", "a", 1),
    ],
)
def test_word_difference_loses_no_letter(left: str, right: str, differing: int) -> None:
    difference = word_difference(left, right)
    assert "".join(text for text, _ in difference["cached"]) == left
    assert "".join(text for text, _ in difference["uncached"]) == right
    assert difference["differing"] == differing
    assert (difference["first"] is None) == (differing == 0)


def test_the_first_word_that_differs_is_named_on_both_sides() -> None:
    assert word_difference("It was here", "It  is here")["first"] == {
        "word": 2,
        "cached": "was",
        "uncached": "is",
    }
    assert word_difference("I go", "I will go")["first"] == {"word": 2, "cached": "go", "uncached": "will"}
    assert word_difference("a", "a b")["first"] == {"word": 2, "cached": "", "uncached": "b"}
