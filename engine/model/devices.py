"""Where a model runs: the devices to try, and the first on which its probe holds."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import torch

from engine.base.choices import DEVICES
from engine.base.errors import ModelError
from engine.model.model import Model
from engine.model.probe_cache import Memory

log = logging.getLogger(__name__)

ROOMY = 0.5  # of the memory, which weights in fp32 may take where bf16 is the slower format
SMALL = 1_000_000_000  # parameters; below, fp32 is the faster format on most CPUs


def missing() -> dict[str, str]:
    """Returns the devices that this machine does not have, with why they cannot be chosen, in words."""
    found = {}
    if not torch.cuda.is_available():
        found["cuda"] = "no NVIDIA or AMD GPU found"
    if not torch.backends.mps.is_available():
        found["mps"] = "this machine is no Mac whose GPU torch can use"
    return found


def candidates(device: str) -> tuple[torch.device, ...]:
    """Returns the devices on which to try a model, best first.

    Args:
        device: one of `DEVICES`.

    Raises:
        ModelError: there is no such device here.
    """
    lacking = missing()
    if device == "auto":
        names = ["cuda"] if "cuda" not in lacking else [one for one in ("mps", "cpu") if one not in lacking]
        return tuple(torch.device(name) for name in names)
    if device not in DEVICES:
        raise ModelError(f"device {device!r} is unknown; use one of {', '.join(DEVICES)}.")
    if device in lacking:
        raise ModelError(f"device {device!r} was asked for, but torch finds no GPU here; use --device cpu.")
    return (torch.device(device),)


def first_that_holds(
    name: str,
    module: Any,
    tokenizer: Any,
    fingerprint: str,
    devices: Sequence[torch.device],
    dtype: torch.dtype | None,
    memory: Memory | None = None,
) -> Model:
    """Returns the model on the first device on which it runs and the probe holds.

    Args:
        name: the model's name, as the user wrote it.
        module: a network of transformers, on the CPU.
        tokenizer: a tokenizer of transformers.
        fingerprint: digest of weights, config and tokenizer.
        devices: the devices to try, best first; at least one.
        dtype: the number format that is wanted; None for what suits the device.
        memory: measurements of earlier starts; None to measure now.

    Raises:
        ModelError: it runs and holds on none of them.
    """
    for device in devices[:-1]:
        try:
            return Model(name, _on(device, module, dtype), tokenizer, fingerprint, memory)
        except Exception as error:  # of torch, for what the device lacks, or of the probe
            log.warning("model %s does not run on %s (%s)", name, device, _first_line(error))
    last = devices[-1]
    placed = _on(last, module, dtype)
    try:
        return Model(name, placed, tokenizer, fingerprint, memory)
    except (RuntimeError, TypeError) as error:
        if last.type != "mps":
            raise
        words = f"model {name!r} does not run on {last}: {_first_line(error)} Use --device cpu."
        raise ModelError(words) from error


def number_format(
    wanted: torch.dtype | None, device: torch.device, own: torch.dtype, parameters: int
) -> torch.dtype:
    """Returns what a model is computed in.

    Args:
        wanted: the format that was asked for; None for what suits the device.
        device: where it runs.
        own: the format of its files.
        parameters: how many it has.
    """
    if wanted is not None:
        return wanted
    if device.type != "cpu":
        return own
    if parameters < SMALL:
        return torch.float32
    half = torch.bfloat16 if own == torch.float16 else own
    roomy = parameters * torch.float32.itemsize <= ROOMY * _memory()
    return torch.float32 if half == torch.bfloat16 and roomy and not multiplies_bf16() else half


def multiplies_bf16() -> bool:
    """Returns whether the processor has units for products of bf16.

    Without, products of 32 rows take 2 to 5 times as long as in fp32.
    """
    supported: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return supported


def _memory() -> int:
    """Bytes of this machine's memory; 0 where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0


def held_format(
    wanted: torch.dtype | None, device: torch.device, own: torch.dtype, parameters: int, four_bits: bool
) -> torch.dtype:
    """Returns what a GGUF model is computed in.

    Args:
        wanted: as of `number_format`.
        device: where it runs.
        own: the format of its numbers.
        parameters: how many it has.
        four_bits: whether most of it is in blocks of four bits, with which the processor computes in bf16.
    """
    if wanted is None and device.type == "cpu" and four_bits and parameters >= SMALL:
        return torch.bfloat16
    return number_format(wanted, device, own, parameters)


def _on(device: torch.device, module: Any, dtype: torch.dtype | None) -> Any:
    """The network there, in the number format that suits it.

    Raises:
        ModelError: it has no room there.
    """
    count = sum(parameter.numel() for parameter in module.parameters())
    wanted = number_format(dtype, device, module.dtype, count)
    if dtype is None and device.type == "cpu":
        if wanted == torch.float32:
            module = module.float()
        elif wanted != module.dtype:
            module = module.bfloat16()
    try:
        return module.to(device)
    except RuntimeError as error:
        raise ModelError(f"the model cannot be moved to {device}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
