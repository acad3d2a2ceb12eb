"""Token usage of a request: read + written + rest = prompt, in every API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from app.server.core.caching import MarkResult
from app.server.http.redact_paths import for_clients
from app.server.http.shapes import Count, Reply
from app.server.recent.why import Why
from engine.base.events import Answer, FirstToken, SegmentUse
from engine.base.tiers import Outcome

Read = Annotated[Count, Field(description="Prompt tokens read from the cache.")]
Written = Annotated[Count, Field(description="Prompt tokens computed and stored on disk.")]


_COUNTS = ("prompt", "read", "written", "generated", "approximate")


@dataclass(frozen=True)
class Usage:
    """The tokens of one request."""

    prompt: int  # tokens of its prompt
    read: int = 0  # prompt tokens read from the cache
    written: int = 0  # prompt tokens computed and stored on disk
    generated: int = 0  # tokens of its answer
    approximate: int = 0  # those of `read` that an earlier prompt computed behind other text
    written_for: Mapping[float, int] = field(default_factory=dict)  # by minimum time to live in seconds

    @property
    def rest(self) -> int:
        """Returns the prompt tokens that were neither read nor written."""
        return self.prompt - self.read - self.written

    def drawn(self, draw: int) -> Usage:
        """Returns the tokens that count for a draw of a prompt: for further ones, those of the answer."""
        return Usage(0, generated=self.generated) if draw else self

    def __add__(self, other: Usage) -> Usage:
        """Returns the tokens of two answers."""
        times = {
            time: self.written_for.get(time, 0) + other.written_for.get(time, 0)
            for time in {**self.written_for, **other.written_for}
        }
        counts = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        return Usage(**counts, written_for=times)

    @classmethod
    def of(cls, told: Answer | FirstToken) -> Usage:
        """Returns the counts of an answer, or of its first token."""
        counts = {name: told.tokens.get(name, 0) for name in _COUNTS}
        return cls(**counts, written_for=told.written_for)


class ModuleUse(Reply):
    """A segment, read or missing."""

    path: str
    tokens: Count
    tier: Literal["memory", "disk", "none"]
    outcome: Literal["hit", "miss"]
    reason: str
    saved_ms: float | None


class Report(Reply):
    """The cache use of an answer."""

    modules: list[ModuleUse]
    marks: list[MarkResult]
    read: Count
    written: Count
    computed: Count
    approximate: Count
    ttft_ms: float
    saved_ms: float | None
    warnings: list[str]
    why: Why | None = Field(description="Why tokens were computed again; null with modules.")


def report_of(
    answer: Answer, kept: Sequence[MarkResult], seconds: Mapping[str, float], why: Why | None = None
) -> Report:
    """Returns the cache report of an answer, with the compute times of its segments by key."""
    usage = Usage.of(answer)
    return Report(
        modules=[ModuleUse(**use.to_json(), saved_ms=_saved(use, seconds)) for use in answer.segments],
        marks=[*kept],
        read=usage.read,
        written=usage.written,
        computed=usage.prompt - usage.read,
        approximate=usage.approximate,
        ttft_ms=answer.ttft_ms,
        saved_ms=_all_saved(answer, seconds),
        warnings=for_clients(answer.warnings),
        why=why,
    )


def _saved(use: SegmentUse, seconds: Mapping[str, float]) -> float | None:
    """Compute time saved by a segment, in milliseconds; None if unknown."""
    took = seconds.get(use.key)
    return None if took is None or use.outcome != Outcome.HIT else took * 1000


def _all_saved(answer: Answer, seconds: Mapping[str, float]) -> float | None:
    """Compute time saved by all segments; None if one is unknown."""
    known = [_saved(segment, seconds) for segment in answer.segments if segment.outcome == Outcome.HIT]
    known.append(answer.read_ms)
    return None if None in known else sum(value for value in known if value is not None)
