"""Buffers that layers and calls share."""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor


class Scratch:
    """Buffers that layers and calls share, because fresh memory costs page faults.

    A pass that uses them holds the lock `turn`; passes of other threads wait.
    """

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self._held: dict[str, Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Returns an uninitialised tensor of this shape, with the dtype and device of `like`."""
        count = math.prod(shape)
        buffer = self._held.get(name)
        if (
            buffer is None
            or buffer.numel() < count
            or buffer.dtype != like.dtype
            or buffer.device != like.device
        ):
            buffer = self._held[name] = torch.empty(count, dtype=like.dtype, device=like.device)
        return buffer[:count].view(shape)
