"""Upcasts bf16 to fp32 on processors that multiply fp32 faster.

Products of bf16 are faster with AMX and on AMD processors with bf16 instructions. Intel processors without
AMX run the same instructions at half the rate. Others go through fp32 in any case, every few rows. The
decision depends on the processor's features and not on a measurement, so that answers are reproducible.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

ROWS = 64  # the fewest for which products gain more than the copies cost
_READ = ("architecture", "avx2", "amx_bf16", "avx512_bf16", "cpu_name")


def widens(query: Tensor) -> bool:
    """Whether attention of these queries, [heads, rows, head_dim], is faster in fp32, copies included."""
    if query.dtype != torch.bfloat16 or query.device.type != "cpu" or query.shape[1] < ROWS:
        return False
    return _here()


def widens_copies(query: Tensor) -> bool:
    """Whether attention of these queries is faster in fp32 if keys and values are copied anyway."""
    return query.dtype == torch.bfloat16 and query.device.type == "cpu" and _here()


def widened(query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns all three in fp32 if that is faster, else unchanged."""
    if not widens(query):
        return query, keys, values
    return query.float(), keys.float(), values.float()


def fp32_is_faster(told: Mapping[str, Any]) -> bool:
    """Whether a processor with these capabilities, as torch reports them, multiplies fp32 faster."""
    if told.get("architecture") != "x86_64" or not told.get("avx2"):
        return False
    return not told.get("amx_bf16") and not (told.get("avx512_bf16") and "AMD" in told.get("cpu_name", ""))


def told_by() -> tuple[str, ...]:
    """Returns this processor's capabilities that `fp32_is_faster` reads."""
    capabilities = torch.cpu.get_capabilities()
    return tuple(f"{name}={capabilities.get(name)}" for name in _READ)


@functools.cache
def _here() -> bool:
    return fp32_is_faster(torch.cpu.get_capabilities())
