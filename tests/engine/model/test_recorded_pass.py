"""Decoding passes that a GPU replays: the numbers of a pass that is computed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.base.segment import Placement
from engine.kv_cache import recorded_pass, recorded_prefill
from engine.kv_cache.protocol import Rowwise
from engine.kv_cache.recorded_pass import FIRST, Recorder
from engine.kv_cache.recorded_prefill import RecordedPrefill
from engine.model.model import Model
from tests.drawing import each
from tests.engine.cases import apart, encoded
from tests.engine.tiny import SEGMENTS, tiny_model

STEPS = 12


def run_again(run: Callable[[], torch.Tensor]) -> tuple[Callable[[], torch.Tensor], torch.Tensor]:
    """What a GPU records, as a second run."""
    return run, run().clone()


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setattr(recorded_pass, "recorded", run_again)
    return Recorder()


def decoded(model: Model, idle: int = 0) -> torch.Tensor:
    """Logits of tokens behind two modules, one of them moved and with a hidden token, in windows of 9."""
    segments = [encoded(model, f"k{first}", range(first, first + 20)) for first in (40, 70)]
    placed = [Placement(segments[0], 0, 20, 20, (3,)), Placement(segments[1], 0, 20, 0)]
    kv = model.network.kv_cache(placed, 2 + STEPS + 1 + idle)
    model.network.forward([9, 11], [23, 40], kv)
    kv.fold(kv.placements)
    found = []
    for step in range(STEPS):
        rows = [100 + step] * (1 + idle)
        at = list(range(41 + step, 41 + step + len(rows)))
        found.append(model.network.forward(rows, at, kv, len(rows), rowwise=Rowwise(idle))[:1])
        kv.truncate(kv.length - idle)
    return torch.cat(found)


@pytest.mark.parametrize("idle", [0, 1])
@pytest.mark.parametrize("family", each(SEGMENTS, "llama-gqa", "mistral-swa", "gemma2", "gpt-oss"))
def test_a_recorded_pass_has_the_logits_of_a_computed_one(family: str, idle: int, recorder: Recorder) -> None:
    model = tiny_model(family)
    wanted = decoded(model, idle)
    model.network.recorder = recorder
    assert apart(decoded(model, idle), wanted) <= 1e-4
    assert recorder.replays == STEPS - FIRST


def test_memory_that_moves_is_recorded_anew(recorder: Recorder) -> None:
    model = tiny_model()
    model.network.recorder = recorder
    kv = model.network.kv_cache((), 2 * STEPS)
    plain = model.network.kv_cache((), 2 * STEPS)
    other = tiny_model().network
    for step in range(2 * STEPS):
        if step == STEPS:
            kv.move_out()  # type: ignore[attr-defined]
        found = model.network.forward([30 + step], [step], kv, 1, rowwise=Rowwise())
        assert apart(found, other.forward([30 + step], [step], plain, 1, rowwise=Rowwise())) <= 1e-4
    assert recorder.replays == 2 * (STEPS - FIRST) - 1  # the first pass of all makes the memory


def test_a_network_that_cannot_be_recorded_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nat …")

    model = tiny_model()
    wanted = decoded(model)
    monkeypatch.setattr(recorded_pass, "recorded", refused)
    model.network.recorder = Recorder()
    assert torch.equal(decoded(model), wanted)
    assert model.network.recorder.fault == "operation not permitted when stream is capturing"
    assert not model.network.recorder.replays


def first_logits(model: Model) -> list[torch.Tensor]:
    """Logits of first and second tokens of prompts of several shapes over three modules in windows of 9."""
    one, two, three = (encoded(model, f"p{first}", range(first, first + 20)) for first in (40, 70, 100))
    shapes: list[tuple[list[Placement], list[int]]] = [
        ([Placement(one, 0, 20, 0), Placement(two, 0, 20, 23, (4, 5))], [20, 22, 27, 43, 44]),
        ([Placement(one, 0, 20, 0), Placement(two, 0, 20, 23, (4, 5))], [27, 28, 50]),
        ([Placement(one, 0, 20, 0), Placement(three, 2, 20, 30)], [*range(20, 30), 48]),
        ([Placement(two, 0, 20, 40)], [2, 60, 61]),
        (
            [Placement(one, 0, 20, 0), Placement(two, 0, 20, 20), Placement(three, 0, 20, 40)],
            [*range(60, 90)],
        ),
        ([Placement(one, 0, 20, 0), Placement(two, 0, 20, 23, (4, 5))], [20, 22, 27, 43, 44]),
    ]
    found = []
    for placed, at in shapes:
        kv = model.network.kv_cache(placed, len(at) + 1)
        found.append(model.network.forward([7 + place for place in at], at, kv))
        found.append(model.network.forward([9], [at[-1] + 1], kv))
        found += [states.clone() for states in kv.tail]
    return found


@pytest.mark.parametrize("family", each(SEGMENTS, "llama-gqa", "mistral-swa", "gemma2", "gpt-oss"))
def test_a_recorded_first_pass_is_a_computed_one(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(family)
    wanted = first_logits(model)
    monkeypatch.setattr(recorded_pass, "recorded", run_again)
    monkeypatch.setattr(recorded_prefill, "FEWEST", 1)
    monkeypatch.setattr(recorded_prefill, "free_bytes", lambda _: 1 << 40)
    model.network.prefills = prefills = RecordedPrefill(model.rotaries)
    for found, computed in zip(first_logits(model), wanted, strict=True):
        assert apart(found, computed) <= 1e-4
    assert (prefills.replays, prefills.fault) == (6, "")
