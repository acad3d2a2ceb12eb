"""`store`: kills hit writes, and compression is measured."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path

import pytest
import torch

from benchmarks.quality.tasks import Task
from benchmarks.speed import store as measurement
from benchmarks.speed.kills import KINDS, ORIGIN, WORDS, Phase, Told, kills, segment, work
from engine.model.loading import load
from engine.store import Store
from engine.store.blobs.codec import SCHEMES


class Log:
    """A byte that keeps all its values."""

    def __init__(self) -> None:
        self.seen = [Phase.OPENING]

    @property
    def value(self) -> int:
        return self.seen[-1]

    @value.setter
    def value(self, phase: int) -> None:
        self.seen.append(Phase(phase))


def test_a_writer_tells_where_it_is(tmp_path: Path) -> None:
    """Else a kill that hit a write would count as one between writes, and none would be aimed."""
    store = Told.open(tmp_path)
    assert isinstance(store, Told)
    store.phase = log = Log()
    log.value = Phase.BETWEEN
    made = segment(1)
    store.save(made, ORIGIN)
    assert log.seen[2:] == [Phase.FILE, Phase.ROW, Phase.REMOVING, Phase.ROW, Phase.BETWEEN]
    log.seen = [Phase.BETWEEN]
    assert torch.equal(store.load(made.key, made.token_ids).keys, made.keys)  # type: ignore[union-attr]
    assert log.seen == [Phase.BETWEEN, Phase.READING, Phase.BETWEEN]
    log.seen = [Phase.BETWEEN]
    store.prune(max_bytes=0)
    assert log.seen[1] == Phase.REMOVING
    assert log.seen[-1] == Phase.BETWEEN
    store.close()


def test_writers_leave_a_store_that_others_read(tmp_path: Path) -> None:
    phase = ctypes.c_byte()
    work(str(tmp_path), 0, math.inf, phase, rounds=20)
    assert phase.value == Phase.BETWEEN
    store = Store.open(tmp_path)
    assert 0 < store.stats().segments <= KINDS
    assert store.verify().clean
    store.close()


@pytest.mark.long
def test_kills_land_in_writes(tmp_path: Path) -> None:
    found = kills(tmp_path, 12)
    assert found["writers killed"] == found["correct afterwards"] == 12
    assert sum(found[words] for words in WORDS.values()) == 12
    assert found[WORDS[Phase.OPENING]] == 0
    assert sum(found[WORDS[one]] for one in (Phase.FILE, Phase.ROW, Phase.REMOVING)) >= 3
    assert found["segments found"] > 0


@pytest.mark.long
def test_compression_is_measured_over_whole_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "new_tokens", 12)  # each scheme answers six times
    model = load("demo")
    tasks = measurement.longest_questions(model, 1)
    found = {one: measurement.compressed(model, one, tasks, tmp_path / one) for one in SCHEMES}
    assert found["plain"]["worst KL"] == 0
    assert found["plain"]["same answer"] == found["plain"]["same token"] == 1
    assert 0 < found["int8"]["KL"] < found["int4"]["KL"] < found["int4"]["worst KL"]
    assert found["int8"]["bytes ÷ bf16"] < 0.53
