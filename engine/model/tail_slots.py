"""The short tails of many KV caches in one buffer, so that one call attends to all of them."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from engine.model.kv_cache import OwnKVCache
from engine.model.varlen_attention import refusal

COLUMNS = 256  # of a slot; one call for each of longer tails costs no more than one over all of them
_FEWEST = 4  # slots at first


class TailSlots:
    """Where tails lie side by side. A cache whose tail grew beyond its slot, or that is gone, has none.

    Attributes:
        buffer: [2, layers, slots, kv_heads, columns, head_dim]; None before the first tail.
    """

    def __init__(self) -> None:
        self.buffer: Tensor | None = None
        self._lodged: list[tuple[weakref.ref[OwnKVCache], Tensor]] = []  # each with its slot

    def __len__(self) -> int:
        """How many slots are taken."""
        return len(self._lodged)

    def places(self) -> dict[int, int]:
        """Slots by identity of the cache, of those that are still there."""
        return {id(kv): place for place, (known, _) in enumerate(self._lodged) if (kv := known()) is not None}

    @torch.inference_mode()
    def lodge(self, caches: list[OwnKVCache]) -> None:
        """Moves tails with room for another token into slots of their own; the others stay where they are.

        Args:
            caches: over which a pass has run.
        """
        self.tidy()
        known = self.places()
        new = [kv for kv in caches if id(kv) not in known and kv.filled < COLUMNS and kv.memory is not None]
        if new:
            self._make_room(len(self) + len(new), new[0])
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
        """Lets go of a tail that is needed no more. Computes nothing: its slot is filled by the next pass."""
        kv.memory = None
        if not any((one := known()) is not None and one.memory is slot for known, slot in self._lodged):
            self._lodged, self.buffer = [], None

    @torch.inference_mode()
    def tidy(self) -> None:
        """Fills the slots that nobody is in any more by the last ones."""
        place = 0
        while place < len(self._lodged):
            known, slot = self._lodged[place]
            kv = known()
            if kv is not None and kv.memory is slot and kv.filled < COLUMNS:
                place += 1
                continue
            if kv is not None and kv.memory is slot:
                kv.move_out()
            last, its_own = self._lodged.pop()
            moved = last()
            if place < len(self._lodged) and moved is not None and moved.memory is its_own:
                _move_in(moved, slot)
                self._lodged[place] = (last, slot)
        if not self._lodged:
            self.buffer = None

    def _slot(self, place: int) -> Tensor:
        assert self.buffer is not None
        return self.buffer[:, :, place]

    def _make_room(self, count: int, kv: OwnKVCache) -> None:
        """Takes a buffer of so many slots at least, of the form of a cache's memory."""
        held = 0 if self.buffer is None else self.buffer.shape[2]
        if count <= held:
            return
        assert kv.memory is not None
        _, layers, kv_heads, _, size = kv.memory.shape
        slots = max(_FEWEST, 1 << (count - 1).bit_length())
        if refusal(kv.memory):
            self.buffer = kv.memory.new_zeros((2, layers, slots, kv_heads, COLUMNS, size))
        else:  # one call over all tails takes them token by token
            self.buffer = kv.memory.new_zeros((2, layers, slots, COLUMNS, kv_heads, size)).transpose(3, 4)
        for place, (known, _) in enumerate(self._lodged):
            lodger, slot = known(), self._slot(place)
            if lodger is not None:
                lodger.move(slot)
            self._lodged[place] = (known, slot)


def _move_in(kv: OwnKVCache, slot: Tensor) -> None:
    """Moves a tail to a slot in which another may have been."""
    kv.move(slot)
    slot[:, :, :, kv.filled :] = 0  # what is hidden is weighted by nothing, and must be a number
