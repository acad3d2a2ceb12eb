"""The two sides of a measurement: the uncached one, whose answer both read, and the cached one beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.attention.rope import move_keys
from engine.base.segment import Placement, Segment
from engine.fidelity.teacher_forcing import Reading, read
from engine.inference.generation import Sequence as Answering
from engine.inference.prefill import Prefill, prefill, whole
from engine.inference.run_settings import SamplingParams
from engine.model.model import Model
from engine.prompt.pieces import PromptPlan
from engine.prompt.recipe import RecipeSlice


@dataclass(frozen=True)
class UncachedSide:
    """What everything is compared with.

    Attributes:
        model: the model that answers.
        plan: the plan of the prompt.
        answer: the tokens of the greedy answer.
        ended: whether the model ended it.
        reading: the side's reading of that answer.
        states: keys and values of the prompt in a full pass, as a segment.
    """

    model: Model
    plan: PromptPlan
    answer: Sequence[int]
    ended: bool
    reading: Reading
    states: Segment

    @classmethod
    def of(cls, model: Model, plan: PromptPlan, max_new_tokens: int) -> UncachedSide:
        """Answers greedily, with every token computed."""
        answering = Answering(
            model, whole(plan), SamplingParams(max_new_tokens=max_new_tokens, speculate="off")
        )
        logits = []
        states: Segment | None = None
        while answering.ending is None:
            answering.step()
            assert answering.kv is not None
            assert answering.logits is not None
            if states is None:
                keys, values = (tail.clone() for tail in answering.kv.tail)
                states = Segment("full", tuple(plan.token_ids), keys, values)
            logits.append(answering.logits)
        assert states is not None
        reading = Reading.of_logits(torch.stack(logits))
        return cls(model, plan, answering.token_ids, answering.ending != "length", reading, states)

    def read(self, prefill: Prefill) -> Reading:
        """Has another side read the answer, from what it computes and reads of the prompt."""
        return read(self.model, prefill, self.answer)

    def flips(self, reading: Reading) -> list[int]:
        """Where in the answer a reading finds another token likeliest."""
        agreement = reading.agreement(self.reading).tolist()
        return [place for place, agrees in enumerate(agreement) if not agrees]

    def states_of(self, placement: Placement) -> tuple[Tensor, Tensor]:
        """The keys, at local positions 0..n-1, and values of what a placement covers."""
        at = self.plan.positions.index(placement.start)
        cut = slice(at, at + placement.tokens)
        keys = move_keys(self.states.keys[:, :, cut], self.model.rotaries, -placement.start)
        return keys, self.states.values[:, :, cut]

    def in_place_of(self, placement: Placement) -> Placement:
        """The same place with the keys and values of the full pass."""
        local = Segment("full", self.states.token_ids[: placement.tokens], *self.states_of(placement))
        return Placement(local, 0, placement.tokens, placement.start)


@dataclass(frozen=True)
class CachedSide:
    """A way to read the prompt from segments; each change of it is another side.

    Attributes:
        uncached: the side it is compared with.
        slices: the slice that each piece of the prompt reads.
        placements: the segments in their places.
        repair: "none", "link:K", "blend:R", "query:R" or "impact:R".
    """

    uncached: UncachedSide
    slices: Sequence[RecipeSlice | None]
    placements: list[Placement]
    repair: str = "none"

    def prefill(self) -> Prefill:
        """What it computes and what it reads.

        Raises:
            SettingsError: the model cannot be repaired like this.
        """
        return prefill(self.uncached.model, self.uncached.plan, self.slices, self.placements, self.repair)

    def read(self) -> Reading:
        """Reads the uncached side's answer.

        Raises:
            SettingsError: as for `prefill`.
        """
        return self.uncached.read(self.prefill())

    def repaired(self, repair: str) -> CachedSide:
        """The same segments, repaired otherwise."""
        return replace(self, repair=repair)

    def of_module(self, path: str) -> list[Placement]:
        """The placements of one module."""
        own = {use.start for of, use in cached_pieces(self.uncached.plan, self.slices) if of == path}
        return [placement for placement in self.placements if placement.start in own]

    def without(self, hidden: Sequence[Placement]) -> CachedSide:
        """Unrepaired, with some placements hidden."""
        starts = {placement.start for placement in hidden}
        return replace(self, placements=[p for p in self.placements if p.start not in starts], repair="none")

    def mended(self, chosen: Sequence[Placement]) -> CachedSide:
        """Unrepaired, with some placements as they are in a full pass."""
        starts = {placement.start for placement in chosen}
        placements = [self.uncached.in_place_of(p) if p.start in starts else p for p in self.placements]
        return replace(self, placements=placements, repair="none")

    def deviations(self, placements: Sequence[Placement]) -> tuple[float, float]:
        """Distance of stored keys, and of values, from a full pass's, by their length; mean over layers."""
        pairs = [(self._stored(placement), self.uncached.states_of(placement)) for placement in placements]
        found = []
        for which in (0, 1):
            apart = sum((one[which] - other[which]).float().pow(2).sum((1, 2, 3)) for one, other in pairs)
            length = sum(other[which].float().pow(2).sum((1, 2, 3)) for _, other in pairs)
            assert isinstance(apart, Tensor)
            assert isinstance(length, Tensor)
            found.append(float((apart / length).sqrt().mean()))
        return found[0], found[1]

    def _stored(self, placement: Placement) -> tuple[Tensor, Tensor]:
        cut, segment = slice(placement.lo, placement.hi), placement.segment
        keys = move_keys(segment.keys[:, :, cut], self.uncached.model.rotaries, -placement.lo)
        return keys, segment.values[:, :, cut]


def cached_pieces(plan: PromptPlan, slices: Sequence[RecipeSlice | None]) -> list[tuple[str, RecipeSlice]]:
    """What a prompt reads of its schema, by path of the module, "" for anonymous text, in order.

    Args:
        plan: the plan of the prompt.
        slices: the slice that each of its pieces reads.
    """
    pairs = zip(plan.pieces, slices, strict=True)
    return [(piece.path, use) for piece, use in pairs if use is not None and not piece.turn]
