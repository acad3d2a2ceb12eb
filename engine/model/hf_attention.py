"""The two ways in which a transformers network attends to the engine's KV caches.

On the path "segments", transformers passes every layer's query, key and value to `SegmentKVCache.attend`. The
path "dense" is for models with their own attention code. They take keys from the cache object of a call, and
the engine supplies only the mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from engine.attention.kernels import AttentionParams
from engine.attention.rope import Rotaries
from engine.checkpoint.configuration import OWN_ATTENTION
from engine.kv_cache.batched_kv_cache import BatchedKVCache
from engine.kv_cache.packed_kv_cache import PackedKVCache
from engine.kv_cache.protocol import UnfitError
from engine.kv_cache.segment_kv_cache import SegmentKVCache

AttentionPath = Literal["segments", "dense"]
ATTENTION_PATHS: tuple[AttentionPath, ...] = ("segments", "dense")
CARRIED = "prompt_cache_kv"  # attribute of attention modules that do not receive keyword arguments
_NAMES: dict[AttentionPath, str] = {"segments": "prompt_cache_segments", "dense": "prompt_cache_dense"}


class DroppedError(Exception):
    """The KV cache did not reach the attention function."""


@dataclass(frozen=True)
class AttentionSetup:
    """How a network computes attention.

    Attributes:
        path: "segments" if attention reads them in place; "dense" for models with their own attention code,
            for which they are copied into one buffer.
        rotaries: the rotary embedding of each layer.
        carried: whether the attention modules receive the KV cache as an attribute.
    """

    path: AttentionPath
    rotaries: Rotaries
    carried: bool = False


def attach(module: Any, path: AttentionPath | None) -> None:
    """Makes a transformers network attend on a path, or with its own attention (None)."""
    name, config = OWN_ATTENTION if path is None else _NAMES[path], module.config.get_text_config()
    if config._attn_implementation == name:
        return
    if path != "dense" and can_change(module):
        module.set_attn_implementation(name)
    else:  # such models refuse a change of attention and do not need it: only the mask changes
        config._attn_implementation = name


def can_change(module: Any) -> bool:
    """Whether transformers supplies a network's attention, so that the engine can replace it."""
    changeable: bool = module._can_set_attn_implementation()
    return changeable


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    kv: SegmentKVCache | PackedKVCache | BatchedKVCache | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Called by transformers: query [1, heads, rows, head_dim] → ([1, rows, heads, head_dim], None)."""
    if kv is None:
        kv = getattr(module, CARRIED, None)
    if kv is None:
        raise DroppedError("the layers of this model drop keyword arguments")
    if attention_mask is not None:  # transformers makes none for the path "segments"
        raise UnfitError("its layers use their own attention mask")
    layer: Any = getattr(module, "layer_idx", None)
    if layer is None or len(query) != 1:
        raise UnfitError("its attention layers are not numbered, or take several sequences for one")
    if sliding_window is not None and sliding_window < 1:
        raise UnfitError(f"its configuration has a window of {sliding_window} tokens; null means none")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = kv.attend(layer, query[0], key[0], value[0], AttentionParams(scale, sliding_window, softcap, s_aux))
    return out.transpose(0, 1)[None].contiguous(), None


def _mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any,
    kv_offset: Any,
    *,
    dtype: torch.dtype,
    device: torch.device,
    **_: Any,
) -> Tensor:
    """The additive mask [1, 1, rows, columns] of a pass, which hides empty columns and later ones.

    `q_offset` and `kv_offset` come from `DenseKVCache`, or are the offsets of a pass without one.
    """
    if isinstance(kv_offset, Tensor):
        filled, rows = kv_offset.to(device), q_offset.to(device)
    else:
        filled = torch.ones(kv_length, dtype=torch.bool, device=device)
        rows = torch.arange(q_length, device=device) + q_offset
    seen = filled & (torch.arange(kv_length, device=device) <= rows[:, None])
    hidden = torch.finfo(dtype).min
    mask = torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, hidden)
    return mask.expand(batch_size, 1, -1, -1)


def _no_attention(*_: Any, **__: Any) -> tuple[Tensor, None]:
    raise UnfitError("the model takes its attention from transformers, and not from the dense cache")


def register() -> None:
    """Registers both paths with transformers; a second call changes nothing."""
    AttentionInterface.register(_NAMES["segments"], _attention)
    AttentionInterface.register(_NAMES["dense"], _no_attention)
    AttentionMaskInterface.register(_NAMES["dense"], _mask)
