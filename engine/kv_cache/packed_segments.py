"""Reads the segments that the rows of a batch share in few calls. Short slices are copied together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from engine.attention.readers import Readers
from engine.attention.spans import Span, Spans
from engine.attention.varlen_kernel import Pairs, read_spans

MOST_LAID = 8192  # tokens to copy; a longer slice is worth a call of its own


@dataclass(frozen=True)
class SliceCall:
    """One call over slices.

    Attributes:
        number: the slice that is read in place; None for the copied slices.
        spans: of its keys; queries are numbered slice by slice, in the order of each slice's readers.
    """

    number: int | None
    spans: Spans


class LaidSlices:
    """The slices of readers, of which the shortest are copied together once."""

    def __init__(self, readers: Readers) -> None:
        self._slices = readers.slices
        self._starts: dict[int, int] = {}  # start of each slice in the copies
        self._tokens = 0
        for number, piece in sorted(enumerate(self._slices), key=lambda item: item[1].tokens):
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
        """Returns the calls of a pass, and the row of each of their pairs, call by call.

        Args:
            at: positions of all rows.
            window: of the layers.
            group: query heads per key head.
            device: of the keys.
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
        """The spans of a slice, recomputed only if a boundary has moved."""
        piece = self._slices[number]
        borders = piece.borders(at, window)
        known = self._known.get((number, window))
        if known is not None and known[0] == borders:
            return known[1]
        before, first = self._starts.get(number, piece.lo), self._firsts[number]
        spans = [
            replace(
                run,
                queries=tuple(first + reader for reader in run.queries),
                first=before + run.first,
                end=before + run.end,
            )
            for run in piece.runs(borders)
        ]
        self._known[number, window] = borders, spans
        return spans

    def read(self, layer: int, turned: Sequence[Tensor], calls: Sequence[SliceCall]) -> list[Pairs]:
        """Attention of one layer over slices; `turned` has queries [kv_heads, readers, group, head_dim]."""
        query, pairs = torch.cat(list(turned), 1), []
        for call in calls:
            if call.number is None:
                keys, values = self._laid()[:, layer]
            else:
                segment = self._slices[call.number].segment
                keys, values = (states[layer].transpose(0, 1) for states in (segment.keys, segment.values))
            pairs.append(read_spans(query, keys, values, call.spans))
        return pairs

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
