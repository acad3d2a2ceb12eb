"""Segments in memory: what is held stays, the rest keeps to the budget, nothing is held for ever."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.base.events import FirstToken, Working
from engine.base.segment import Segment
from engine.cache.memory import Handle, MemoryTier
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.store import Store
from engine.store.index.in_use import Holds
from tests.engine.cases import model_of, prompt_of, schema_of

CPU = torch.device("cpu")
NAMES = ("a", "b", "c", "d", "e")
SCHEMA = (
    """<schema name="s">Read. <module name="a">alpha beta</module><module name="b">gamma</module></schema>"""
)
PROMPT = "<prompt><a/><b/> so?</prompt>"


def segment(key: str, size: int) -> Segment:
    """A segment of `size` × 8 bytes."""
    return Segment(key, (1,) * size, torch.zeros(1, 1, size, 1), torch.zeros(1, 1, size, 1))


def test_what_is_held_is_found_by_others_however_large_it_is() -> None:
    tier = MemoryTier(8, CPU)
    with tier.add(segment("a", 9)) as one, tier.add(segment("b", 9)):
        other = tier.acquire("a")
        assert other is not None
        assert other.segment is one.segment
        other.release()
        assert tier.keys() == {"a", "b"}
    assert (tier.keys(), tier.bytes) == (set(), 0)


def test_the_least_recently_used_goes_first() -> None:
    tier = MemoryTier(24, CPU)
    for name in "abc":
        tier.add(segment(name, 1)).release()
    again = tier.acquire("a")
    assert again is not None
    again.release()
    tier.add(segment("d", 1)).release()
    assert tier.keys() == {"a", "c", "d"}


def test_releasing_twice_releases_once() -> None:
    tier = MemoryTier(0, CPU)
    first, second = tier.add(segment("a", 1)), tier.acquire("a")
    assert second is not None
    first.release()
    first.release()
    assert tier.keys() == {"a"}
    second.release()
    assert tier.keys() == set()


@given(
    budget=st.integers(0, 60),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["add", "acquire", "release", "drop", "clear"]),
            st.integers(0, len(NAMES) - 1),
            st.integers(1, 4),
        ),
        max_size=60,
    ),
)
def test_drawn_uses_never_exceed_the_budget_but_by_what_is_held_and_never_evict_that(
    budget: int, steps: list[tuple[str, int, int]]
) -> None:
    tier = MemoryTier(budget, CPU)
    handles: list[Handle] = []
    findable: dict[str, Segment] = {}  # of what is held
    for what, number, size in steps:
        name = NAMES[number]
        if what == "add":
            handles.append(tier.add(segment(name, size)))
            findable[name] = handles[-1].segment
        elif what == "acquire" and (found := tier.acquire(name)) is not None:
            handles.append(found)
            assert findable.get(name, found.segment) is found.segment
            findable[name] = found.segment
        elif what == "release" and handles:
            handles.pop(number % len(handles)).release()
        elif what == "drop":
            tier.drop([name])
            findable.pop(name, None)
        elif what == "clear":
            tier.clear()
            findable.clear()
        held = {id(handle.segment): handle.segment for handle in handles}
        findable = {key: one for key, one in findable.items() if id(one) in held}
        taken = sum(one.nbytes for one in held.values())
        assert taken <= tier.bytes <= max(budget, taken)
        for key, one in findable.items():
            with _acquired(tier, key) as again:
                assert again.segment is one
    for handle in handles:
        handle.release()
    assert tier.bytes <= budget
    tier.clear()
    assert (tier.keys(), tier.bytes) == (set(), 0)


def _acquired(tier: MemoryTier, key: str) -> Handle:
    found = tier.acquire(key)
    assert found is not None, f"{key} is held and was evicted"
    return found


def test_many_threads_leave_nothing_held() -> None:
    tier = MemoryTier(40, CPU)
    faults: list[BaseException] = []

    def use(seed: int) -> None:
        try:
            for step in range(300):
                name = NAMES[(seed * 7 + step * step) % len(NAMES)]
                with tier.acquire(name) or tier.add(segment(name, 1 + step % 3)) as handle:
                    assert handle.segment.key == name
                if step % 50 == seed:
                    tier.drop([name])
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert faults == []
    assert tier.bytes <= 40
    tier.clear()
    assert tier.bytes == 0


def test_a_handle_that_the_collector_releases_inside_an_eviction_is_taken_back() -> None:
    class Releasing(Segment):
        """Releases another segment while the tier counts this one's bytes, as the collector may."""

        @property
        def nbytes(self) -> int:
            handle.release()
            return super().nbytes

    tier = MemoryTier(8, CPU)
    handle = tier.add(segment("a", 1))
    plain = segment("b", 1)
    tier.add(Releasing("b", plain.token_ids, plain.keys, plain.values)).release()
    assert tier.keys() == {"b"}
    assert tier.bytes == 8


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path), memory=0)


def until(events: Any, kind: type) -> None:
    while not isinstance(next(events), kind):
        pass


@pytest.mark.parametrize("kind", [Working, FirstToken])
@pytest.mark.parametrize("end", ["close", "forget", "fail"])
def test_an_answer_that_is_abandoned_lets_go_of_its_segments(engine: Engine, kind: type, end: str) -> None:
    prompt = engine.schema(schema_of(SCHEMA)).prompt(prompt_of(PROMPT))
    events = prompt.stream(RunSettings(max_new_tokens=3), mode="cached")
    until(events, kind)
    assert engine.store.holds.keys()
    assert kind is Working or engine.memory_tier.bytes > 0
    if end == "close":
        events.close()  # type: ignore[attr-defined]
    elif end == "fail":
        with pytest.raises(ZeroDivisionError):
            events.throw(ZeroDivisionError())  # type: ignore[attr-defined]
    else:
        del events
        gc.collect()
    assert engine.memory_tier.bytes == 0
    engine.store.finish_writing()
    assert engine.store.holds.keys() == set()
    engine.close()


@pytest.mark.parametrize("what", ["answer", "fidelity", "encode", "reading"])
def test_whatever_reads_segments_lets_go_of_them_at_its_end(engine: Engine, what: str) -> None:
    schema = engine.schema(schema_of(SCHEMA))
    prompt, settings = schema.prompt(prompt_of(PROMPT)), RunSettings(max_new_tokens=2)
    actions: dict[str, Callable[[], object]] = {
        "answer": lambda: prompt.answer(settings),
        "fidelity": lambda: prompt.fidelity(settings),
        "encode": schema.encode,
        "reading": lambda: prompt.reading([1, 2], settings, "cached"),
    }
    for _ in range(2):  # what is computed, and what is read
        actions[what]()
        assert engine.memory_tier.bytes == 0
        engine.store.finish_writing()
        assert engine.store.holds.keys() == set()
    engine.close()


def test_two_answers_that_go_on_at_once_share_what_they_hold(engine: Engine) -> None:
    schema = engine.schema(schema_of(SCHEMA))
    events = [
        schema.prompt(prompt_of(PROMPT)).stream(RunSettings(max_new_tokens=3), mode="cached")
        for _ in range(2)
    ]
    until(events[0], FirstToken)
    taken = engine.memory_tier.bytes
    until(events[1], FirstToken)
    assert engine.memory_tier.bytes == taken > 0
    list(events[0])
    assert engine.memory_tier.bytes == taken, "the other one still reads them"
    list(events[1])
    assert engine.memory_tier.bytes == 0
    engine.close()


def test_keys_are_held_until_the_last_user_releases_them() -> None:
    holds = Holds()
    with holds.hold(["a", "b"]) as one:
        other = holds.hold(iter(["b", "c"]))
        assert holds.keys() == {"a", "b", "c"}
        one.release()
        assert holds.keys() == {"b", "c"}
    assert holds.keys() == {"b", "c"}, "a second release takes nothing from others"
    other.release()
    assert holds.keys() == set()
