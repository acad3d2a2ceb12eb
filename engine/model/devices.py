"""The devices to try for a model, and the first on which its probe succeeds."""

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

ROOMY = 0.5  # the most of the memory that fp32 weights may take if bf16 is slower
SMALL = 1_000_000_000  # parameters; below, fp32 is faster on most CPUs


def missing() -> dict[str, str]:
    """Returns the devices that this machine lacks, with a reason."""
    reasons = {}
    if not torch.cuda.is_available():
        reasons["cuda"] = "no NVIDIA or AMD GPU found"
    if not torch.backends.mps.is_available():
        reasons["mps"] = "no Mac GPU that torch supports found"
    return reasons


def candidates(device: str) -> tuple[torch.device, ...]:
    """Returns the devices for a model, best first; raises ModelError for an unknown or missing one."""
    lacking = missing()
    if device == "auto":
        names = (
            ["cuda"] if "cuda" not in lacking else [kind for kind in ("mps", "cpu") if kind not in lacking]
        )
        return tuple(torch.device(name) for name in names)
    if device not in DEVICES:
        raise ModelError(f"device {device!r} is unknown; use one of {', '.join(DEVICES)}.")
    if device in lacking:
        raise ModelError(f"device {device!r} is not available: torch finds no GPU. Use --device cpu.")
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
    """Returns the model on the first of the devices on which it runs and the probe succeeds.

    The module is on the CPU. Without a `dtype` it gets the device's best. The other arguments are those of
    `Model`.

    Raises:
        ModelError: it succeeds on none of them.
    """
    for device in devices[:-1]:
        try:
            return Model(name, _on(device, module, dtype), tokenizer, fingerprint, memory)
        except Exception as error:  # of torch, if the device lacks an operation, or of the probe
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
    """Returns the wanted number format, or the best one for the device, the files and the size."""
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
    """Whether the processor multiplies bf16; without it, 32 rows take 2 to 5 times as long as in fp32."""
    supported: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return supported


def _memory() -> int:
    """Bytes of this machine's memory; 0 if the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0


def held_format(
    wanted: torch.dtype | None, device: torch.device, own: torch.dtype, parameters: int, four_bits: bool
) -> torch.dtype:
    """Returns the number format of a GGUF model; the processor computes in bf16 with four-bit blocks."""
    if wanted is None and device.type == "cpu" and four_bits and parameters >= SMALL:
        return torch.bfloat16
    return number_format(wanted, device, own, parameters)


def _on(device: torch.device, module: Any, dtype: torch.dtype | None) -> Any:
    """Returns the network on a device in its number format; raises ModelError if it does not fit there."""
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
