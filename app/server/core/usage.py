"""Token usage of a request: read + written + rest = prompt, in every API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from app.server.core.caching import Kept
from app.server.http.redact_paths import for_clients
from engine.base.events import Answer, FirstToken, SegmentUse
from engine.base.tiers import Outcome


@dataclass(frozen=True)
class Usage:
    """The tokens of one request."""

    prompt: int  # tokens of its prompt
    read: int = 0  # prompt tokens read from the cache
    written: int = 0  # prompt tokens computed and stored on disk
    generated: int = 0  # tokens of its answer
    written_for: Mapping[float, int] = field(default_factory=dict)  # by minimum time to live in seconds

    @property
    def rest(self) -> int:
        """Returns the prompt tokens that were neither read nor written."""
        return self.prompt - self.read - self.written

    @classmethod
    def of(cls, told: Answer | FirstToken) -> Usage:
        """Returns the counts of an answer, or of its first token."""
        names = ("prompt", "read", "written", "generated")
        counts = {name: told.tokens.get(name, 0) for name in names}
        return cls(**counts, written_for=told.written_for)


def report_of(
    answer: Answer, kept: Sequence[Kept] = (), seconds: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Returns the cache report of a request: modules and marks."""
    usage, took = Usage.of(answer), seconds or {}
    modules = [
        {
            "path": segment.path,
            "tokens": segment.tokens,
            "tier": segment.tier,
            "outcome": segment.outcome,
            "reason": segment.reason,
            "saved_ms": _saved(segment, took),
        }
        for segment in answer.segments
    ]
    counts = {"read": usage.read, "written": usage.written, "computed": usage.prompt - usage.read}
    saved = _all_saved(answer, took)
    times = {"ttft_ms": answer.ttft_ms, "saved_ms": saved, "warnings": for_clients(answer.warnings)}
    return {"modules": modules, "marks": [asdict(mark) for mark in kept], **counts, **times}


def _saved(use: SegmentUse, seconds: Mapping[str, float]) -> float | None:
    """Compute time saved by a segment, in milliseconds; None if unknown."""
    took = seconds.get(use.key)
    return None if took is None or use.outcome != Outcome.HIT else took * 1000


def _all_saved(answer: Answer, seconds: Mapping[str, float]) -> float | None:
    """Compute time saved by all segments; None if one is unknown."""
    known = [_saved(segment, seconds) for segment in answer.segments if segment.outcome == Outcome.HIT]
    known.append(answer.read_ms)
    return None if None in known else sum(value for value in known if value is not None)
