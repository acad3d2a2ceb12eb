"""What the rows of a batch share, for few calls: short slices side by side, long ones where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from engine.attention.readers import Readers
from engine.attention.spans import Span, Spans
from engine.attention.varlen_kernel import Pairs, read_spans

MOST_LAID = 8192  # tokens that are copied; beyond, a call for each slice costs little beside reading it


@dataclass(frozen=True)
class SliceCall:
    """One call over slices.

    Attributes:
        number: of the slice that is read where it lies; None for those that lie side by side.
        spans: of its keys; queries are numbered slice by slice, each slice's readers in their order.
    """

    number: int | None
    spans: Spans


class LaidSlices:
    """The slices of readers, of which the shortest are copied side by side once, token by token.

    Args:
        readers: who reads what; where that changes, another of these is made.
    """

    def __init__(self, readers: Readers) -> None:
        self._slices = readers.slices
        self._starts: dict[int, int] = {}  # where slices begin in the copies
        self._tokens = 0
        for number, piece in sorted(enumerate(self._slices), key=lambda one: one[1].tokens):
            if self._tokens + piece.tokens > MOST_LAID:
                break
            self._starts[number] = self._tokens
            self._tokens += piece.tokens
        self._copies: Tensor | None = None
        self._rows = [row for piece in self._slices for row in piece.rows]
        self._firsts = list(accumulate((len(piece.rows) for piece in self._slices), initial=0))
        self._known: dict[tuple[int, int | None], tuple[tuple[tuple[int, int], ...], list[Span]]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the copies."""
        return 0 if self._copies is None else self._copies.nbytes

    def calls(
        self, at: Sequence[int], window: int | None, group: int, device: torch.device
    ) -> tuple[list[SliceCall], list[int]]:
        """What a pass reads.

        Args:
            at: positions of all rows.
            window: of the layers.
            group: query heads that share a key head.
            device: of the keys.

        Returns:
            The calls, and the row of each of their pairs, one call after the other.
        """
        laid, calls = list[Span](), list[SliceCall]()
        for number in range(len(self._slices)):
            spans = self._spans(number, at, window)
            if number in self._starts:
                laid += spans
            elif spans:
                calls.append(SliceCall(number, Spans(spans, group, device)))
        if laid:
            calls.append(SliceCall(None, Spans(laid, group, device)))
        return calls, [self._rows[query] for call in calls for query in call.spans.queries]

    def _spans(self, number: int, at: Sequence[int], window: int | None) -> list[Span]:
        """What is read of a slice, where its keys are; worked out again only when a border has moved."""
        piece = self._slices[number]
        borders = piece.borders(at, window)
        known = self._known.get((number, window))
        if known is not None and known[0] == borders:
            return known[1]
        before, first = self._starts.get(number, piece.lo), self._firsts[number]
        found = [
            replace(
                run,
                queries=tuple(first + reader for reader in run.queries),
                first=before + run.first,
                end=before + run.end,
            )
            for run in piece.runs(borders)
        ]
        self._known[number, window] = borders, found
        return found

    def read(self, layer: int, turned: Sequence[Tensor], calls: Sequence[SliceCall]) -> list[Pairs]:
        """Attention of one layer over slices.

        Args:
            layer: its index.
            turned: the query of each slice's readers, [kv_heads, readers, group, head_dim].
            calls: of this pass, for the layer's window.
        """
        query, found = torch.cat(list(turned), 1), []
        for call in calls:
            if call.number is None:
                keys, values = self._laid()[:, layer]
            else:
                segment = self._slices[call.number].segment
                keys, values = (states[layer].transpose(0, 1) for states in (segment.keys, segment.values))
            found.append(read_spans(query, keys, values, call.spans))
        return found

    def _laid(self) -> Tensor:
        """The copies, [2, layers, tokens, kv_heads, head_dim]."""
        if self._copies is None:
            like = self._slices[next(iter(self._starts))].segment.keys
            layers, kv_heads, _, size = like.shape
            self._copies = like.new_empty((2, layers, self._tokens, kv_heads, size))
            for number, start in self._starts.items():
                piece = self._slices[number]
                for copy, states in zip(
                    self._copies, (piece.segment.keys, piece.segment.values), strict=True
                ):
                    copy[:, start : start + piece.tokens] = states[:, :, piece.lo : piece.hi].transpose(1, 2)
        return self._copies
