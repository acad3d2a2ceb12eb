"""KV caches of several prompts in one forward pass.

The rows of all prompts follow each other, and every layer but attention treats each row alone. A prompt with
several rows attends alone. Prompts with one row each, which decode, attend together. A segment that several
of them read is read once, with each row's query rotated to the segment's place for it. The tails, one per
prompt, lie in one buffer. The partial results are merged.

Each prompt has its own KV cache, so between passes it may leave, continue alone or be rolled back.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from engine.attention.kernels import AttentionParams
from engine.attention.readers import Readers, Sight
from engine.attention.rope import Rotaries, Rotary
from engine.attention.scratch import Scratch
from engine.attention.shared_prefix import Found, Index, index_of, merged, picked, read, read_own
from engine.attention.spans import Span, Spans, table_of
from engine.attention.varlen_kernel import merged_pairs, read_spans, refusal
from engine.base.segment import Placement
from engine.kv_cache.packed_segments import LaidSlices, SliceCall
from engine.kv_cache.protocol import KVCache, OwnKVCache, Rows, check_queries, check_states
from engine.kv_cache.segment_kv_cache import FOLD_ABOVE
from engine.kv_cache.tail_pool import COLUMNS, TailSlots

SHORT = 64  # tokens; shorter segments are copied to a tail instead of being shared, if the slot has room


@dataclass(frozen=True, eq=False)
class Member:
    """One prompt in a pass: the keys and values that it attends to, and its rows."""

    kv: KVCache
    rows: Rows


@dataclass(frozen=True)
class _Run:
    """Tails in consecutive slots.

    Attributes:
        rows: the decoding rows.
        slots: their slots.
        columns: the columns that some row sees within a window.
        bias: [rows, 1, 1, columns], -inf for hidden columns; None if none is hidden.
    """

    rows: slice
    slots: slice
    columns: slice
    bias: Tensor | None


@dataclass(frozen=True)
class _Calls:
    """The calls of a pass on a GPU that takes sequences of different lengths in one call.

    Attributes:
        slices: calls over shared segments.
        slots: one call over all tails in slots; None if there are none.
        others: a call for each tail outside the slots.
        table: the pairs of each row.
    """

    slices: list[SliceCall]
    slots: Spans | None
    others: list[Spans]
    table: Tensor


class BatchedKVCache:
    """The KV caches of prompts that share forward passes, and the memory of their tails.

    It persists between passes and recomputes derived data only when the members change. `members` has those
    of the current pass, first the ones with one row.
    """

    def __init__(self, rotaries: Rotaries, scratch: Scratch) -> None:
        self.rotaries, self.scratch = rotaries, scratch
        self.members: tuple[Member, ...] = ()
        self.slots = TailSlots()
        self._settled = weakref.WeakSet[OwnKVCache]()  # caches with no more to fold
        none = Readers(())
        self._nothing = none, _Turned(none, torch.device("cpu")), LaidSlices(none)
        self._readers, self._turned, self._laid = self._nothing
        self._decoding: list[OwnKVCache] = []
        self._at: list[int] = []  # positions of the decoding rows
        self._places: list[int] = []  # their slots; shorter than the rows if some have no slot
        self._borders: list[int] = [0]  # row boundaries of the members
        self._sights: dict[int | None, list[tuple[int, Sight]]] = {}
        self._runs: dict[int | None, list[_Run]] = {}
        self._calls: dict[int | None, _Calls] = {}
        self._slots = self._columns = torch.empty(0, dtype=torch.int64)  # target of their rows

    def begin(self, members: Sequence[Member], others: Sequence[Sequence[Placement]] = ()) -> list[int]:
        """Announces a pass over the rows of several prompts; returns the order of the members' rows in it.

        Args:
            members: at least one; each KV cache occurs once.
            others: placements of prompts without rows in this pass that will have rows later.
        """
        self.settle(members, others)
        single = [place for place, member in enumerate(members) if _decodes(member)]
        together = single if len(single) > 1 else []
        caches = {place: kv for place in together if (kv := members[place].kv.own) is not None}
        self.slots.lodge(list(caches.values()))
        known = self.slots.places()
        together.sort(key=lambda place: known.get(id(members[place].kv), len(known) + place))
        order = [*together, *(place for place in range(len(members)) if place not in caches)]
        self.members = tuple(members[place] for place in order)
        self._borders = [0]
        for member in self.members:
            member.kv.begin(member.rows.positions, rowwise=member.rows.rowwise)
            self._borders.append(self._borders[-1] + len(member.rows.token_ids))
        self._decoding = [caches[place] for place in together]
        self._at = [member.rows.positions[0] for member in self.members[: len(together)]]
        self._places = [known[id(kv)] for kv in self._decoding if id(kv) in known]
        self._sights, self._runs, self._calls = {}, {}, {}
        if self._decoding:
            self._meet()
        return order

    def _meet(self) -> None:
        """Recomputes the readers if they have changed since the last pass."""
        placements = [kv.placements for kv in self._decoding]
        memory = self._decoding[0].memory
        assert memory is not None
        if not self._readers.same(placements):
            self._readers = Readers(placements)
            self._turned = _Turned(self._readers, memory.device)
            self._laid = LaidSlices(self._readers)
        lodged = self._decoding[: len(self._places)]
        self._columns = torch.tensor([kv.filled for kv in lodged], device=memory.device)
        self._slots = torch.tensor(self._places, device=memory.device)

    def settle(self, members: Sequence[Member], others: Sequence[Sequence[Placement]]) -> None:
        """Copies short and unshared segments to the tails of prompts that begin to decode.

        Shared segments are copied only as far as a slot has room: many short pieces are as long as a few. A
        prompt alone copies the same segments as without a batch. The arguments are those of `begin`.
        """
        new = [
            (place, kv)
            for place, member in enumerate(members)
            if member.rows.rowwise is not None
            and (kv := member.kv.own) is not None
            and kv not in self._settled
        ]
        if not new:
            return
        self._settled.update(kv for _, kv in new)
        if len(members) == 1 and not others:
            new[0][1].fold()
            return
        readers = Readers([*(member.kv.placements for member in members), *others])
        for place, kv in new:
            alone = readers.alone(place, 0)
            for pieces in (readers.alone(place, SHORT), alone):
                if pieces and kv.filled + sum(piece.tokens for piece in pieces) < COLUMNS:
                    kv.fold(pieces)
                    break
            else:
                if len(alone) > FOLD_ABOVE:
                    kv.fold(alone)

    @property
    def kept(self) -> Tensor:
        """Int64, the rows of the pass whose logits are wanted."""
        ends = zip(self.members, self._borders[1:], strict=True)
        rows = [row for member, end in ends for row in range(end - member.rows.keep, end)]
        return torch.tensor(rows, dtype=torch.int64)

    def commit(self) -> None:
        """Counts the rows of the last pass."""
        for member in self.members:
            member.kv.commit()

    def end(self) -> None:
        """Releases the members of the last pass."""
        self.members, self._decoding = (), []

    def leave(self, kv: KVCache) -> None:
        """Removes a prompt, whose KV cache then shares memory with no other, and releases its segments."""
        if kv.own is not None:
            self.slots.release(kv.own)
        self._read_nothing()

    def forget(self, kv: KVCache) -> None:
        """Removes a finished prompt and releases its tail and segments. Computes nothing."""
        if kv.own is not None:
            self.slots.forget(kv.own)
        self._read_nothing()

    def _read_nothing(self) -> None:
        self.end()
        self._readers, self._turned, self._laid = self._nothing

    @property
    def nbytes(self) -> int:
        """Bytes of the copies: tails in slots and shared segments."""
        return self._laid.nbytes + (0 if self.slots.buffer is None else self.slots.buffer.nbytes)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rules: AttentionParams) -> Tensor:
        """Attention of all members; tensors as in `OwnKVCache.attend`, positions of each prompt.

        Raises:
            UnfitError: the shapes do not fit a segment.
        """
        check_states(layer, len(self.rotaries), self._borders[-1], key, value)
        check_queries(query, key)
        heads, rows, size = query.shape
        out = query.new_empty(rows, heads, size).transpose(0, 1)  # the layout that the model reads next
        count = len(self._decoding)
        if count:
            out[:, :count] = self._decode(layer, query[:, :count], key[:, :count], value[:, :count], rules)
        borders = pairwise(self._borders[count:])
        for member, (first, end) in zip(self.members[count:], borders, strict=True):
            kv, own = member.kv.own, slice(first, end)
            assert kv is not None, "attention is not ours"
            out[:, own] = kv.attend(layer, query[:, own], key[:, own], value[:, own], rules)
        return out

    def _decode(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, rules: AttentionParams
    ) -> Tensor:
        """Attention of one row of each of several members, [heads, rows, head_dim] in and out."""
        heads, rows, size = query.shape
        kv_heads = key.shape[0]
        packed = (query * rules.scale).view(kv_heads, heads // kv_heads, rows, size).transpose(1, 2)
        packed = packed.contiguous()
        if not refusal(packed, rules.softcap):
            out = self._in_few_calls(layer, packed, key, value, rules)
            return out.transpose(1, 2).reshape(heads, rows, size)
        parts = self._own(layer, packed, key, value, rules)
        turned = self._turned.queries(packed, self.rotaries[layer])
        for number, sight in self._seen(rules.window, query.device):
            segment, at = self._readers.slices[number].segment, slice(sight.first, sight.end)
            keys, values = segment.keys[layer, :, at], segment.values[layer, :, at]
            part = read(turned[number], keys, values, sight.hidden, rules, self.scratch)
            parts.append(Found(*part, self._turned.rows[number]))
        return merged(parts, rules, packed).transpose(1, 2).reshape(heads, rows, size)

    def _seen(self, window: int | None, device: torch.device) -> list[tuple[int, Sight]]:
        """The slices that some row sees, by number."""
        if window not in self._sights:
            seen = [piece.seen(self._at, window, device) for piece in self._readers.slices]
            self._sights[window] = [(n, sight) for n, sight in enumerate(seen) if sight is not None]
        return self._sights[window]

    def _own(
        self, layer: int, packed: Tensor, key: Tensor, value: Tensor, rules: AttentionParams
    ) -> list[Found]:
        """Appends the rows' keys and values to the tails and attends to the tails."""
        parts, lodged = [], len(self._places)
        others = self._grown(layer, key, value, rules.window)
        if lodged:
            buffer = self.slots.buffer
            assert buffer is not None
            keys, values = buffer[:, layer]
            for run in self._runs_for(rules.window, packed):
                own = (run.slots, slice(None), run.columns)
                part = read_own(packed[:, run.rows], keys[own], values[own], run.bias, rules, self.scratch)
                parts.append(Found(*part, run.rows))
        for row, (keys, values) in enumerate(others, lodged):
            at = slice(row, row + 1)
            columns, hidden = self._decoding[row].seen_of_own(rules.window, packed.device)
            part = read(packed[:, at], keys[:, columns], values[:, columns], hidden, rules, self.scratch)
            parts.append(Found(*part, at))
        return parts

    def _grown(
        self, layer: int, key: Tensor, value: Tensor, window: int | None
    ) -> list[tuple[Tensor, Tensor]]:
        """Appends the rows' keys and values to the tails. Returns the full tails outside the slots."""
        lodged = len(self._places)
        for kv in self._decoding:
            kv.windows[layer] = window
        if lodged:
            buffer = self.slots.buffer
            assert buffer is not None
            for buffered, new in zip(buffer[:, layer], (key, value), strict=True):
                buffered[self._slots, :, self._columns] = new[:, :lodged].transpose(0, 1)
        return [
            kv.append(layer, key[:, row : row + 1], value[:, row : row + 1])
            for row, kv in enumerate(self._decoding[lodged:], lodged)
        ]

    def _in_few_calls(
        self, layer: int, packed: Tensor, key: Tensor, value: Tensor, rules: AttentionParams
    ) -> Tensor:
        """Attention of all rows: one call over short shared segments, one over the tails in slots."""
        others = self._grown(layer, key, value, rules.window)
        calls, parts = self._calls_for(rules.window, packed), []
        if calls.slices:
            turned = self._turned.queries(packed, self.rotaries[layer])
            parts = self._laid.read(layer, turned, calls.slices)
        if calls.slots is not None:
            assert self.slots.buffer is not None
            keys, values = (states.transpose(1, 2).flatten(0, 1) for states in self.slots.buffer[:, layer])
            parts.append(read_spans(packed, keys, values, calls.slots))
        for spans, (keys, values) in zip(calls.others, others, strict=True):
            parts.append(read_spans(packed, keys.transpose(0, 1), values.transpose(0, 1), spans))
        return merged_pairs(parts, calls.table, rules, packed)

    def _calls_for(self, window: int | None, packed: Tensor) -> _Calls:
        if window not in self._calls:
            group, device, lodged = packed.shape[2], packed.device, len(self._places)
            slices, rows = self._laid.calls(self._at, window, group, device)
            tails = [self._seen_of_own(row, window) for row in range(len(self._decoding))]
            slots = None
            if lodged:
                assert self.slots.buffer is not None
                columns = self.slots.buffer.shape[4]
                places = [slot * columns for slot in self._places]
                moved = [
                    Span(span.queries, place + span.first, place + span.end)
                    for place, own in zip(places, tails, strict=False)
                    for span in own
                ]
                slots = Spans(moved, group, device)
                rows += slots.queries
            others = [Spans(own, group, device) for own in tails[lodged:]]
            rows += [row for spans in others for row in spans.queries]
            table = table_of(rows, len(self._decoding), device)
            self._calls[window] = _Calls(slices, slots, others, table)
        return self._calls[window]

    def _seen_of_own(self, row: int, window: int | None) -> list[Span]:
        """The columns of a row's tail that it sees."""
        kv = self._decoding[row]
        end = kv.filled + 1
        if window is None:
            return [Span((row,), 0, end)]
        seen = torch.nn.functional.pad(self._at[row] - kv.positions(end) < window, (1, 1))
        cuts = (seen[1:] != seen[:-1]).nonzero()[:, 0].tolist()
        return [Span((row,), first, last) for first, last in zip(cuts[::2], cuts[1::2], strict=True)]

    def _runs_for(self, window: int | None, like: Tensor) -> list[_Run]:
        if window not in self._runs:
            lodged, runs, first = len(self._places), [], 0
            for row in range(1, lodged + 1):
                if row < lodged and self._places[row] == self._places[row - 1] + 1:
                    continue
                rows, slot = slice(first, row), self._places[first]
                columns, bias = self._hidden(range(first, row), window, like)
                runs.append(_Run(rows, slice(slot, slot + row - first), columns, bias))
                first = row
            self._runs[window] = runs
        return self._runs[window]

    def _hidden(self, rows: range, window: int | None, like: Tensor) -> tuple[slice, Tensor | None]:
        """The columns of tails that some of these rows see, and the bias of the hidden ones."""
        caches, at = [self._decoding[row] for row in rows], [self._at[row] for row in rows]
        ends = [kv.filled + 1 for kv in caches]
        width = max(ends)
        mask = torch.arange(width) >= torch.tensor(ends)[:, None]
        if window is not None:
            places = torch.full((len(rows), width), -1)
            for own, kv, end in zip(places, caches, ends, strict=True):
                own[:end] = kv.positions(end)
            mask |= torch.tensor(at)[:, None] - places >= window
        seen = (~mask).any(0).nonzero()
        columns = slice(int(seen[0]), int(seen[-1]) + 1)
        mask = mask[:, columns]
        if not bool(mask.any()):
            return columns, None
        bias = torch.zeros(mask.shape, dtype=like.dtype).masked_fill_(mask, -torch.inf)
        return columns, bias[:, None, None].to(like.device)


class _Turned:
    """The queries for each slice, all rotated at once; `rows` has the rows that read each slice."""

    def __init__(self, readers: Readers, device: torch.device) -> None:
        count = len(readers.placements)
        self.rows: list[Index] = [index_of(piece.rows, count, device) for piece in readers.slices]
        self._moved = [number for number, piece in enumerate(readers.slices) if any(piece.shifts)]
        moved = [readers.slices[number] for number in self._moved]
        self._shifts = [-shift for piece in moved for shift in piece.shifts]
        self._sizes = [len(piece.rows) for piece in moved]
        rows = [row for piece in moved for row in piece.rows]
        self._of_moved = torch.tensor(rows, dtype=torch.int64, device=device)
        self._angles: dict[int, tuple[Tensor, Tensor]] = {}

    def queries(self, packed: Tensor, rotary: Rotary | None) -> list[Tensor]:
        """Returns the query of each slice's readers, [kv_heads, readers, group, head_dim].

        `packed` has all rows, [kv_heads, rows, group, head_dim].
        """
        moved: dict[int, Tensor] = {}
        if rotary is not None and self._moved:
            if id(rotary) not in self._angles:
                cosine, sine = rotary.angles(self._shifts, packed.device)
                self._angles[id(rotary)] = cosine[:, None], sine[:, None]
            turned = rotary.rotate(packed.index_select(1, self._of_moved), *self._angles[id(rotary)])
            moved = dict(zip(self._moved, torch.split(turned, self._sizes, 1), strict=True))
        return [
            moved[number] if number in moved else picked(packed, rows)
            for number, rows in enumerate(self.rows)
        ]


def _decodes(member: Member) -> bool:
    """Whether it has one row that can attend together with other members' rows."""
    kv = member.kv.own
    return len(member.rows.token_ids) == 1 and kv is not None and kv.memory is not None and not kv.watched
