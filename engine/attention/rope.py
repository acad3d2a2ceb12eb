"""Rotary position embeddings, as far as reading a key at another place needs them.

A rotation by `p` makes attention depend on the distance of query and key only (RoFormer, section 3.2), so
a query that is turned back reads a key as if the key had moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.attention.scratch import Scratch


@dataclass(frozen=True, eq=False)
class Rotary:
    """The rotary embedding of one or more layers.

    Attributes:
        inverse_frequency: [rotary_dim / 2], fp32, radians per position, on the CPU.
        interleaved: True where pairs are (0, 1), (2, 3), …; False where they are (i, i + rotary_dim / 2).
    """

    inverse_frequency: Tensor
    interleaved: bool = False

    @property
    def dim(self) -> int:
        """Channels of a head that are rotated."""
        return 2 * self.inverse_frequency.numel()

    def angles(self, positions: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
        """Returns cosine and sine, each [positions, rotary_dim] in fp32.

        Angles are taken in fp64, on the CPU: some accelerators have none.

        Args:
            positions: the positions to rotate to, negative ones included.
            device: the device of what is returned.
        """
        turns = torch.tensor(positions, dtype=torch.float64)[:, None] * self.inverse_frequency.double()
        doubled = turns.repeat_interleave(2, -1) if self.interleaved else torch.cat([turns, turns], -1)
        return doubled.cos().float().to(device), doubled.sin().float().to(device)

    def rotate(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Rotates the first `dim` channels of x [..., head_dim]; cosine and sine broadcast to those."""
        part = x[..., : self.dim].float()
        if self.interleaved:
            swapped = torch.stack([-part[..., 1::2], part[..., 0::2]], -1).flatten(-2)
        else:
            first, second = part.chunk(2, -1)
            swapped = torch.cat([-second, first], -1)
        turned = torch.addcmul(part * cosine, swapped, sine).to(x.dtype)
        if self.dim == x.shape[-1]:
            return turned
        rest = x[..., self.dim :].expand(*turned.shape[:-1], -1)
        return torch.cat([turned, rest], -1)

    def signed(self, sine: Tensor) -> Tensor:
        """Returns the sine [..., rotary_dim] with the sign that it has in each channel of a rotation."""
        signs = torch.tensor([-1.0, 1.0], device=sine.device)
        half = self.dim // 2
        return sine * (signs.repeat(half) if self.interleaved else signs.repeat_interleave(half))

    def turn(self, x: Tensor, cosine: Tensor, sine: Tensor, scratch: Scratch) -> None:
        """Rotates x [..., tokens, head_dim] in its memory, as `rotate` does, in fp32 and rounded once.

        Fresh memory, which `rotate` takes several times, costs more than what it computes.

        Args:
            x: contiguous.
            cosine: [tokens, rotary_dim] in fp32.
            sine: as the cosine, with the signs of `signed`.
            scratch: the buffers.
        """
        given, half, like = x[..., : self.dim], self.dim // 2, x.new_empty((), dtype=torch.float32)
        shape = tuple(given.shape)
        part = given if x.dtype == torch.float32 else scratch.take("turned", shape, like).copy_(given)
        swapped = scratch.take("swapped", shape, like)
        if self.interleaved:
            swapped[..., ::2], swapped[..., 1::2] = part[..., 1::2], part[..., ::2]
        else:
            torch.cat([part[..., half:], part[..., :half]], -1, out=swapped)
        part.mul_(cosine).addcmul_(swapped, sine)
        if part is not given:
            given.copy_(part)

    def shift(self, keys: Tensor, by: int) -> Tensor:
        """Returns keys [..., head_dim] as they would be `by` positions further on."""
        if not by:
            return keys
        cosine, sine = self.angles([by], keys.device)
        return self.rotate(keys, cosine, sine)


Rotaries = tuple[Rotary | None, ...]
"""One entry per attention layer; None for a layer whose keys do not know their position."""


def move_keys(keys: Tensor, rotaries: Rotaries, by: int) -> Tensor:
    """Returns the keys of all layers, [layers, kv_heads, tokens, head_dim], `by` positions further on."""
    if not by or not any(rotaries):
        return keys
    first = rotaries[0]
    if first is not None and all(rotary is first for rotary in rotaries):
        return first.shift(keys, by)
    layers = zip(keys, rotaries, strict=True)
    return torch.stack([rotary.shift(layer, by) if rotary else layer for layer, rotary in layers])
