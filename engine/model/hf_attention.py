"""The two ways in which a network of transformers comes to attend to a KV cache of ours.

On the path "segments" transformers hands every layer's query, key and value to `SegmentKVCache.attend`. On
the path "dense" models with attention code of their own take keys from the cache object of a call, and
only the mask is ours.
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
CARRIED = "prompt_cache_kv"  # attribute of attention modules, where keyword arguments do not reach them
_NAMES: dict[AttentionPath, str] = {"segments": "prompt_cache_segments", "dense": "prompt_cache_dense"}


class DroppedError(Exception):
    """The keys and values to attend to did not reach the attention function."""


@dataclass(frozen=True)
class AttentionSetup:
    """How a network computes attention.

    Attributes:
        path: "segments" where attention reads them in place; "dense" for models with attention code of their
            own, for which they are copied into one buffer.
        rotaries: the rotary embedding of each layer.
        carried: whether keys and values are handed to the attention modules themselves, as attributes.
    """

    path: AttentionPath
    rotaries: Rotaries
    carried: bool = False


def attach(module: Any, path: AttentionPath | None) -> None:
    """Has a network of transformers compute attention on a path, or as it does without the engine (None)."""
    name, config = OWN_ATTENTION if path is None else _NAMES[path], module.config.get_text_config()
    if config._attn_implementation == name:
        return
    if path != "dense" and can_change(module):
        module.set_attn_implementation(name)
    else:  # such models say that they cannot change their attention, and need not: only the mask is ours
        config._attn_implementation = name


def can_change(module: Any) -> bool:
    """Whether a network takes its attention from transformers, and so from us."""
    found: bool = module._can_set_attn_implementation()
    return found


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
    """What transformers calls: query [1, heads, rows, head_dim] → ([1, rows, heads, head_dim], None)."""
    if kv is None:
        kv = getattr(module, CARRIED, None)
    if kv is None:
        raise DroppedError("the layers of this model drop the keyword arguments of its call")
    if attention_mask is not None:  # transformers makes none for the path "segments"
        raise UnfitError("its layers mask their attention by a rule of their own")
    layer: Any = getattr(module, "layer_idx", None)
    if layer is None or len(query) != 1:
        raise UnfitError("its attention layers are not numbered, or take several sequences for one")
    if sliding_window is not None and sliding_window < 1:
        raise UnfitError(f"its configuration says a window of {sliding_window} tokens, where null means none")
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
    """The additive mask [1, 1, rows, columns] of a pass: what is empty or later than a row is hidden from it.

    `q_offset` and `kv_offset` are what `DenseKVCache` gives for them, or the offsets of a pass without.
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
    """Makes both paths known to transformers; calling it again changes nothing."""
    AttentionInterface.register(_NAMES["segments"], _attention)
    AttentionInterface.register(_NAMES["dense"], _no_attention)
    AttentionMaskInterface.register(_NAMES["dense"], _mask)
