"""Summaries of schemas and prompts by position, for reports and pages. No tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.base.tiers import TIERS, Tier
from engine.prompt.layout import SchemaLayout, TextRun
from engine.prompt.pieces import Piece, PromptPlan


@dataclass(frozen=True)
class ModuleLayout:
    """One module of a schema.

    Attributes:
        start: first position under the schema's own positions.
        tokens: number of tokens of its own text, including slots.
        total_tokens: also counts nested modules; for a union, the longest member.
        bytes: size of its own keys and values.
        cached: the slowest tier of its own text; ignores separate separators, because few prompts read them.
        params: length of each parameter, in tokens.
    """

    path: str
    start: int
    tokens: int
    total_tokens: int
    bytes: int
    cached: Tier
    params: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name."""
        return asdict(self)


@dataclass(frozen=True)
class LayoutSummary:
    """A schema with positions and sizes."""

    modules: tuple[ModuleLayout, ...]
    total_positions: int
    anonymous_tokens: int

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `pml layout --json` prints."""
        return {
            "modules": [module.to_json() for module in self.modules],
            "total_positions": self.total_positions,
            "anonymous_tokens": self.anonymous_tokens,
        }


@dataclass(frozen=True)
class PlanSummary:
    """A prompt with positions, sizes, and the origin of each part."""

    parts: tuple[dict[str, Any], ...]
    total_tokens: int
    cached_tokens: int

    @property
    def new_tokens(self) -> int:
        """The number of tokens that must be computed."""
        return self.total_tokens - self.cached_tokens

    def strip(self) -> list[dict[str, Any]]:
        """Returns the parts in position order: kind, path, start, tokens, cached, bytes, label, why."""
        return [dict(part) for part in self.parts]


def summarize_layout(
    layout: SchemaLayout, tier: Callable[[TextRun], Tier], bytes_per_token: int
) -> LayoutSummary:
    """Summarizes a schema; `tier` returns the tier of a run's segment."""
    modules = []
    for module in layout.modules:
        tiers = [tier(run) for run in layout.runs if run.path == module.path and run.seam < run.tokens]
        lowest = min(tiers, key=TIERS.index, default=Tier.NONE)
        modules.append(
            ModuleLayout(
                module.path,
                module.start,
                module.tokens,
                module.total_tokens,
                module.tokens * bytes_per_token,
                lowest,
                module.params,
            )
        )
    return LayoutSummary(tuple(modules), layout.total_positions, layout.anonymous_tokens)


def summarize_plan(plan: PromptPlan, tiers: Sequence[Tier], bytes_per_token: int) -> PlanSummary:
    """Summarizes a prompt; `tiers` has the tier of each piece."""
    parts = []
    for piece, tier in zip(plan.pieces, tiers, strict=True):
        parts.append(
            {
                "kind": piece.kind,
                "path": piece.path,
                "start": piece.start,
                "tokens": piece.tokens,
                "cached": tier,
                "bytes": piece.tokens * bytes_per_token if piece.cached else 0,
                "label": piece.path or _label(piece),
                "why": piece.why,
            }
        )
    return PlanSummary(tuple(parts), plan.total_tokens, plan.cached_tokens)


def _label(piece: Piece) -> str:
    if piece.turn:
        return "earlier turn"
    return {"anonymous": "fixed text", "text": "new text"}.get(piece.kind, "")
