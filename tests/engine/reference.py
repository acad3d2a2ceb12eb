"""The dense reference: the same states by plain transformers, concatenated, with an explicit 4-D mask.

Shares no code with attention over segments: keys are not turned but computed at their place, by the
model's own eager attention.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from engine.layout import SchemaLayout, Scope
from engine.plan import PromptPlan

FORBIDDEN = -1e30


def _mask(allowed: Tensor) -> Tensor:
    return torch.where(allowed, 0.0, FORBIDDEN)[None, None]


@torch.no_grad()
def dense_logits(network: Any, layout: SchemaLayout, plan: PromptPlan, scope: Scope) -> Tensor:
    """Logits [new tokens, vocabulary] of the prompt's new tokens over concatenated keys and values."""
    network.set_attn_implementation("eager")
    layers = network.config.num_hidden_layers
    keys: list[list[Tensor]] = [[] for _ in range(layers)]
    values: list[list[Tensor]] = [[] for _ in range(layers)]
    key_positions: list[int] = []
    for piece in plan.pieces:
        if not piece.cached:
            continue
        context = [t for run in layout.context(piece.run, scope) for t in run.token_ids]
        shift = piece.start - piece.lo
        tokens = [*context, *piece.run.token_ids]
        positions = torch.arange(len(tokens))[None] - len(context) + shift
        cache = DynamicCache()
        network(torch.tensor([tokens]), position_ids=positions, past_key_values=cache, use_cache=True)
        lo = len(context) + piece.lo
        for layer, states in enumerate(cache.layers):
            keys[layer].append(states.keys[:, :, lo : lo + piece.tokens])
            values[layer].append(states.values[:, :, lo : lo + piece.tokens])
        key_positions.extend(range(piece.start, piece.start + piece.tokens))
    cache = DynamicCache()
    if key_positions:
        for layer in range(layers):
            cache.update(torch.cat(keys[layer], 2), torch.cat(values[layer], 2), layer)
    new = torch.tensor(plan.new_positions)
    at = torch.cat([torch.tensor(key_positions, dtype=torch.long), new])
    out = network(
        torch.tensor([plan.new_tokens]),
        position_ids=new[None],
        past_key_values=cache,
        use_cache=True,
        attention_mask=_mask(at[None] <= new[:, None]),
    )
    return out.logits[0]


@torch.no_grad()
def masked_pass_logits(network: Any, layout: SchemaLayout, plan: PromptPlan, scope: Scope) -> Tensor:
    """Logits of the new tokens from one full pass, in which a module's rows see their context only.

    Defined where every run stands directly behind its context and no argument is shorter than its slot.
    """
    network.set_attn_implementation("eager")
    owner: list[int | None] = []
    for piece in plan.pieces:
        owner.extend([piece.run.index if piece.cached else None] * piece.tokens)
    runs = {run.index: run for run in layout.runs}
    n = len(owner)
    allowed = torch.zeros(n, n, dtype=torch.bool)
    for row, run in enumerate(owner):
        for column in range(row + 1):
            if run is None:
                allowed[row, column] = True
            else:
                seen = {run, *(r.index for r in layout.context(runs[run], scope))}
                allowed[row, column] = owner[column] in seen
    tokens = torch.tensor([plan.token_ids])
    logits = network(tokens, position_ids=torch.arange(n)[None], attention_mask=_mask(allowed)).logits[0]
    return logits[[i for i, run in enumerate(owner) if run is None]]
