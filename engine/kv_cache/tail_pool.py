"""Short tails of many KV caches in one buffer, so that one call attends to all of them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.attention.varlen_kernel import refusal
from engine.kv_cache.protocol import OwnKVCache

COLUMNS = 256  # the most in a slot; separate calls for longer tails cost no more than one call over all
STEP = 32  # columns per growth: all slots are as wide as the longest tail needs
_SLOTS = 4  # slots per growth


class TailSlots:
    """Slots for tails. A cache whose tail outgrew its slot, or that is gone, has no slot.

    The buffer is [2, layers, slots, kv_heads, columns, head_dim]; None before the first tail.
    """

    def __init__(self) -> None:
        self.buffer: Tensor | None = None
        self._lodged: list[tuple[weakref.ref[OwnKVCache], Tensor]] = []  # each with its slot

    def __len__(self) -> int:
        """The number of used slots."""
        return len(self._lodged)

    def places(self) -> dict[int, int]:
        """Slots by identity of the live caches."""
        return {id(kv): place for place, (known, _) in enumerate(self._lodged) if (kv := known()) is not None}

    @torch.inference_mode()
    def lodge(self, caches: list[OwnKVCache]) -> None:
        """Moves tails with room for another token into slots after a pass; the others stay in place."""
        self.tidy()
        known = self.places()
        new = [kv for kv in caches if id(kv) not in known and kv.filled < COLUMNS and kv.memory is not None]
        self._make_room(new)
        for kv in new:
            slot = self._slot(len(self))
            _move_in(kv, slot)
            self._lodged.append((weakref.ref(kv), slot))

    @torch.inference_mode()
    def release(self, kv: OwnKVCache) -> None:
        """Moves a tail out, into memory of its own."""
        if id(kv) in self.places():
            kv.move_out()
            self.tidy()

    def forget(self, kv: OwnKVCache) -> None:
        """Releases a tail. Computes nothing: the next pass fills its slot."""
        kv.memory = None
        if not any((owner := known()) is not None and owner.memory is slot for known, slot in self._lodged):
            self._lodged, self.buffer = [], None

    @torch.inference_mode()
    def tidy(self) -> None:
        """Moves the last slots into the free ones."""
        place = 0
        while place < len(self._lodged):
            known, slot = self._lodged[place]
            kv = known()
            if kv is not None and kv.memory is slot and kv.filled < COLUMNS:
                place += 1
                continue
            if kv is not None and kv.memory is slot:
                kv.move_out()
            last, last_slot = self._lodged.pop()
            moved = last()
            if place < len(self._lodged) and moved is not None and moved.memory is last_slot:
                _move_in(moved, slot)
                self._lodged[place] = (last, slot)
        if not self._lodged:
            self.buffer = None

    def _slot(self, place: int) -> Tensor:
        assert self.buffer is not None
        return self.buffer[:, :, place]

    def _make_room(self, new: Sequence[OwnKVCache]) -> None:
        """Allocates a buffer with slots for all, each wide enough for another token in every tail."""
        lodgers = [known() for known, _ in self._lodged]
        tails = [kv for kv in (*lodgers, *new) if kv is not None]
        if not tails:
            return
        columns = min(COLUMNS, -(-(max(kv.filled for kv in tails) + 1) // STEP) * STEP)
        slots = -(-(len(self) + len(new)) // _SLOTS) * _SLOTS
        if self.buffer is not None and slots <= self.buffer.shape[2] and columns <= self.buffer.shape[4]:
            return
        like = tails[0].memory
        assert like is not None
        _, layers, kv_heads, _, size = like.shape
        if refusal(like):
            self.buffer = like.new_zeros((2, layers, slots, kv_heads, columns, size))
        else:  # one call over all tails takes them token by token
            self.buffer = like.new_zeros((2, layers, slots, columns, kv_heads, size)).transpose(3, 4)
        for place, ((known, _), lodger) in enumerate(zip(self._lodged, lodgers, strict=True)):
            slot = self._slot(place)
            if lodger is not None:
                lodger.move(slot)
            self._lodged[place] = (known, slot)


def _move_in(kv: OwnKVCache, slot: Tensor) -> None:
    """Moves a tail to a slot that another tail may have used."""
    kv.move(slot)
    slot[:, :, :, kv.filled :] = 0  # hidden columns have weight 0 but must be finite
