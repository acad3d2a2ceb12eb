"""Where a processor multiplies fp32 faster than bf16, so that numbers of bf16 are worth widening first.

Products of bf16 are the faster ones with AMX, and on processors of AMD with instructions for them. Those that
Intel made without AMX have the same instructions at half that rate, and what has none takes the way through
fp32 in any case, once for every few rows. Told by what the processor is, and not by a measurement, so that
what a model answers does not hang on one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

ROWS = 64  # from which on the products gain more than the copies cost
_READ = ("architecture", "avx2", "amx_bf16", "avx512_bf16", "cpu_name")


def widens(query: Tensor) -> bool:
    """Whether attention of these queries, [heads, rows, head_dim], is faster in fp32, copies counted."""
    if query.dtype != torch.bfloat16 or query.device.type != "cpu" or query.shape[1] < ROWS:
        return False
    return _here()


def widens_copies(query: Tensor) -> bool:
    """Whether attention of these queries is faster in fp32 where keys and values are copied in any case."""
    return query.dtype == torch.bfloat16 and query.device.type == "cpu" and _here()


def widened(query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns all three in fp32 where that pays, else as they are."""
    if not widens(query):
        return query, keys, values
    return query.float(), keys.float(), values.float()


def fp32_is_faster(told: Mapping[str, Any]) -> bool:
    """Whether products of fp32 are the faster ones on a processor, as torch tells what it can."""
    if told.get("architecture") != "x86_64" or not told.get("avx2"):
        return False
    return not told.get("amx_bf16") and not (told.get("avx512_bf16") and "AMD" in told.get("cpu_name", ""))


def told_by() -> tuple[str, ...]:
    """What `fp32_is_faster` reads, of this processor."""
    told = torch.cpu.get_capabilities()
    return tuple(f"{name}={told.get(name)}" for name in _READ)


@functools.cache
def _here() -> bool:
    return fp32_is_faster(torch.cpu.get_capabilities())
