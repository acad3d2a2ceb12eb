"""Compresses keys and values.

Keys vary by channel, values by token (KIVI, arXiv 2402.02750). So keys are scaled per channel between their
minimum and maximum, and values per token; with 4 bits in groups of 32 tokens for keys and of 32 channels for
values. 8-bit values are centred at zero, which saves a number per token.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

Scheme = Literal["plain", "int8", "int4"]
SCHEMES: tuple[Scheme, ...] = ("plain", "int8", "int4")
_MOST = {"int8": 254, "int4": 15}  # the largest code
_MIDDLE = 127
_GROUP = {"int8": 1 << 30, "int4": 32}  # numbers that share a scale
_TYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
_WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "U8": 1}  # bytes


def tensors_of(scheme: Scheme, shape: tuple[int, ...], dtype: str) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Returns type (as in safetensors) and shape of every tensor of `pack`, by name.

    Args:
        scheme: the storage format.
        shape: (layers, kv_heads, tokens, head_dim) of keys and of values.
        dtype: their number format, as in torch.
    """
    if scheme == "plain":
        return {"keys": (_TYPES[dtype], shape), "values": (_TYPES[dtype], shape)}
    codes = shape if scheme == "int8" else ((math.prod(shape) + 1) // 2,)
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, along in (("keys", 2), ("values", 3)):
        groups = -(-shape[along] // _GROUP[scheme])
        scales = (*shape[:along], groups, *shape[along + 1 :])
        tensors |= {name: ("U8", codes), f"{name}.step": ("F16", scales)}
        if not _centred(scheme, along):
            tensors[f"{name}.low"] = ("F16", scales)
    return tensors


def packed_bytes(scheme: Scheme, shape: tuple[int, ...], dtype: str) -> int:
    """Returns the bytes of `pack` for keys and values of this shape."""
    return sum(_WIDTHS[kind] * math.prod(sides) for kind, sides in tensors_of(scheme, shape, dtype).values())


def _centred(scheme: Scheme, along: int) -> bool:
    return scheme == "int8" and along == 3


def pack(keys: Tensor, values: Tensor, scheme: Scheme) -> dict[str, Tensor]:
    """Returns the tensors of a file for keys and values [layers, kv_heads, tokens, head_dim]."""
    if scheme == "plain":
        return {"keys": keys.cpu().contiguous(), "values": values.cpu().contiguous()}
    packed: dict[str, Tensor] = {}
    for name, states, along in (("keys", keys, 2), ("values", values, 3)):
        parts = _quantised(states.cpu().float(), along, scheme)
        if scheme == "int4":
            parts[""] = _halved(parts[""])
        packed |= {f"{name}{part}": tensor.contiguous() for part, tensor in parts.items()}
    return packed


def unpack(
    tensors: dict[str, Tensor], scheme: Scheme, shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Returns keys and values of this shape from the tensors of a file."""
    if scheme == "plain":
        return tensors["keys"], tensors["values"]
    both = []
    for name, along in (("keys", 2), ("values", 3)):
        codes = _doubled(tensors[name], shape) if scheme == "int4" else tensors[name]
        low, step = tensors.get(f"{name}.low"), tensors[f"{name}.step"]
        both.append(_restored(codes, low, step, along, scheme, dtype))
    return both[0], both[1]


def rounded(keys: Tensor, values: Tensor, scheme: Scheme) -> tuple[Tensor, Tensor]:
    """Returns keys and values as read back from a file, so that first use equals later use."""
    if scheme == "plain":
        return keys, values
    restored = unpack(pack(keys, values, scheme), scheme, tuple(keys.shape), keys.dtype)
    return restored[0].to(keys.device), restored[1].to(keys.device)


def _quantised(states: Tensor, along: int, scheme: Scheme) -> dict[str, Tensor]:
    """Returns codes of the same shape in uint8, steps, and lowest numbers (fp16) unless codes are centred.

    Steps and lowest numbers are per group along a dimension.
    """
    centred = _centred(scheme, along)
    codes, lows, steps = [], [], []
    for group in torch.split(states, _GROUP[scheme], along):
        low, high = group.amin(along, keepdim=True), group.amax(along, keepdim=True)
        if centred:
            reach = torch.maximum(low.abs(), high.abs())
            step = _stored(reach / _MIDDLE)
            low = -_MIDDLE * step
        else:
            low = low.half().float()
            step = _stored((high - low) / _MOST[scheme])
        codes.append(((group - low) / step).round().clamp(0, _MOST[scheme]).to(torch.uint8))
        lows.append(low.half())
        steps.append(step.half())
    parts = {"": torch.cat(codes, along), ".step": torch.cat(steps, along)}
    return parts if centred else {**parts, ".low": torch.cat(lows, along)}


def _stored(step: Tensor) -> Tensor:
    """A step as rounded by fp16, never zero."""
    return step.clamp(1e-7, 6e4).half().float().clamp_min(6e-8)


def _restored(
    codes: Tensor, low: Tensor | None, step: Tensor, along: int, scheme: Scheme, dtype: torch.dtype
) -> Tensor:
    parts = []
    for index, group in enumerate(torch.split(codes, _GROUP[scheme], along)):
        by = step.narrow(along, index, 1).float()
        lowest = -_MIDDLE * by if low is None else low.narrow(along, index, 1).float()
        parts.append(torch.addcmul(lowest.expand(group.shape), group.float(), by).to(dtype))
    return torch.cat(parts, along) if len(parts) > 1 else parts[0]


def _halved(codes: Tensor) -> Tensor:
    flat = codes.flatten()
    if flat.numel() % 2:
        flat = torch.cat([flat, flat.new_zeros(1)])
    return flat[0::2] | (flat[1::2] << 4)


def _doubled(packed: Tensor, shape: tuple[int, ...]) -> Tensor:
    flat = torch.stack([packed & 15, packed >> 4], 1).flatten()
    count = 1
    for size in shape:
        count *= size
    return flat[:count].view(shape)
