"""Several answers of one engine at a time: each as if alone, and none waits for who does not compute."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.base.events import Compared, Delta, Event, Finished, FirstToken, Listener, Waiting, Working
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.inference.step_lock import WAITING, Computing, returned
from engine.store import Store
from tests.drawing import each
from tests.engine.cases import model_of, prompt_of, schema_of

SCHEMA = """<schema name="s"><system>You plan.</system><user>Read.
<module name="a">alpha and more of it</module><module name="b">beta is about alpha</module>
<module name="c">gamma rays</module></user><assistant>Done.</assistant></schema>"""
PROMPTS = (
    "<prompt><a/><b/><c/><user>Which letters are there?</user></prompt>",
    "<prompt><c/><a/><user>And in another order, what is there then?</user></prompt>",
)
SETTINGS = RunSettings(max_new_tokens=12)
HOT = RunSettings(max_new_tokens=12, temperature=1.5, seed=7)


def within(work: Callable[[], Any]) -> Any:
    """What the work returns; a test that would wait for ever fails instead."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it waits for ever"
    assert found, "it failed"
    return found[0]


@pytest.fixture(params=each(["llama-gqa", "gemma2", "falcon"], "gemma2"))
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(model_of(request.param), Store.open(tmp_path))
    yield opened
    opened.close()


def events_of(engine: Engine, number: int, mode: Any = "both", settings: RunSettings = SETTINGS) -> Any:
    return engine.schema(schema_of(SCHEMA)).prompt(prompt_of(PROMPTS[number])).stream(settings, mode=mode)


def said(events: list[Event]) -> list[tuple[str, tuple[int, ...], str]]:
    return [(e.side, e.answer.token_ids, e.answer.text) for e in events if isinstance(e, Finished)]


def alone(tmp_path: Path, engine: Engine, number: int, settings: RunSettings) -> list[Any]:
    """What an engine of the same model says that does nothing else."""
    other = Engine(engine.model, Store.open(tmp_path / f"alone-{number}"))
    found = said(list(events_of(other, number, settings=settings)))
    other.close()
    return found


def until(events: Any, kind: type) -> None:
    while not isinstance(next(events), kind):
        pass


@pytest.mark.parametrize("settings", [SETTINGS, HOT])
def test_interleaved_answers_are_what_each_is_alone(
    engine: Engine, tmp_path: Path, settings: RunSettings
) -> None:
    def both() -> list[list[Event]]:
        runs = [events_of(engine, number, settings=settings) for number in (0, 1)]
        pairs = list(itertools.zip_longest(*runs))
        return [[event for event in column if event is not None] for column in zip(*pairs, strict=True)]

    for number, events in enumerate(within(both)):
        assert said(events) == alone(tmp_path, engine, number, settings)
        assert isinstance(events[-1], Compared)


def test_threads_answer_at_once_as_one_after_the_other(engine: Engine, tmp_path: Path) -> None:
    found: dict[int, Any] = {}

    def work(place: int) -> None:
        found[place] = said(list(events_of(engine, place % 2)))

    threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(found) == [0, 1, 2, 3]
    for place, answers in found.items():
        assert answers == alone(tmp_path / str(place), engine, place % 2, SETTINGS)


@pytest.mark.parametrize("kind", [Working, FirstToken, Delta])
def test_an_abandoned_answer_blocks_nobody(engine: Engine, kind: type) -> None:
    class Reader:
        """Holds an answer, and itself: only the collector can end it."""

        def __init__(self) -> None:
            self.events = events_of(engine, 0, "cached")
            self.me = self
            until(self.events, kind)

    reader: Any = Reader()
    assert len(within(lambda: said(list(events_of(engine, 1))))) == 2
    report = within(lambda: engine.schema(schema_of(SCHEMA)).encode())
    assert report.encoded + report.reused >= 5
    measured = within(
        lambda: engine.schema(schema_of(SCHEMA)).prompt(prompt_of(PROMPTS[0])).fidelity(SETTINGS)
    )
    assert measured.modules
    del reader
    gc.collect()
    assert len(within(lambda: said(list(events_of(engine, 0))))) == 2


def test_a_suspended_measurement_and_closing_midway_block_nobody(engine: Engine) -> None:
    steps = engine.schema(schema_of(SCHEMA)).prompt(prompt_of(PROMPTS[0])).measuring(SETTINGS)
    next(steps)
    events = events_of(engine, 1)
    until(events, FirstToken)
    events.close()
    assert len(within(lambda: said(list(events_of(engine, 1))))) == 2
    rest = within(lambda: returned(steps))
    assert rest == engine.schema(schema_of(SCHEMA)).prompt(prompt_of(PROMPTS[0])).fidelity(SETTINGS)


def counting(log: list[str], name: str) -> Any:
    for place in range(3):
        log.append(f"{name}{place}")
        yield Working("cached", name, place, 3)
    return name


def test_who_asks_first_is_first_and_a_long_wait_is_said() -> None:
    computing, log = Computing(patience=0.01), list[str]()
    steps = computing.steps(counting(log, "a"), "cached")
    assert next(steps) == Working("cached", "a", 0, 3)
    with computing.step():
        waiting = within(lambda: next(steps))
        assert waiting == Waiting("cached", WAITING, 0, 3)
        assert log == ["a0"]
    assert within(lambda: returned(steps)) == "a"
    assert log == ["a0", "a1", "a2"]


def test_who_was_said_to_wait_is_told_when_its_turn_comes() -> None:
    computing, log = Computing(patience=0.01), list[str]()
    listener = Listener(turn=lambda side: log.append(f"turn of the {side} side"))
    steps = computing.steps(counting(log, "a"), "cached", listener=listener)
    next(steps)
    with computing.step():
        assert isinstance(within(lambda: next(steps)), Waiting)
        assert log == ["a0"]
    next(steps)
    assert log == ["a0", "turn of the cached side", "a1"]
    next(steps)
    assert log[3:] == ["a2"], "nothing was said, so nothing is over"


def test_steps_of_threads_take_turns() -> None:
    """A step ends when the other thread waits, and then that thread is next."""
    computing, order = Computing(), list[str]()

    def work(name: str) -> None:
        for _ in range(20):
            with computing.step():
                order.append(name)
                while len(order) < 40 and not computing.awaited:
                    time.sleep(0.001)

    threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert "".join(order) in ("ab" * 20, "ba" * 20)


def test_a_failing_step_gives_the_turn_back() -> None:
    computing = Computing()

    def failing() -> Any:
        yield 1
        raise ValueError("no")

    steps = computing.steps(failing(), "cached")
    next(steps)
    with pytest.raises(ValueError, match="no"):
        next(steps)
    with computing.step():
        pass


def test_waiting_is_told_apart_from_the_time_to_first_token(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    engine.computing.patience = 0.01
    events = events_of(engine, 0, "uncached")
    with engine.computing.step():
        first = within(lambda: next(events))
    assert (first.what, first.side) == (WAITING, "uncached")
    answer = next(e.answer for e in events if isinstance(e, Finished))
    assert answer.waited_ms >= 10
    assert sum(answer.timeline_ms.values()) == pytest.approx(answer.ttft_ms)
    assert answer.to_json()["waited_ms"] == answer.waited_ms
    engine.close()


def test_nothing_is_waited_for_once_a_side_has_finished(tmp_path: Path) -> None:
    engine = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    engine.computing.patience = 0.01
    other_ends, found = threading.Event(), []

    def events() -> list[Event]:
        for event in events_of(engine, 0, mode="cached"):
            found.append(event)
            if isinstance(event, Finished):
                began = threading.Event()
                threading.Thread(target=other, args=(began,), daemon=True).start()
                began.wait()
        return found

    def other(began: threading.Event) -> None:
        with engine.computing.step():
            began.set()
            other_ends.wait(5)

    within(events)
    assert not other_ends.is_set()
    assert isinstance(found[-1], Finished)
    other_ends.set()
    engine.close()
