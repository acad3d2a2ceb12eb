"""What a request has read, written and computed: read + written + rest = prompt, in every dialect."""

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
    """The tokens of one request.

    Attributes:
        prompt: of its prompt.
        read: of these, that were there before it.
        written: of these, that it computed and that are kept on disk.
        generated: of its answer.
        written_for: how many of the written are kept for how many seconds at least; 0 where nothing is said.
    """

    prompt: int
    read: int = 0
    written: int = 0
    generated: int = 0
    written_for: Mapping[float, int] = field(default_factory=dict)

    @property
    def rest(self) -> int:
        """Tokens of the prompt that were neither read nor written."""
        return self.prompt - self.read - self.written

    @classmethod
    def of(cls, told: Answer | FirstToken) -> Usage:
        """Takes the counts of an answer, or of its first token."""
        names = ("prompt", "read", "written", "generated")
        counts = {name: told.tokens.get(name, 0) for name in names}
        return cls(**counts, written_for=told.written_for)


def report_of(
    answer: Answer, kept: Sequence[Kept] = (), seconds: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """What of the cache an answer used, module by module, and what became of the marks of its request.

    Args:
        answer: the answer.
        kept: what became of the marks.
        seconds: what computing segments took, by key, of those of which it is known.
    """
    usage, took = Usage.of(answer), seconds or {}
    modules = [
        {
            "path": one.path,
            "tokens": one.tokens,
            "tier": one.tier,
            "outcome": one.outcome,
            "reason": one.reason,
            "saved_ms": _saved(one, took),
        }
        for one in answer.segments
    ]
    counts = {"read": usage.read, "written": usage.written, "computed": usage.prompt - usage.read}
    saved = _all_saved(answer, took)
    times = {"ttft_ms": answer.ttft_ms, "saved_ms": saved, "warnings": for_clients(answer.warnings)}
    return {"modules": modules, "marks": [asdict(one) for one in kept], **counts, **times}


def _saved(use: SegmentUse, seconds: Mapping[str, float]) -> float | None:
    """What computing a segment that was read had taken, in milliseconds; None where that is not known."""
    took = seconds.get(use.key)
    return None if took is None or use.outcome != Outcome.HIT else took * 1000


def _all_saved(answer: Answer, seconds: Mapping[str, float]) -> float | None:
    """What computing all had taken that was read; None where that is not known of all."""
    known = [_saved(one, seconds) for one in answer.segments if one.outcome == Outcome.HIT]
    known.append(answer.read_ms)
    return None if None in known else sum(one for one in known if one is not None)
