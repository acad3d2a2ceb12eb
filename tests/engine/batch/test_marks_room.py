"""Marks where the disk or the budget has no room: what is told as written is on disk afterwards."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.base.events import Answer, FirstToken
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.inference.submission import Mark
from engine.prompt.conversation.messages import Message
from engine.prompt.conversation.named_blocks import Block, Named
from engine.store.blobs.local_files import LocalBlobs
from engine.store.write_behind import Behind
from tests.drawing import EVERY, each
from tests.engine.batch.test_conversations import LONG, engine_in, said

SETTINGS = RunSettings(max_new_tokens=4)
FIRST = [said("system", LONG, "Be brief."), said("user", LONG, "Well?")]
SECOND = [said("system", "Another one. " + LONG), said("user", LONG, "So?")]


def told(
    engine: Engine, messages: list[Message], seconds: float | None = 3600.0
) -> tuple[FirstToken, Answer]:
    """What the first token and the answer tell, of a conversation with a mark behind each block."""
    prompt = engine.conversation(messages)
    marks = [Mark(border, seconds) for border in dict.fromkeys(prompt.borders(SETTINGS))]
    ticket = engine.submit(prompt, SETTINGS, marks=marks)
    first = next(event for event in ticket.events() if isinstance(event, FirstToken))
    return first, ticket.result()


def stored(engine: Engine) -> int:
    """The tokens that are on disk."""
    engine.store.finish_writing()
    return sum(row["tokens"] for row in engine.store.segments())


def test_beside_what_is_kept_there_is_room_or_it_is_said(tmp_path: Path) -> None:
    with engine_in(tmp_path) as engine:
        _, before = told(engine, FIRST)
        assert before.marked == before.tokens["written"] == stored(engine) > 0
        assert before.unmarked == ""
        engine.store.set_budget(engine.store.stats().bytes + 1000)
        first, after = told(engine, SECOND)
        assert (first.tokens["written"], after.tokens["written"], after.marked) == (0, 0, 0)
        assert "the store's budget of" in after.unmarked
        assert after.unmarked in after.warnings
        assert stored(engine) == before.marked


def test_the_longest_mark_is_written_that_there_is_room_for(tmp_path: Path) -> None:
    with engine_in(tmp_path) as engine:
        borders = engine.conversation(SECOND).borders(SETTINGS)
        size = engine.model.bytes_per_token * borders[0]
        engine.store.set_budget(size + 60_000)
        first, answer = told(engine, SECOND)
        assert answer.marked in borders[:-1]
        assert first.tokens["written"] == answer.tokens["written"] == answer.marked == stored(engine)
        assert answer.unmarked


@pytest.mark.parametrize("left", [0, 5000])
def test_a_disk_without_room_is_known_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    with engine_in(tmp_path) as engine:
        monkeypatch.setattr(LocalBlobs, "free", property(lambda _: left))
        first, answer = told(engine, FIRST)
        assert first.tokens["written"] == answer.tokens["written"] == stored(engine) == 0
        assert "the disk has room for" in answer.unmarked


def test_what_fails_to_be_written_before_the_end_is_not_told_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = LocalBlobs.write, []

    def second_fails(blobs: LocalBlobs, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(blobs, *arguments)

    monkeypatch.setattr(LocalBlobs, "write", second_fails)
    monkeypatch.setattr(Behind, "put", lambda _self, work, _key="", _size=0: work())
    with engine_in(tmp_path) as engine:
        _, answer = told(engine, FIRST)
        assert len(calls) > 2
        lengths = [row["tokens"] for row in engine.store.segments()]
        assert 0 < answer.tokens["written"] == answer.marked < sum(lengths)
        assert "could not be fully stored" in answer.unmarked


@pytest.mark.parametrize("share", each([0.2, 0.5, 0.65, 0.8, 0.95, 1.2], 0.65, 1.2))
@pytest.mark.parametrize("first", ["block", "text"])
def test_beside_named_blocks_what_is_told_as_written_is_there_after_a_restart(
    tmp_path: Path, share: float, first: str
) -> None:
    block, text = Block(f"A block. {LONG * 2}", Named("a")), Block(f"A text. {LONG * 2}")
    turns = [Message("user", (block, text) if first == "block" else (text, block)), said("assistant", "Yes.")]
    turns.append(said("user", "So?"))
    with engine_in(tmp_path / "whole") as engine:
        told(engine, turns)
        engine.store.finish_writing()
        whole = engine.store.stats().bytes
    for _ in range(2):
        with engine_in(tmp_path / "store") as engine:
            engine.store.set_budget(int(whole * share))
            kept = told(engine, turns)[1]
            for _ in range(2):  # the second time the block is in memory
                answer = told(engine, turns)[1]
                assert answer.marked <= kept.marked or not kept.unmarked
            written = kept.tokens["written"] + kept.tokens["read"]
        with engine_in(tmp_path / "store") as engine:
            found = engine.submit(engine.conversation(turns), SETTINGS).result().tokens["read"]
            assert found >= max(written, kept.marked - 16), "but for the opening of a turn before a block"
            assert bool(kept.unmarked) == (kept.marked < max(engine.conversation(turns).borders(SETTINGS)))


def test_what_was_there_needs_no_room(tmp_path: Path) -> None:
    with engine_in(tmp_path) as engine:
        _, before = told(engine, FIRST)
        stored(engine)
        engine.store.set_budget(engine.store.stats().bytes)
        _, after = told(engine, FIRST)
        assert (after.tokens["written"], after.marked, after.unmarked) == (0, before.marked, "")


@settings(max_examples=15 if EVERY else 6, suppress_health_check=[HealthCheck.too_slow])
@given(
    kibibytes=st.integers(0, 400),
    seconds=st.sampled_from([None, 3600.0]),
    texts=st.lists(st.integers(0, 3), min_size=1, max_size=4),
)
def test_what_is_told_as_written_is_there(
    kibibytes: int, seconds: float | None, texts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with engine_in(tmp_path_factory.mktemp("store")) as engine:
        engine.store.set_budget(kibibytes << 10)
        for text in texts:
            before = {row["key"] for row in engine.store.segments()}
            first, answer = told(
                engine, [said("system", f"Number {text}. {LONG}"), said("user", LONG)], seconds
            )
            engine.store.finish_writing()
            new = [row["tokens"] for row in engine.store.segments() if row["key"] not in before]
            assert first.tokens["written"] == answer.tokens["written"] <= sum(new)
            assert engine.store.stats().bytes <= kibibytes << 10
            assert (
                not (seconds and answer.marked)
                or sum(row["tokens"] for row in engine.store.segments()) >= answer.marked
            )
