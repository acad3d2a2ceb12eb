"""What a stopwatch leaves out: nothing that an answer does until its first token."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from engine.base.choices import TimelinePart
from engine.base.events import SIDES, Side
from engine.base.stopwatch import Stopwatch
from engine.engine import Engine
from engine.store import Store
from tests.engine.cases import model_of

ENGINE = str(Path(sys.modules[Stopwatch.__module__].__file__ or "").parents[1])
SCHEMA = '<schema name="s">Read. <module name="a">alpha</module><module name="b">beta</module></schema>'
UNCOUNTED = ("stopwatch.py", "step_lock.py", "events.py")  # the clock, the pauses, and what is told at each


class Calls:
    """A clock that goes on by one second with each call of a function of the engine."""

    def __init__(self) -> None:
        self.now = 0.0

    def count(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(ENGINE) and not file.endswith(UNCOUNTED):
            self.now += 1


@pytest.fixture
def left_out(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The seconds between a lap and the restart after it, in the order of restarting."""
    calls, gaps, last = Calls(), list[float](), [0.0]
    lap, restart = Stopwatch.lap, Stopwatch.restart

    def lapped(clock: Stopwatch, part: TimelinePart) -> None:
        lap(clock, part)
        last[0] = calls.now

    def restarted(clock: Stopwatch) -> None:
        gaps.append(calls.now - last[0])
        restart(clock)
        last[0] = calls.now

    monkeypatch.setattr(Stopwatch, "lap", lapped)
    monkeypatch.setattr(Stopwatch, "restart", restarted)
    monkeypatch.setattr(time, "perf_counter", lambda: calls.now)
    sys.setprofile(calls.count)
    yield gaps
    sys.setprofile(None)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("again", [False, True])
def test_all_that_is_done_until_the_first_token_is_in_a_part(
    side: Side, again: bool, tmp_path: Path, left_out: list[float]
) -> None:
    with Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path)) as engine:
        prompt = engine.schema(SCHEMA).prompt("<prompt><a/><b/> go</prompt>")
        for _ in range(1 + again):
            left_out.clear()
            prompt.answer(mode=side, max_new_tokens=1, repair="link:1" if side == "cached" else "none")
        # The first restart is the beginning; resuming a generator is a call for each that it passes through.
        assert max(left_out[1:], default=0.0) <= 7
