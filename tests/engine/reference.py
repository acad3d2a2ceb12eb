"""The dense reference: the same states by plain transformers, concatenated, with explicit 4-D masks.

Shares no code with the engine's attention: keys are not turned but computed at their place, by the model's
own eager attention; ALiBi comes from positions that are written into the model's own bias.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from transformers import DynamicCache

from engine.prompt.layout import SchemaLayout
from engine.prompt.pieces import PromptPlan
from engine.prompt.recipe import Recipe, RecipeSlice

FORBIDDEN = -1e30
LIFT = 64  # added to all positions, so that contexts before the prompt's start have positions too

States = list[tuple[Tensor, Tensor]]


class Reference:
    """A plain network, asked with explicit positions and masks.

    Args:
        network: of transformers.
        relocatable: False for learned positions, which are taken as they are.
    """

    def __init__(self, network: Any, *, relocatable: bool = True) -> None:
        self.network, self.lift = network, LIFT if relocatable else 0
        self.config = network.config.get_text_config()
        if network._can_set_attn_implementation():
            network.set_attn_implementation("eager")
        self._known: dict[tuple[str, int], States] = {}

    @torch.no_grad()
    def logits(self, plan: PromptPlan, uses: Sequence[RecipeSlice | None]) -> Tensor:
        """Logits [new tokens, vocabulary] of the prompt's new tokens over concatenated keys and values."""
        past, at = self._assembled([use for use in uses if use is not None], 0)
        new = torch.tensor(plan.new_positions)
        return self._run(plan.new_tokens, new, past, at).logits[0]

    @torch.no_grad()
    def masked_pass(self, tokens: Sequence[int], positions: Sequence[int], allowed: Tensor) -> Tensor:
        """Logits of one pass over a whole prompt in which row i sees column j where allowed[i, j]."""
        return self._run(tokens, torch.tensor(positions), None, torch.tensor([]), allowed).logits[0]

    @torch.no_grad()
    def repaired(self, plan: PromptPlan, uses: Sequence[RecipeSlice | None], again: frozenset[int]) -> Tensor:
        """Logits of all computed tokens where the tokens at these positions are taken from no segment."""
        past, at = self._assembled([use for use in uses if use is not None], 0)
        wanted = sorted(again.union(plan.new_positions))
        token_at = dict(zip(plan.positions, plan.token_ids, strict=True))
        stale = torch.tensor([place not in again for place in at.tolist()])
        rows = torch.tensor(wanted)
        allowed = torch.cat([stale & (at <= rows[:, None]), rows <= rows[:, None]], 1)
        return self._run([token_at[place] for place in wanted], rows, past, at, allowed).logits[0]

    def _assembled(self, seen: Sequence[RecipeSlice], away: int) -> tuple[States | None, Tensor]:
        parts, positions = [], []
        for one in seen:
            states = self._states(one.recipe, one.start + away - one.lo)
            parts.append(
                [(keys[:, :, one.lo : one.hi], values[:, :, one.lo : one.hi]) for keys, values in states]
            )
            positions.extend(range(one.start + away, one.start + away + one.hi - one.lo))
        if not parts:
            return None, torch.tensor([], dtype=torch.long)
        layers = zip(*parts, strict=True)
        return (
            [(torch.cat([k for k, _ in layer], 2), torch.cat([v for _, v in layer], 2)) for layer in layers],
            torch.tensor(positions),
        )

    def _states(self, recipe: Recipe, at: int) -> States:
        """Keys and values of a recipe's tokens, the first of which stands at `at`."""
        if (recipe.key, at) not in self._known:
            past, before = self._assembled(recipe.context, at - recipe.start)
            count = 0 if past is None else past[0][0].shape[2]
            out = self._run(recipe.token_ids, torch.arange(at, at + recipe.tokens), past, before)
            layers = out.past_key_values.layers
            self._known[recipe.key, at] = [(la.keys[:, :, count:], la.values[:, :, count:]) for la in layers]
        return self._known[recipe.key, at]

    def _run(
        self,
        tokens: Sequence[int],
        rows: Tensor,
        past: States | None,
        at: Tensor,
        allowed: Tensor | None = None,
    ) -> Any:
        cache = DynamicCache()
        for layer, (keys, values) in enumerate(past or []):
            cache.update(keys, values, layer)
        columns = torch.cat([at.long(), rows])
        seen = columns[None] <= rows[:, None] if allowed is None else allowed
        near = rows[:, None] - columns[None]
        with self._alibi(columns):
            return self.network(
                torch.tensor([list(tokens)]),
                position_ids=rows[None] + self.lift,
                past_key_values=cache,
                use_cache=True,
                attention_mask=self._masks(seen, near),
            )

    def _masks(self, seen: Tensor, near: Tensor) -> Any:
        window = getattr(self.config, "sliding_window", None)
        kinds = getattr(self.config, "layer_types", None)
        if not window:
            return _mask(seen)
        sliding = _mask(seen & (near < window))
        if not kinds:
            return sliding
        return {"full_attention": _mask(seen), "sliding_attention": sliding}

    @contextlib.contextmanager
    def _alibi(self, columns: Tensor) -> Iterator[None]:
        """Replaces the bias that a model builds from indices by the same one built from positions."""
        kind = self.config.model_type
        if kind == "bloom":
            from transformers.models.bloom.modeling_bloom import _get_alibi_slopes

            def bloom(_mask: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
                return (_get_alibi_slopes(heads, "cpu")[:, None, None] * columns).to(dtype)

            with mock.patch.object(self.network.transformer, "build_alibi_tensor", bloom):
                yield
        elif kind == "mpt":
            from transformers.models.mpt import modeling_mpt

            def mpt(heads: int, _length: int, alibi_bias_max: int = 8, device: Any = None) -> Tensor:
                slopes = -modeling_mpt.build_mpt_alibi_tensor(heads, 2, alibi_bias_max, device)[:, :, :1]
                return slopes * columns

            with mock.patch.object(self.network.transformer, "build_mpt_alibi_tensor", mpt):
                yield
        elif kind == "falcon" and self.config.alibi:
            from transformers.models.falcon import modeling_falcon

            unit = modeling_falcon.build_alibi_tensor
            heads = self.config.num_attention_heads

            def falcon(_mask: Tensor, _heads: int, dtype: torch.dtype) -> Tensor:
                slopes = unit(torch.ones(1, 2, dtype=torch.long), heads, torch.float32)[:, :, 1:]
                return (slopes * columns).to(dtype)

            with mock.patch.object(modeling_falcon, "build_alibi_tensor", falcon):
                yield
        else:
            yield


def _mask(allowed: Tensor) -> Tensor:
    return torch.where(allowed, 0.0, FORBIDDEN)[None, None]


def sight_of_modules(layout: SchemaLayout, plan: PromptPlan, scope: Any) -> Tensor:
    """Which row of a prompt sees which column where a module's rows see their context only, as a bool matrix.

    Defined where every run stands directly behind its context and no argument is shorter than its slot.
    """
    owner: list[int | None] = []
    for piece in plan.pieces:
        owner.extend([piece.run.index if piece.cached and piece.run else None] * piece.tokens)
    runs = {run.index: run for run in layout.runs}
    allowed = torch.ones(len(owner), len(owner), dtype=torch.bool).tril()
    for row, run in enumerate(owner):
        if run is not None:
            seen = {run, *(r.index for r in layout.context(runs[run], scope))}
            allowed[row] &= torch.tensor([column in seen for column in owner])
    return allowed
