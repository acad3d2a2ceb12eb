"""The keys and values of several texts that go through a network in one pass, one behind the other.

Layers that take each token by itself do not see the borders. Attention is computed text by text: a token sees
its own text up to itself, and what its text was given to see, which may be other texts of the same pass: when
a layer attends it has made the keys of all of them. So what stands before many texts is computed once.

Knows nothing about prompts or files.
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

_MASKED_ROWS = 256  # of which a mask over all that they see is made at once
_KEPT_MASK = 1 << 22  # numbers of a text's masks that are kept from layer to layer


@dataclass(frozen=True, eq=False)
class PackedText:
    """One text of a pass.

    Attributes:
        segment: takes its keys and values, a layer at a time.
        start: position of its first token.
        placements: what it sees besides, in the order of their places and all before `start`: segments that
            are there, or those of other texts of the pass.
    """

    segment: Segment
    start: int = 0
    placements: tuple[Placement, ...] = ()

    @property
    def positions(self) -> range:
        """Of its tokens."""
        return range(self.start, self.start + self.segment.tokens)

    @cached_property
    def seen(self) -> tuple[Placement, ...]:
        """What of the placements has tokens."""
        return tuple(placement for placement in self.placements if placement.tokens)

    @cached_property
    def seen_at(self) -> list[int]:
        """Positions of what is seen besides."""
        return [place for one in self.seen for place in range(one.start, one.start + one.tokens)]

    @cached_property
    def sight(self) -> tuple[tuple[int, int, int, int], ...]:
        """The same for texts that see the same at the same distances."""
        return tuple((id(one.segment), one.lo, one.hi, one.shift) for one in self.seen)


def empty_segment(form: Form, key: str, token_ids: Sequence[int], device: torch.device) -> Segment:
    """Returns a segment without content, for a pass to write."""
    shape = (2, form.layers, form.heads, len(token_ids), form.size)
    keys, values = torch.empty(shape, dtype=form.dtype, device=device)
    return Segment(key, tuple(token_ids), keys, values)


class PackedKVCache:
    """What the texts of one pass attend to. The pass ends with StopForward at the keys of the last layer.

    Args:
        texts: at least one.
        rotaries: of each layer. A layer without one reads segments in their own place only.
        scratch: buffers.

    Attributes:
        windows: by layer, the sliding window that the model asked for.
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
        """Checks after the pass that every layer has handed its keys over.

        Raises:
            UnfitError: some have not.
        """
        layers = len(self.rotaries)
        if len(self.windows) != layers:
            raise UnfitError(f"{layers - len(self.windows)} of {layers} layers do not ask for attention")

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rules: AttentionParams) -> Tensor:
        """Attention of all texts, each over what it sees.

        Args:
            layer: index of the attention layer.
            query: [heads, rows, head_dim], rotated for the texts' positions.
            key: [kv_heads, rows, head_dim], rotated likewise.
            value: [kv_heads, rows, head_dim].
            rules: of the layer.

        Returns:
            [heads, rows, head_dim].

        Raises:
            StopForward: the layer is the last.
            UnfitError: the shapes are none that a segment can hold.
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
        out = query.new_empty(rows_in_all, heads, size).transpose(0, 1)  # as the model reads it on
        turned: dict[object, tuple[Tensor, Tensor]] = {}
        for text, rows in zip(self.texts, self._rows, strict=True):
            if text.sight not in turned:
                turned[text.sight] = self._turned(layer, text)
            out[:, rows] = self._attend(layer, text, query[:, rows], turned[text.sight], rules)
        return out

    def _turned(self, layer: int, text: PackedText) -> tuple[Tensor, Tensor]:
        """What a text sees besides: keys, as at their places, and values, [kv_heads, tokens, head_dim]."""
        own = text.segment
        if not text.seen:
            return own.keys[layer, :, :0], own.values[layer, :, :0]
        keys = torch.cat([one.segment.keys[layer, :, one.lo : one.hi] for one in text.seen], 1)
        values = torch.cat([one.segment.values[layer, :, one.lo : one.hi] for one in text.seen], 1)
        rotary = self.rotaries[layer]
        if rotary is not None and any(one.shift for one in text.seen):
            keys = rotary.rotate(keys, *self._angles_of(text, rotary, keys.device))
        return keys, values

    def _angles_of(self, text: PackedText, rotary: Rotary, device: torch.device) -> tuple[Tensor, Tensor]:
        """Cosine and sine by which each token that a text sees besides is moved, [tokens, rotary_dim]."""
        known = (text.sight, id(rotary))
        if known not in self._angles:
            shifts = [one.shift for one in text.seen for _ in range(one.tokens)]
            self._angles[known] = rotary.angles(shifts, device)
        return self._angles[known]

    def _attend(
        self,
        layer: int,
        text: PackedText,
        query: Tensor,
        seen: tuple[Tensor, Tensor],
        rules: AttentionParams,
    ) -> Tensor:
        """Attention of one text over what it sees besides and itself."""
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
        # Rows of nothing stand for what is seen besides: one causal product that masks nothing costs least.
        padded = nn.functional.pad(query, (0, 0, before, 0)) if before else query
        if window is None:
            return causal_attention(padded, keys, values, rules.scale)[:, before:]
        cut = self._bands_of(text, window, query)
        return banded_attention(padded, keys, values, rules.scale, cut)[:, before:]

    @staticmethod
    def _extent(text: PackedText) -> int:
        """How far the last token is from the first that it may see, in positions."""
        return text.positions[-1] - min([text.start, *text.seen_at[:1]])

    def _bands_of(self, text: PackedText, window: int, like: Tensor) -> tuple[Band, ...]:
        known = (id(text), window)
        if known not in self._bands:
            self._bands[known] = bands([*text.seen_at, *text.positions], window, like)
        return self._bands[known]

    def _masked(self, text: PackedText, query: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        """Causal attention of a text's tokens over more that stands before them."""
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
        """Attention whose scores are more than products: soft caps, sinks."""
        at_keys = torch.tensor([*text.seen_at, *text.positions], device=query.device)
        rows, before = query.shape[1], len(text.seen_at)
        most = rows_at_once(query.shape[0], keys.shape[1], query)
        packed = pack(query * rules.scale, keys.shape[0])
        group = packed.shape[1] // rows
        found = []
        for first in range(0, rows, most):
            end = min(first + most, rows)
            at_rows = at_keys[before + first : before + end, None]
            seen = slice(0, before + end)
            mask = at_keys[seen] > at_rows
            if rules.window is not None:
                mask |= at_rows - at_keys[seen] >= rules.window
            block = packed[:, first * group : end * group]
            part = Part(block, keys[:, seen], values[:, seen], Hidden(0, mask))
            found.append(attend([part], rules, end - first, self.scratch)[0])
        return unpack(found[0] if len(found) == 1 else torch.cat(found, 1), rows)
