"""`pml bench ttft`: where each time begins, and that no way is favoured. No times."""

from __future__ import annotations

import os
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from benchmarks import page_cache, ttft
from benchmarks.answers import Answers
from benchmarks.forward import Forward
from benchmarks.turns import Way, orders, ratio, timed
from engine.base.errors import PromptCacheError
from engine.model.loading import load
from engine.model.model import Model
from tests.engine.tiny import save_tiny

TEXT = ["uncached", "cached", "cached_with_schema", "files_later", "files_first", "files_cold"]
REPAIRED = ["cached link:8", "cached blend:0.15", "cached query:0.15", "cached impact:0.15"]
TOKENS = [f"tokens_{name}" for name in ("uncached", "cached", "copy", "concat", "floor")]


@pytest.fixture(autouse=True)
def files_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the rows are the same where the folder of the tests is in memory."""
    monkeypatch.setattr(page_cache, "held", lambda _: 0.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(str(save_tiny(tmp_path_factory.mktemp("model"))))


@pytest.mark.parametrize("count", [1, 2, 5, 6, 14])
def test_orders_favour_no_place_and_no_neighbour(count: int) -> None:
    rounds = orders(count, 2 * count, seed=3)
    assert all(sorted(order) == list(range(count)) for order in rounds)
    places = Counter((way, place) for order in rounds for place, way in enumerate(order))
    assert len(set(places.values())) == 1
    followers = Counter(pair for order in rounds for pair in pairwise(order))
    assert len(followers) == count * (count - 1)
    assert len(set(followers.values())) <= 1
    assert orders(count, 2 * count, seed=3) == rounds
    if count > 4:
        assert orders(count, 2 * count, seed=4) != rounds


def test_every_sample_follows_a_run_of_the_same_way() -> None:
    log: list[str] = []

    def way(name: str) -> Way:
        return Way(name, lambda: float(len(log.append(name) or log)), lambda: log.append(f"prepare {name}"))

    samples = timed([way("a"), way("b"), way("c")], 4, 0, lambda _: None)
    assert {name: len(values) for name, values in samples.items()} == {"a": 4, "b": 4, "c": 4}
    assert len(log) == 4 * 3 * 4
    for start in range(0, len(log), 4):
        name = log[start + 1]
        assert log[start : start + 4] == [f"prepare {name}", name] * 2
    assert sorted(v for values in samples.values() for v in values) == list(range(4, 49, 4))


def test_a_ratio_is_of_medians_with_the_rounds_beside_it() -> None:
    samples = {"a": [10.0, 20.0, 60.0], "b": [1.0, 4.0, 2.0]}
    assert ratio(samples, "a", "b") == {"ratio": 10.0, "low": 5.0, "high": 30.0}


def test_a_report_has_every_row_and_one_value_for_each_ratio(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "model")
    report = ttft.run(str(folder), cached=96, modules=3, new=7, repeats=2)
    assert [result["name"] for result in report["results"]] == [*TEXT, *REPAIRED, *TOKENS]
    assert all(len(result["samples_ms"]) == 2 for result in report["results"])
    assert set(report["ratios"]) == {f"{over}/{under}" for over, under in ttft.RATIOS}
    assert report["tokens"]["prompt"] == report["tokens"]["from_cache"] + report["tokens"]["computed"]
    assert 90 <= report["tokens"]["from_cache"] <= 105
    assert report["agreement"]["max_difference"] < 1e-3 * report["agreement"]["spread"] + 1e-4
    with pytest.raises(PromptCacheError, match="do not fit"):
        ttft.run(str(folder), cached=10**6)


def test_text_is_read_from_where_each_row_says(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From memory, from files, and computed; checked digests are checked again only as in a new process."""
    answers = Answers(model, tmp_path, cached=64, modules=2, new=5, seed=1, say=lambda _: None)
    try:
        answers.ask("cached")
        assert {use.tier for use in answers.ask("cached").segments} == {"memory"}
        answers.engine_forgets()
        found = answers.ask("cached")
        assert {(use.tier, use.outcome) for use in found.segments} == {("disk", "hit")}
        assert {"parse", "plan", "load", "prefill"} <= set(found.timeline_ms)
        assert found.timeline_ms["parse"] > 0
        damage = next((tmp_path / "files").iterdir())
        data = bytearray(damage.read_bytes())
        data[-1] ^= 1
        damage.write_bytes(bytes(data))
        answers.process_begins()
        assert [use.outcome for use in answers.ask("cached").segments].count("miss") == 1
        with monkeypatch.context() as patch:
            patch.setattr(page_cache, "held", lambda _: 0.06)
            assert {way.name for way in answers.ways()} & {*TEXT} == {*TEXT} - {"files_cold"}
            patch.delattr(os, "posix_fadvise")
            assert {way.name for way in answers.ways()} & {*TEXT} == {*TEXT} - {"files_cold"}
        answers.machine_begins()
        assert {use.tier for use in answers.ask("cached").segments} == {"disk"}
        repaired = answers.ask("cached", "blend:0.15")
        assert repaired.timeline_ms["repair"] > 0
        assert repaired.tokens["choosing"] > 0
    finally:
        answers.close()


def test_ways_to_attend_to_stored_keys_give_the_same_logits(model: Model) -> None:
    forward = Forward(model, 60, 3, 5, 2, lambda _: None)
    cached, copied, fresh = forward.in_place(), forward.copy(), forward.concat()
    assert torch.allclose(cached, copied, atol=1e-4)
    assert torch.equal(copied, fresh)
    assert not torch.allclose(cached, forward.uncached(), atol=1e-4)  # modules do not see one another
