"""Marks: what is written to disk of a conversation, how long it is kept, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.base.errors import SettingsError
from engine.base.events import Answer, Finished, FirstToken
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.inference.submission import Mark
from engine.prompt.conversation.messages import Message
from engine.prompt.trail import CHUNK
from engine.store import Store
from tests.drawing import EVERY, each
from tests.engine.batch.test_conversations import FAMILIES, LONG, conversations, engine_in, said
from tests.engine.cases import apart, model_of

SETTINGS = RunSettings(max_new_tokens=4)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with engine_in(tmp_path) as opened:
        yield opened


def marked(
    engine: Engine, messages: list[Message], *blocks: int, seconds: float | None = None, **changes: Any
) -> Answer:
    """The answer of a conversation with marks behind some of its blocks."""
    prompt = engine.conversation(messages)
    borders = prompt.borders(SETTINGS)
    marks = [Mark(borders[block], seconds) for block in blocks]
    return engine.submit(prompt, SETTINGS, marks=marks, **changes).result()


def usage(answer: Answer) -> tuple[int, int, int]:
    """What was read, what was written, and the rest of the prompt."""
    read, written = answer.tokens["read"], answer.tokens["written"]
    rest = answer.tokens["prompt"] - read - written
    assert min(read, written, rest) >= 0
    return read, written, rest


def border(engine: Engine, messages: list[Message], block: int = -1) -> int:
    return engine.conversation(messages).borders(SETTINGS)[block]


TURNS = [said("system", LONG, "Be brief."), said("user", LONG, "Well?")]


def test_what_is_marked_is_written_once_and_then_read(engine: Engine) -> None:
    length = border(engine, TURNS)
    assert length % CHUNK
    first, second = (marked(engine, TURNS, -1) for _ in range(2))
    assert usage(first)[:2] == (0, length)
    assert usage(second)[:2] == (length, 0)
    assert first.token_ids == second.token_ids
    assert apart(first.first_logits, second.first_logits) <= 1e-4  # type: ignore[arg-type]


def test_what_computing_had_taken_is_known_of_a_prefix_in_memory_and_on_disk(tmp_path: Path) -> None:
    with engine_in(tmp_path) as engine:
        first, second = (marked(engine, TURNS, -1) for _ in range(2))
        assert first.read_ms == 0
        took = second.read_ms
        assert took is not None
        assert 0 < took <= first.ttft_ms
        engine.store.finish_writing()
        rows = engine.store.segments()
        assert all(row["seconds"] > 0 for row in rows), "by which the budget lets them go"
        assert sum(row["seconds"] for row in rows) * 1000 == pytest.approx(took, rel=0.01)
    with engine_in(tmp_path) as engine:
        assert marked(engine, TURNS).read_ms == pytest.approx(took, rel=0.01)
    with engine_in(tmp_path) as engine:
        with engine.store.index.writing() as connection:
            connection.execute("update segments set seconds = 0 where key = ?", [rows[0]["key"]])
        assert marked(engine, TURNS).read_ms is None, "as an earlier version has written them"


def test_what_was_in_memory_only_is_read_and_written_all_the_same(tmp_path: Path) -> None:
    with engine_in(tmp_path) as engine:
        assert usage(marked(engine, TURNS))[:2] == (0, 0)
        assert engine.store.stats().segments == 0
        assert usage(marked(engine, TURNS, -1))[:2] == (border(engine, TURNS), 0)
    with engine_in(tmp_path) as engine:
        assert usage(marked(engine, TURNS))[0] == border(engine, TURNS)


def test_what_went_from_the_disk_is_written_again_from_memory(engine: Engine) -> None:
    marked(engine, TURNS, -1)
    segments = engine.store.stats().segments
    engine.store.remove([one["key"] for one in engine.store.segments()])
    assert usage(marked(engine, TURNS, -1))[:2] == (border(engine, TURNS), 0)
    assert engine.store.stats().segments == segments > 0


def test_the_first_token_tells_what_the_answer_tells(engine: Engine) -> None:
    prompt = engine.conversation(TURNS)
    ticket = engine.submit(prompt, SETTINGS, marks=[Mark(prompt.borders()[2], 60.0)])
    told = {type(event): event for event in ticket.events()}
    first, last = told[FirstToken], told[Finished]
    assert isinstance(first, FirstToken)
    assert isinstance(last, Finished)
    for count in ("read", "written", "prompt"):
        assert first.tokens[count] == last.answer.tokens[count]


def test_a_prompt_is_warmed_without_an_answer(engine: Engine) -> None:
    prompt = engine.conversation(TURNS)
    events = list(engine.submit(prompt, SETTINGS, marks=[Mark(prompt.borders()[-1])], warm=True).events())
    assert not any(isinstance(event, FirstToken) for event in events)
    assert isinstance(events[-1], Finished)
    answer = events[-1].answer
    assert (answer.text, answer.token_ids, answer.stopped, answer.tokens["generated"]) == (
        "",
        (),
        "length",
        0,
    )
    assert usage(answer)[:2] == (0, border(engine, TURNS))
    assert engine.store.stats().segments > 0
    after = marked(engine, TURNS)
    assert usage(after)[0] == border(engine, TURNS)
    assert after.token_ids == prompt.answer(SETTINGS, mode="uncached").token_ids


def test_warming_works_one_by_one_and_on_either_side(tmp_path: Path) -> None:
    with engine_in(tmp_path, deterministic=True) as engine:
        for mode in ("cached", "uncached"):
            answer = marked(engine, TURNS, -1, warm=True, mode=mode)
            assert (answer.text, answer.stopped, answer.tokens["generated"]) == ("", "length", 0)
            assert usage(answer)[:2] == (0, 0)


@pytest.mark.parametrize("changes", [{"mode": "uncached"}, {"repair": "link:2"}, {"deterministic": True}])
def test_where_there_is_no_tree_marks_are_told_to_say_nothing(tmp_path: Path, changes: Any) -> None:
    with engine_in(tmp_path, deterministic=changes.pop("deterministic", False)) as engine:
        for _ in range(2):
            answer = marked(engine, TURNS, -1, **changes)
            assert usage(answer)[:2] == (0, 0)
            assert "No marked prefix was written" in answer.warnings[0]
            assert engine.store.stats().segments == 0


def test_a_store_that_keeps_nothing_is_told(engine: Engine) -> None:
    engine.store.set_budget(0)
    first, second = (marked(engine, TURNS, -1) for _ in range(2))
    assert usage(first)[:2] == (0, 0)
    assert "has a budget of 0" in first.warnings[0]
    assert usage(second)[:2] == (border(engine, TURNS), 0)


class Kept:
    """What a store is told to keep, and for how long; in place of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kept: dict[str, float] = {}
        self.renewed: set[str] = set()
        monkeypatch.setattr(Store, "keep", lambda _, names, seconds: self._keep(names, seconds))
        monkeypatch.setattr(Store, "renew", lambda _, names: self.renewed.update(names))

    def _keep(self, names: Iterable[str], seconds: float) -> None:
        for name in names:
            assert name not in self.kept
            self.kept[name] = seconds


def test_what_is_marked_is_kept_as_long_as_the_longest_mark_over_it_says(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Kept(monkeypatch)
    prompt = engine.conversation(TURNS)
    ends = prompt.borders()
    marks = [Mark(ends[2]), Mark(ends[0], 3600.0), Mark(ends[1], 300.0), Mark(ends[0], 5.0)]
    engine.submit(prompt, SETTINGS, marks=marks).result()
    engine.store.finish_writing()
    stored = {one["key"]: one["tokens"] for one in engine.store.segments()}
    told: dict[float, int] = {}
    for name, seconds in store.kept.items():
        told[seconds] = told.get(seconds, 0) + stored[name]
    assert told == {3600.0: ends[0], 300.0: ends[1] - ends[0]}
    assert sum(stored.values()) == ends[2]
    engine.submit(engine.conversation([*TURNS[:1], said("user", "?")]), SETTINGS).result()
    engine.store.finish_writing()
    assert set(store.kept) <= store.renewed, "reading renews, without a mark as well"


def test_what_is_kept_stays_whatever_the_budget_says(tmp_path: Path) -> None:
    with engine_in(tmp_path) as engine:
        marked(engine, TURNS, 1, seconds=3600.0)
        marked(engine, TURNS, 2)
        stored = {one["key"]: one["tokens"] for one in engine.store.segments()}
        kept = engine.store.kept(stored)
        assert sum(stored[key] for key in kept) == border(engine, TURNS, 1)
        engine.store.prune(max_bytes=0)
    with engine_in(tmp_path) as engine:
        assert usage(marked(engine, TURNS))[0] == border(engine, TURNS, 1)
        engine.store.finish_writing()
        again = engine.store.kept(kept)
        assert all(again[key].until > one.until for key, one in kept.items()), "reading renews"


@pytest.mark.parametrize(
    ("mark", "told"),
    [
        (Mark(7), "position 7, which is not a block boundary"),
        (Mark(-1), "position -1, which is not a block boundary"),
        (Mark(0, -2.0), "mark has -2.0 seconds"),
        (Mark(0, float("nan")), "mark has nan seconds"),
        (5, "marks contains 5"),
    ],
)
def test_marks_that_say_nothing_are_refused(engine: Engine, mark: Any, told: str) -> None:
    prompt = engine.conversation([said("user", "", "Hi")])
    with pytest.raises(SettingsError, match=told):
        engine.submit(prompt, SETTINGS, marks=[mark])


def test_a_prompt_over_a_schema_has_no_borders(engine: Engine) -> None:
    prompt = engine.schema('<schema name="s">Hi</schema>').prompt("<prompt>So?</prompt>")
    with pytest.raises(SettingsError, match="only conversations have them"):
        engine.submit(prompt, SETTINGS, marks=[Mark(2)])


@pytest.mark.parametrize("family", each(FAMILIES, "gemma2", "gpt2"))
@settings(max_examples=5 if EVERY else 3, suppress_health_check=[HealthCheck.too_slow])
@given(grown=conversations(), draws=st.data(), memory=st.sampled_from([4 << 30, 200_000, 0]))
def test_drawn_marks_add_up(
    family: str,
    grown: list[list[Message]],
    draws: st.DataObject,
    memory: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("store")
    known = 0
    for turns in grown:
        with Engine(model_of(family), Store.open(folder), memory) as engine:
            ends = engine.conversation(turns).borders(SETTINGS)
            blocks = draws.draw(st.sets(st.integers(0, len(ends) - 1), max_size=4), label="marks")
            last = max((ends[block] for block in blocks), default=0)
            answer = marked(engine, turns, *blocks)
            assert usage(answer)[:2] == (known, max(0, last - known))
            known = max(known, last)
            assert usage(marked(engine, turns, *blocks))[:2] >= (known, 0)
            plain = engine.conversation(turns).answer(SETTINGS, mode="uncached")
            assert plain.token_ids == answer.token_ids
