"""A model runs on the best device that is here and reproduces it; this machine needs to have none."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from engine.attention.rope import Rotary
from engine.base.errors import ModelError
from engine.checkpoint.synthetic import byte_tokenizer
from engine.model import devices
from engine.model.devices import candidates, first_that_holds
from engine.model.model import Model
from tests.engine.tiny import tiny_network

CPU, MPS = torch.device("cpu"), torch.device("mps")


def having(monkeypatch: pytest.MonkeyPatch, *, cuda: bool = False, mps: bool = False) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cuda", "mps", "names"), [(False, False, ["cpu"]), (True, True, ["cuda"]), (False, True, ["mps", "cpu"])]
)
def test_auto_tries_what_is_here(
    cuda: bool, mps: bool, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    having(monkeypatch, cuda=cuda, mps=mps)
    assert [device.type for device in candidates("auto")] == names


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_asked_for_is_the_only_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    having(monkeypatch)
    with pytest.raises(ModelError, match=f"'{name}' is not available: torch finds no GPU"):
        candidates(name)
    having(monkeypatch, cuda=True, mps=True)
    assert candidates(name) == (torch.device(name),)


def test_an_unknown_device_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ModelError, match="use one of auto, cpu, cuda, mps"):
        candidates("tpu")


def placing(monkeypatch: pytest.MonkeyPatch, *faults: Exception) -> list[str]:
    """Makes the first probes fail; returns the list in which the devices are noted."""
    asked, left = list[str](), list(faults)

    def there(module: Any, device: torch.device) -> Any:
        asked.append(device.type)
        return module

    class Failing(Model):
        def __init__(self, *args: Any) -> None:
            if left:
                raise left.pop(0)
            super().__init__(*args)

    network = tiny_network()
    monkeypatch.setattr(type(network), "to", there)
    monkeypatch.setattr(devices, "Model", Failing)
    return asked


@pytest.mark.parametrize(
    "fault",
    [
        NotImplementedError("no such operation"),
        TypeError("no fp64 here"),
        ModelError("the probe does not hold"),
    ],
)
def test_a_model_that_one_device_does_not_run_is_tried_on_the_next(
    fault: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = placing(monkeypatch, fault)
    network = tiny_network().bfloat16()
    with caplog.at_level(logging.WARNING):
        model = first_that_holds("tiny", network, byte_tokenizer(), "f", (MPS, CPU), None)
    assert asked == ["mps", "cpu"]
    assert f"does not run on mps ({fault})" in caplog.text
    assert model.dtype == "fp32"  # what suits the CPU, and not the device before


def test_a_device_that_holds_is_the_last_that_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = placing(monkeypatch)
    network = tiny_network().bfloat16()
    model = first_that_holds("tiny", network, byte_tokenizer(), "f", (MPS, CPU), None)
    assert (asked, model.dtype) == (["mps"], "bf16")


def test_a_device_that_was_asked_for_and_lacks_an_operation_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    placing(monkeypatch, NotImplementedError("no such operation"))
    with pytest.raises(ModelError, match="does not run on mps: no such operation Use --device cpu"):
        first_that_holds("tiny", tiny_network(), byte_tokenizer(), "f", (MPS,), None)


def test_a_mistake_of_the_engine_on_the_last_device_is_shown_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    placing(monkeypatch, TypeError("a mistake"))
    with pytest.raises(TypeError, match="a mistake"):
        first_that_holds("tiny", tiny_network(), byte_tokenizer(), "f", (CPU,), None)


def test_a_model_without_room_on_its_device_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    network = tiny_network()

    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(type(network), "to", full)
    with pytest.raises(ModelError, match="cannot be moved to cpu: out of memory"):
        first_that_holds("tiny", network, byte_tokenizer(), "f", (CPU,), None)


def test_angles_are_taken_where_there_is_fp64_and_arrive_where_the_keys_are() -> None:
    """`meta` computes nothing, and so would not give the cosines of the processor's."""
    rotary = Rotary(torch.tensor([1.0, 0.1]))
    cosine, sine = rotary.angles([3], torch.device("meta"))
    assert (cosine.device.type, sine.device.type) == ("meta", "meta")
    assert (cosine.dtype, sine.dtype) == (torch.float32, torch.float32)
    assert rotary.inverse_frequency.device == CPU
    moved = rotary.shift(torch.ones(2, 4, device="meta"), 3)
    assert (moved.device.type, moved.shape) == ("meta", (2, 4))


@pytest.mark.parametrize(
    ("parameters", "own", "units", "memory", "found"),
    [
        (2 * 10**9, torch.bfloat16, True, 10**12, torch.bfloat16),
        (2 * 10**9, torch.float16, True, 10**12, torch.bfloat16),
        (2 * 10**9, torch.bfloat16, False, 16 * 10**9, torch.float32),
        (2 * 10**9, torch.float16, False, 16 * 10**9, torch.float32),
        (2 * 10**9, torch.bfloat16, False, 15 * 10**9, torch.bfloat16),
        (2 * 10**9, torch.bfloat16, False, 0, torch.bfloat16),
        (2 * 10**9, torch.float32, True, 0, torch.float32),
        (10**8, torch.bfloat16, True, 0, torch.float32),
    ],
)
def test_the_number_format_is_the_fast_one_that_has_room(
    parameters: int,
    own: torch.dtype,
    units: bool,
    memory: int,
    found: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "multiplies_bf16", lambda: units)
    monkeypatch.setattr(devices, "_memory", lambda: memory)
    assert devices.number_format(None, CPU, own, parameters) == found
    assert devices.number_format(None, MPS, own, parameters) == own
    assert devices.number_format(torch.float16, CPU, own, parameters) == torch.float16
    four_bits = found if parameters < 10**9 else torch.bfloat16
    assert devices.held_format(None, CPU, own, parameters, True) == four_bits
