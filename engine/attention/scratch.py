"""Buffers that are reused from layer to layer and from call to call."""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor


class Scratch:
    """Buffers that are reused from layer to layer and call to call (fresh memory costs page faults).

    Attributes:
        turn: is held while a pass uses them; passes of other threads wait for it.
    """

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Returns an uninitialised tensor of this shape, with the dtype and device of `like`."""
        count = math.prod(shape)
        held = self._held.get(name)
        if held is None or held.numel() < count or held.dtype != like.dtype or held.device != like.device:
            held = self._held[name] = torch.empty(count, dtype=like.dtype, device=like.device)
        return held[:count].view(shape)
