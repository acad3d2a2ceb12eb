"""The tokens to compute before the first token, repaired ones included, and the segments to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.base.segment import Placement
from engine.inference.repair import choosing, chosen, rows, with_hidden
from engine.inference.run_settings import Repair
from engine.model.model import Model
from engine.prompt.pieces import PromptPlan
from engine.prompt.recipe import RecipeSlice


@dataclass(frozen=True)
class Prefill:
    """The work before the first token.

    Attributes:
        placements: segments to read; empty for a full prefill.
        token_ids: tokens to compute.
        positions: positions of those tokens, ascending.
        prompt: all tokens of the prompt.
        end: the position after the last token.
        choosing: cost of choosing the repaired tokens, in tokens that pass through the whole network.
        encoded: how many of the tokens to read were encoded in this run.
        continued: the prompt has no turns, so the answer continues its text.
    """

    placements: Sequence[Placement]
    token_ids: Sequence[int]
    positions: Sequence[int]
    prompt: Sequence[int]
    end: int
    choosing: int = 0
    encoded: int = 0
    continued: bool = False

    @property
    def work(self) -> int:
        """Tokens that pass through the network before the first token, those for choosing included."""
        return len(self.token_ids) + self.choosing


def whole(plan: PromptPlan) -> Prefill:
    """A prefill that computes every token."""
    return Prefill((), plan.token_ids, plan.positions, plan.token_ids, plan.end)


def prefill(
    model: Model,
    plan: PromptPlan,
    slices: Sequence[RecipeSlice | None],
    placements: list[Placement],
    repair: str,
) -> Prefill:
    """Plans a prefill; the tokens to compute include those of the repair.

    Raises:
        SettingsError: the model does not support this repair.
    """
    wish = Repair.parse(repair)
    if wish.kind == "none":
        return Prefill(placements, plan.new_tokens, plan.new_positions, plan.token_ids, plan.end)
    again = chosen(wish, model, plan, slices, placements)
    cost = choosing(wish, model, plan, slices)
    return Prefill(with_hidden(placements, again), *rows(plan, again), plan.token_ids, plan.end, cost)
