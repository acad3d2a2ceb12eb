"""One prompt on the engine's own path, step by step, for tests that look between the steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from engine.base.segment import Placement, Segment
from engine.base.stopwatch import Stopwatch
from engine.cache.fetched import Request
from engine.cache.segment_cache import wanted
from engine.engine import Engine
from engine.inference.repair import chosen, rows, with_hidden
from engine.inference.run_settings import Repair
from engine.inference.step_lock import returned
from engine.kv_cache.packed_kv_cache import PackedText, empty_segment
from engine.model.model import Model
from engine.pml import parse_prompt, parse_schema
from engine.prompt.pieces import PromptPlan
from tests.engine.tiny import tiny_model


def schema_of(source: str) -> Any:
    """The tree of a schema without errors."""
    parsed = parse_schema(source)
    assert parsed.ok, parsed.diagnostics
    return parsed.tree


def prompt_of(source: str) -> Any:
    """The tree of a prompt without errors."""
    parsed = parse_prompt(source)
    assert parsed.ok, parsed.diagnostics
    return parsed.tree


def held_in_memory(engine: Engine) -> dict[str, Segment]:
    """The segments that a prompt would find in memory, by key."""
    found = {}
    for key in sorted(engine.memory_tier.keys()):
        handle = engine.memory_tier.acquire(key)
        assert handle is not None
        with handle:
            found[key] = handle.segment
    return found


def plan_of(engine: Engine, schema: Any, prompt: Any, placement: Any = "compact") -> PromptPlan:
    """A prompt along its positions."""
    return engine.schema(schema).prompt(prompt).tokenized.planned(None, placement).plan


class Case:
    """The product's own path for one prompt, up to the placements of its segments."""

    def __init__(
        self, engine: Engine, schema: Any, prompt: Any, scope: Any = "anchored", placement: Any = "compact"
    ) -> None:
        self.engine, self.model = engine, engine.model
        prepared = engine.schema(schema)
        planned = prepared.prompt(prompt).tokenized.planned(scope, placement)
        self.layout, self.plan, self.uses = planned.layout, planned.plan, planned.slices
        self.book = prepared.tokenized.recipes(scope, placement)
        steps = engine.segment_cache.segments(wanted(self.uses), Request(schema.name, scope), Stopwatch())
        self.supplied = returned(steps)
        self.placements = self.supplied.place(self.uses)

    def again(self, repair: str) -> frozenset[int]:
        """Positions of the cached tokens that a repair computes again."""
        return chosen(Repair.parse(repair), self.model, self.plan, self.uses, self.placements)

    def logits(self, repair: str = "none") -> torch.Tensor:
        """Logits of all tokens that are computed."""
        again = self.again(repair)
        tokens, positions = rows(self.plan, again)
        kv = self.model.network.kv_cache(with_hidden(self.placements, again), len(tokens))
        return self.model.network.forward(tokens, positions, kv, keep=len(tokens))

    def full(self) -> torch.Tensor:
        """Logits of all tokens in one pass without segments."""
        plan = self.plan
        kv = self.model.network.kv_cache((), plan.total_tokens)
        return self.model.network.forward(plan.token_ids, plan.positions, kv, keep=plan.total_tokens)


def encoded(
    model: Model, key: str, token_ids: Sequence[int], context: Sequence[Placement] = (), start: int = 0
) -> Segment:
    """A segment of these tokens from a pass of their own."""
    segment = empty_segment(model.form, key, token_ids, model.network.device)
    model.network.encode([PackedText(segment, start, tuple(context))])
    return segment


@cache
def model_of(family: str, chat: bool = True) -> Model:
    """A tiny model, built once for all tests."""
    return tiny_model(family, chat=chat)


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """The greatest difference."""
    return (one - other).abs().max().item()
