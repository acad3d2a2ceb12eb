"""When the cache has paid for itself, computed from times alone."""

from __future__ import annotations

import math

from app.studio.runs.run_frame import ComparedSoFar, Payback

NEVER = "Never pays off here: reading these modules took no less time than computing them."
UNKNOWN = "the modules were encoded earlier, and nobody wrote down how long that took"


def apart(ratios: ComparedSoFar) -> bool:
    """Whether the timings of both sides do not overlap, or there are too few to tell."""
    least, most = ratios.get("least_speedup"), ratios.get("most_speedup")
    return not (least and most and least < 1 < most)


def payback(
    encode_ms: float | None, cached_ms: float, uncached_ms: float | None, *, clear: bool = True
) -> Payback:
    """From which run on the cache has taken less time than going without.

    That is the smallest whole n with encode + n · cached < n · uncached.

    Args:
        encode_ms: what encoding all that is read takes; None where nobody knows.
        cached_ms: the time to the first token from the cache.
        uncached_ms: the time without it; None where that was not measured.
        clear: whether the timings of both sides are apart; where they overlap nothing is said.
    """
    first = None if encode_ms is None else encode_ms + cached_ms
    if uncached_ms is None or not clear:
        return {"first_ms": first, "runs": None, "words": ""}
    saved = uncached_ms - cached_ms
    if saved <= 0:
        return {"first_ms": first, "runs": None, "words": NEVER}
    if encode_ms is None:
        return {"first_ms": None, "runs": None, "words": f"When it pays off is not known: {UNKNOWN}."}
    runs = math.floor(encode_ms / saved) + 1
    words = "Faster from the first run on." if runs == 1 else f"Pays off after about {runs:,} runs."
    return {"first_ms": first, "runs": runs, "words": words}
