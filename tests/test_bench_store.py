"""`pml bench store`: kills hit writes and say so, and what it prints are words."""

from __future__ import annotations

import ctypes
import json
import math
from pathlib import Path

import pytest
import torch

from app.cli.bench.store import store_words
from benchmarks import store as measurement
from benchmarks.kills import KINDS, ORIGIN, WORDS, Phase, Told, kills, segment, work
from benchmarks.tasks import Task
from engine.base.errors import PromptCacheError
from engine.model.loading import load
from engine.store import Store
from engine.store.blobs.codec import SCHEMES
from tests.engine.tiny import save_tiny


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


def test_kills_land_in_writes(tmp_path: Path) -> None:
    found = kills(tmp_path, 12)
    assert found["kills"] == found["right"] == 12
    assert sum(found[words] for words in WORDS.values()) == 12
    assert found["killed_opening"] == 0
    writing = ("killed_writing_a_file", "killed_entering_a_row", "killed_removing")
    assert sum(found[words] for words in writing) >= 3
    assert found["half_written"] <= found["killed_writing_a_file"]
    assert found["segments_found"] > 0


def test_a_model_that_reads_none_of_the_questions_is_refused_at_once(tmp_path: Path) -> None:
    """It used to fail after minutes of the other trials, whose results were lost."""
    started: list[str] = []
    folder = save_tiny(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 512}))
    with pytest.raises(PromptCacheError, match="none of the 60 questions"):
        measurement.run(
            str(folder),
            kills=0,
            damages=0,
            seconds=1,
            progress=lambda _done, _total, what: started.append(what),
        )
    assert started == []


def test_compression_is_measured_over_whole_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "new_tokens", 12)  # each scheme answers six times
    model = load("demo")
    tasks = measurement.longest_questions(model, 1)
    found = {scheme: measurement.compression(model, tmp_path / scheme, scheme, tasks) for scheme in SCHEMES}
    assert found["plain"]["kl_worst"] == 0
    assert found["plain"]["same_answer"] == found["plain"]["answer_agreement"] == 1
    assert 0 < found["int8"]["kl_answer"] < found["int4"]["kl_answer"] < found["int4"]["kl_worst"]
    assert found["int8"]["answer_tokens"] > 1
    words = store_words({"results": [{"name": "compression int8", **found["int8"]}], "machine": {"cores": 2}})
    assert words.startswith("int8 against plain: 0.")
    assert "_" not in words


def test_every_trial_is_told_in_words() -> None:
    figures = {
        "kills": {"kills": 3, "right": 2, "half_written": 1, **dict.fromkeys(WORDS.values(), 1)},
        "damages": {"damages": 9, "served_wrong": 0, "noticed": 9, "mended": 8},
        "processes": {"seconds": 6, "failed": 0, "corrupt": 0, "clean": True},
        "full disk": {"tried": 3, "answers": 3, "opened_read_only": 1, "freed": 1, "clean": 1},
        "verify": {"seconds_per_gb": 0.2, "bytes_by_theory": 1.0},
        "trace": {"requests": 1500, "cost_by_lru": 0.77},
    }
    results = [{"name": name, **found} for name, found in figures.items()]
    words = store_words({"results": results, "machine": {"cores": 2}})
    assert "3 writers killed: after 2 of them index and files agreed" in words
    assert "a disk without a free block, 3 ways: 3 right answers" in words
    untried = store_words({"results": [{"name": "full disk", "tried": 0}], "machine": {"cores": 2}})
    assert "was not tried" in untried
    assert "writing a file 1, entering a row 1" in words
    assert "9 files damaged: 0 served wrong, 9 noticed, 8 mended" in words
    assert "_" not in words
