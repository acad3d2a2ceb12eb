"""Feature projectors: small networks whose distances estimate how far two texts' attention maps differ."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.base.events import Working
from engine.maps.store import MapStore

FEATURES = 128
BINS = 4  # of the tokens of a text
_HIDDEN = 256
_LENGTH = 16.0  # tokens that count as 1 in an input
_SCALE = 20.0  # of distances in the training: those of maps are small against the limit of Smooth L1
_SMALL = 0.1  # of the first weights
_DROPPED = 0.5  # of the inputs in a step of the training


@dataclass(frozen=True)
class Training:
    """How projectors are trained.

    Attributes:
        pairs: the most pairs of texts.
        epochs: passes over them.
        batch: pairs of a step.
        rate: the learning rate.
        alpha: the weight of the maps against the lengths.
        seed: of the pairs and the first weights.
        mixed: whether every second pair has any two lengths, as in the paper. Else all pairs have equal
            lengths, if there are any: only such maps are reused, and next to lengths the network does not
            learn the small differences of maps.
    """

    pairs: int = 8192
    epochs: int = 8
    batch: int = 64
    rate: float = 1e-3
    alpha: float = 0.2
    seed: int = 0
    mixed: bool = False


def pooled(states: Tensor) -> Tensor:
    """Returns what a projector reads of a text: its normalized states in bins, and its length.

    Args:
        states: [rows, hidden]. Each row is scaled to a mean square of 1. Adaptive averages over the positions
            give a fixed size.

    Returns:
        Float32 [BINS * hidden + 1].
    """
    rows, hidden = states.shape
    binned = F.adaptive_avg_pool1d(F.rms_norm(states.float(), (hidden,)).T[None], BINS)
    return torch.cat([binned.flatten(), binned.new_tensor([rows / _LENGTH])])


def map_distance(one: Tensor, other: Tensor) -> Tensor:
    """Returns the mean of ½‖A₁[p,:] − A₂[p,:]‖₂ over heads and rows p of each layer, [layers].

    Maps of different lengths are compared in the rows that both have.

    Args:
        one: [layers, heads, rows, rows].
        other: the same of another text.
    """
    rows = min(one.shape[-1], other.shape[-1])
    away = one[..., :rows, :rows].float() - other[..., :rows, :rows].float()
    distances: Tensor = torch.linalg.vector_norm(away, dim=-1)
    return distances.mean((1, 2)) / 2


class Projector(nn.Module):
    """Two-layer perceptrons, one for whole texts, and optionally one for each layer.

    Args:
        count: their number.
        width: the size of an input.
        seed: of the weights.
    """

    def __init__(self, count: int, width: int, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def weights(size: int, out: int) -> nn.Parameter:
            bound = size**-0.5 * (_SMALL if size == width else 1)
            return nn.Parameter(torch.empty(count, size, out).uniform_(-bound, bound, generator=generator))

        def zeros(size: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(count, 1, size))

        self.first, self.first_bias = weights(width, _HIDDEN), zeros(_HIDDEN)
        self.second, self.second_bias = weights(_HIDDEN, FEATURES), zeros(FEATURES)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps inputs [count, texts, width] to features [count, texts, 128]."""
        hidden = F.relu(torch.baddbmm(self.first_bias, inputs, self.first))
        return torch.baddbmm(self.second_bias, hidden, self.second) / _SCALE

    def one(self, place: int, given: Tensor) -> Tensor:
        """Maps an input [width] of one projector to features [128]."""
        hidden = F.relu(self.first_bias[place, 0] + given @ self.first[place])
        return (self.second_bias[place, 0] + hidden @ self.second[place]) / _SCALE


def pairs_of(rows: Sequence[int], count: int, seed: int, *, mixed: bool = False) -> list[tuple[int, int]]:
    """Returns pairs of texts, given their lengths: of equal length if there are any, or `mixed` ones."""
    if len(rows) < 2:
        return []
    generator = torch.Generator().manual_seed(seed)
    by_length: dict[int, list[int]] = {}
    for text, length in enumerate(rows):
        by_length.setdefault(length, []).append(text)
    twins = [text for text, length in enumerate(rows) if len(by_length[length]) > 1]

    def drawn(among: Sequence[int]) -> int:
        return among[int(torch.randint(len(among), (), generator=generator))]

    found = []
    for number in range(count):
        equal = bool(twins) and (number % 2 == 0 or not mixed)
        one = drawn(twins if equal else range(len(rows)))
        others = by_length[rows[one]] if equal else range(len(rows))
        found.append((one, drawn([other for other in others if other != one])))
    return found


def trained(
    store: MapStore, keys: Sequence[str], inputs: Tensor, plan: Training
) -> Generator[Working, None, tuple[Projector, list[float]]]:
    """Trains projectors as a Siamese network: distances of features learn distances of maps.

    The first projector learns α times the mean of `map_distance` over all layers plus the difference of
    lengths; each other one learns α times that of its layer.

    Args:
        store: the maps.
        keys: the texts.
        inputs: [projectors, texts, width], in their order.
        plan: how to train.

    Returns:
        The projectors, and the mean loss of each epoch (Smooth L1 of distances times 20).
    """
    count, _, width = inputs.shape
    projector = Projector(count, width, plan.seed)
    rows = [store.entries[key].rows for key in keys]
    targets, known = [], []
    pairs = pairs_of(rows, min(plan.pairs, len(keys) ** 2), plan.seed, mixed=plan.mixed)
    for number, (one, other) in enumerate(pairs):
        if number % plan.batch == 0:
            yield Working("uncached", "pairs", number, len(pairs))
        ours, theirs = store.load(keys[one]), store.load(keys[other])
        if ours is not None and theirs is not None:
            away = plan.alpha * map_distance(ours["maps"], theirs["maps"])
            whole = away.mean() + abs(rows[one] - rows[other])
            targets.append(torch.cat([whole[None], away])[:count])
            known.append((one, other))
    if not known:
        return projector, []
    wanted, places = torch.stack(targets, 1), torch.tensor(known)
    losses, generator = [], torch.Generator().manual_seed(plan.seed)
    with torch.inference_mode(False), torch.enable_grad():
        optimizer = torch.optim.Adam(projector.parameters(), plan.rate)
        slowing = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, plan.epochs)
        for epoch in range(plan.epochs):
            yield Working("uncached", "training", epoch, plan.epochs)
            total = 0.0
            for chosen in torch.split(torch.randperm(len(known), generator=generator), plan.batch):
                first, second = places[chosen].unbind(1)
                read = torch.rand(width, generator=generator).ge(_DROPPED) / (1 - _DROPPED)
                away = (projector(inputs[:, first] * read) - projector(inputs[:, second] * read)) * _SCALE
                apart = (away.square().sum(-1) + 1e-12).sqrt()
                loss = F.smooth_l1_loss(apart, wanted[:, chosen] * _SCALE, reduction="none").mean(1).sum()
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
                total += loss.item() * len(chosen)
            slowing.step()
            losses.append(total / len(known))
    return projector.eval().requires_grad_(False), losses
