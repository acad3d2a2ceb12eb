"""Keys and values of several texts that follow each other in one forward pass.

Layers other than attention treat each token alone. Attention runs text by text: a token sees its own text up
to itself and the placements of its text. Placements may be other texts of the same pass, because a layer
computes the keys of all texts before it attends. A prefix of many texts is thus computed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor, nn

from engine.attention.banded import Band, banded_attention, bands
from engine.attention.bf16_upcast import widened
from engine.attention.kernels import (
    AttentionParams,
    Part,
    attend,
    causal_attention,
    pack,
    rows_at_once,
    unpack,
)
from engine.attention.masks import Hidden
from engine.attention.rope import Rotaries, Rotary
from engine.attention.scratch import Scratch
from engine.base.segment import Form, Placement, Segment
from engine.kv_cache.protocol import StopForward, UnfitError, check_queries, check_states

_MASKED_ROWS = 256  # rows per mask over all visible keys
_KEPT_MASK = 1 << 22  # mask elements of a text that stay in memory from layer to layer


@dataclass(frozen=True, eq=False)
class PackedText:
    """One text of a pass.

    Attributes:
        segment: receives its keys and values, layer by layer.
        start: position of its first token.
        placements: the other segments that it sees, in order of position and all before `start`. They are
            computed segments or other texts of the pass.
    """

    segment: Segment
    start: int = 0
    placements: tuple[Placement, ...] = ()

    @property
    def positions(self) -> range:
        """Positions of its tokens."""
        return range(self.start, self.start + self.segment.tokens)

    @cached_property
    def seen(self) -> tuple[Placement, ...]:
        """The placements with tokens."""
        return tuple(placement for placement in self.placements if placement.tokens)

    @cached_property
    def seen_at(self) -> list[int]:
        """Positions of the tokens in placements."""
        return [
            place
            for placement in self.seen
            for place in range(placement.start, placement.start + placement.tokens)
        ]

    @cached_property
    def sight(self) -> tuple[tuple[int, int, int, int], ...]:
        """A key that is equal for texts with the same placements at the same distances."""
        return tuple(
            (id(placement.segment), placement.lo, placement.hi, placement.shift) for placement in self.seen
        )


def empty_segment(form: Form, key: str, token_ids: Sequence[int], device: torch.device) -> Segment:
    """Returns an uninitialised segment for a pass to fill."""
    shape = (2, form.layers, form.heads, len(token_ids), form.size)
    keys, values = torch.empty(shape, dtype=form.dtype, device=device)
    return Segment(key, tuple(token_ids), keys, values)


class PackedKVCache:
    """The KV cache of the texts of one pass. The pass ends with StopForward at the keys of the last layer.

    Args:
        texts: at least one.
        rotaries: of each layer. A layer without one reads segments at their original place only.
        scratch: buffers.

    Attributes:
        windows: the model's sliding window by layer.
    """

    def __init__(self, texts: Sequence[PackedText], rotaries: Rotaries, scratch: Scratch) -> None:
        self.texts, self.rotaries, self.scratch = tuple(texts), rotaries, scratch
        self.windows: dict[int, int | None] = {}
        ends = [0]
        for text in self.texts:
            ends.append(ends[-1] + text.segment.tokens)
        self._rows = [slice(first, end) for first, end in pairwise(ends)]
        self._angles: dict[tuple[object, int], tuple[Tensor, Tensor]] = {}
        self._bands: dict[tuple[int, int], tuple[Band, ...]] = {}
        self._masks: dict[tuple[int, int], Tensor] = {}

    @property
    def rows(self) -> int:
        """Tokens of all texts."""
        return self._rows[-1].stop

    def require_whole(self) -> None:
        """Raises UnfitError after a pass in which a layer has not returned its keys."""
        layers = len(self.rotaries)
        if len(self.windows) != layers:
            raise UnfitError(f"{layers - len(self.windows)} of {layers} layers did not call attention")

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rules: AttentionParams) -> Tensor:
        """Attention of all texts; tensors as in `OwnKVCache.attend`, positions of each text.

        Raises:
            StopForward: the layer is the last.
            UnfitError: the shapes do not fit a segment.
        """
        check_states(layer, len(self.rotaries), self.rows, key, value)
        check_queries(query, key)
        self.windows[layer] = rules.window
        for text, rows in zip(self.texts, self._rows, strict=True):
            text.segment.keys[layer] = key[:, rows]
            text.segment.values[layer] = value[:, rows]
        if len(self.windows) == len(self.rotaries):
            raise StopForward
        heads, rows_in_all, size = query.shape
        out = query.new_empty(rows_in_all, heads, size).transpose(
            0, 1
        )  # the layout that the model reads next
        turned: dict[object, tuple[Tensor, Tensor]] = {}
        for text, rows in zip(self.texts, self._rows, strict=True):
            if text.sight not in turned:
                turned[text.sight] = self._turned(layer, text)
            out[:, rows] = self._attend(layer, text, query[:, rows], turned[text.sight], rules)
        return out

    def _turned(self, layer: int, text: PackedText) -> tuple[Tensor, Tensor]:
        """Keys, rotated to their places, and values of a text's placements, [kv_heads, tokens, head_dim]."""
        own = text.segment
        if not text.seen:
            return own.keys[layer, :, :0], own.values[layer, :, :0]
        keys = torch.cat(
            [placement.segment.keys[layer, :, placement.lo : placement.hi] for placement in text.seen], 1
        )
        values = torch.cat(
            [placement.segment.values[layer, :, placement.lo : placement.hi] for placement in text.seen], 1
        )
        rotary = self.rotaries[layer]
        if rotary is not None and any(placement.shift for placement in text.seen):
            keys = rotary.rotate(keys, *self._angles_of(text, rotary, keys.device))
        return keys, values

    def _angles_of(self, text: PackedText, rotary: Rotary, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosine and sine that move each token of a text's placements, [tokens, rotary_dim]."""
        cache_key = (text.sight, id(rotary))
        if cache_key not in self._angles:
            shifts = [placement.shift for placement in text.seen for _ in range(placement.tokens)]
            self._angles[cache_key] = rotary.angles(shifts, device)
        return self._angles[cache_key]

    def _attend(
        self,
        layer: int,
        text: PackedText,
        query: Tensor,
        seen: tuple[Tensor, Tensor],
        rules: AttentionParams,
    ) -> Tensor:
        """Attention of one text over its placements and itself."""
        before, rows = seen[0].shape[1], query.shape[1]
        keys, values = text.segment.keys[layer], text.segment.values[layer]
        if before:
            keys, values = torch.cat([seen[0], keys], 1), torch.cat([seen[1], values], 1)
        window = rules.window
        if window is not None and self._extent(text) < window:
            window = None
        if not rules.plain:
            return self._scored(text, query, keys, values, rules)
        if window is None and before > rows:
            return self._masked(text, query, keys, values, rules.scale)
        # Zero rows represent the placements: one causal product without a mask is the cheapest.
        padded = nn.functional.pad(query, (0, 0, before, 0)) if before else query
        if window is None:
            return causal_attention(padded, keys, values, rules.scale)[:, before:]
        cut = self._bands_of(text, window, query)
        return banded_attention(padded, keys, values, rules.scale, cut)[:, before:]

    @staticmethod
    def _extent(text: PackedText) -> int:
        """Distance from the last token to the first that it may see, in positions."""
        return text.positions[-1] - min([text.start, *text.seen_at[:1]])

    def _bands_of(self, text: PackedText, window: int, like: Tensor) -> tuple[Band, ...]:
        cache_key = (id(text), window)
        if cache_key not in self._bands:
            self._bands[cache_key] = bands([*text.seen_at, *text.positions], window, like)
        return self._bands[cache_key]

    def _masked(self, text: PackedText, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Causal attention of a text's tokens over a longer prefix."""
        grouped, rows, width = query.shape[0] != keys.shape[0], query.shape[1], keys.shape[1]
        out = torch.empty_like(query)
        query, keys, values = widened(query, keys, values)
        for first in range(0, rows, _MASKED_ROWS):
            end = min(first + _MASKED_ROWS, rows)
            stop = width - rows + end
            mask = self._masks.get((id(text), first))
            if mask is None:
                mask = query.new_full((end - first, stop), -torch.inf).triu(stop - end + first + 1)
                if rows * width <= _KEPT_MASK:
                    self._masks[id(text), first] = mask
            out[:, first:end] = nn.functional.scaled_dot_product_attention(
                query[None, :, first:end],
                keys[None, :, :stop],
                values[None, :, :stop],
                attn_mask=mask,
                scale=scale,
                enable_gqa=grouped,
            )[0]
        return out

    def _scored(
        self, text: PackedText, query: Tensor, keys: Tensor, values: Tensor, rules: AttentionParams
    ) -> Tensor:
        """Attention with extra score terms: soft caps, sinks."""
        at_keys = torch.tensor([*text.seen_at, *text.positions], device=query.device)
        rows, before = query.shape[1], len(text.seen_at)
        most = rows_at_once(query.shape[0], keys.shape[1], query)
        packed = pack(query * rules.scale, keys.shape[0])
        group = packed.shape[1] // rows
        blocks = []
        for first in range(0, rows, most):
            end = min(first + most, rows)
            at_rows = at_keys[before + first : before + end, None]
            seen = slice(0, before + end)
            mask = at_keys[seen] > at_rows
            if rules.window is not None:
                mask |= at_rows - at_keys[seen] >= rules.window
            block = packed[:, first * group : end * group]
            part = Part(block, keys[:, seen], values[:, seen], Hidden(0, mask))
            blocks.append(attend([part], rules, end - first, self.scratch)[0])
        return unpack(blocks[0] if len(blocks) == 1 else torch.cat(blocks, 1), rows)
