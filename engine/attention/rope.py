"""Rotary position embeddings, for reading a key at another place.

After a rotation by `p`, attention depends only on the distance of query and key (RoFormer, section 3.2). A
query that is rotated back reads a key as if the key had moved.
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
        interleaved: True for pairs (0, 1), (2, 3), …; False for pairs (i, i + rotary_dim / 2).
    """

    inverse_frequency: Tensor
    interleaved: bool = False

    @property
    def dim(self) -> int:
        """Rotated channels of a head."""
        return 2 * self.inverse_frequency.numel()

    def angles(self, positions: Sequence[int], device: torch.device) -> tuple[Tensor, Tensor]:
        """Returns cosine and sine, each [positions, rotary_dim] in fp32.

        The angles are computed in fp64 on the CPU, because some accelerators lack it. Positions may be
        negative.
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
        """Returns the sine [..., rotary_dim] with the sign of each channel in a rotation."""
        signs = torch.tensor([-1.0, 1.0], device=sine.device)
        half = self.dim // 2
        return sine * (signs.repeat(half) if self.interleaved else signs.repeat_interleave(half))

    def turn(self, x: Tensor, cosine: Tensor, sine: Tensor, scratch: Scratch) -> None:
        """Rotates a contiguous x [..., tokens, head_dim] in place, like `rotate`, in fp32 and rounded once.

        The fresh memory of `rotate` costs more than its computation. The cosine is [tokens, rotary_dim] in
        fp32, and so is the sine, with the signs of `signed`.
        """
        rotated, half, like = x[..., : self.dim], self.dim // 2, x.new_empty((), dtype=torch.float32)
        shape = tuple(rotated.shape)
        part = rotated if x.dtype == torch.float32 else scratch.take("turned", shape, like).copy_(rotated)
        swapped = scratch.take("swapped", shape, like)
        if self.interleaved:
            swapped[..., ::2], swapped[..., 1::2] = part[..., 1::2], part[..., ::2]
        else:
            torch.cat([part[..., half:], part[..., :half]], -1, out=swapped)
        part.mul_(cosine).addcmul_(swapped, sine)
        if part is not rotated:
            rotated.copy_(part)

    def shift(self, keys: Tensor, by: int) -> Tensor:
        """Returns keys [..., head_dim] moved by `by` positions."""
        if not by:
            return keys
        cosine, sine = self.angles([by], keys.device)
        return self.rotate(keys, cosine, sine)


Rotaries = tuple[Rotary | None, ...]
"""One entry per attention layer; None for a layer whose keys have no position."""


def move_keys(keys: Tensor, rotaries: Rotaries, by: int) -> Tensor:
    """Returns the keys of all layers, [layers, kv_heads, tokens, head_dim], moved by `by` positions."""
    if not by or not any(rotaries):
        return keys
    first = rotaries[0]
    if first is not None and all(rotary is first for rotary in rotaries):
        return first.shift(keys, by)
    layers = zip(keys, rotaries, strict=True)
    return torch.stack([rotary.shift(layer, by) if rotary else layer for layer, rotary in layers])
