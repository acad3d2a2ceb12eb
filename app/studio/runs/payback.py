"""Computes when the cache has paid for itself."""

from __future__ import annotations

import math

from app.studio.runs.run_frame import ComparedSoFar, Payback

NEVER = "Never pays off here."
CLOSE = 1.25  # a smaller ratio of one timing each may be chance
UNKNOWN = "Unknown payback: encoded earlier."


def apart(ratios: ComparedSoFar) -> bool:
    """Whether the timings of both sides do not overlap, or one timing of each is far from the other."""
    least, most = ratios.get("least_speedup"), ratios.get("most_speedup")
    if least and most:
        return not least < 1 < most
    return not 1 / CLOSE < ratios.get("ttft_speedup", 0) < CLOSE


def payback(
    encode_ms: float | None,
    cached_ms: float,
    uncached_ms: float | None,
    *,
    clear: bool = True,
    repeated: bool = True,
) -> Payback:
    """Returns the run from which on the cache is faster in total.

    That is the smallest integer n with encode + n · cached < n · uncached.

    Args:
        encode_ms: the time to encode all segments; None if unknown.
        cached_ms: the cached time to first token.
        uncached_ms: the uncached time to first token; None if not measured.
        clear: whether the timings of both sides are apart; if not, there is no result.
        repeated: whether each side has several timings; one cannot show that the cache never pays off.
    """
    first = None if encode_ms is None else encode_ms + cached_ms
    if uncached_ms is None or not clear:
        return {"first_ms": first, "runs": None, "words": ""}
    saved = uncached_ms - cached_ms
    if saved <= 0:
        return {"first_ms": first, "runs": None, "words": NEVER if repeated else ""}
    if encode_ms is None:
        return {"first_ms": None, "runs": None, "words": UNKNOWN}
    runs = math.floor(encode_ms / saved) + 1
    words = "Faster from the first run on." if runs == 1 else f"Pays off after about {runs:,} runs."
    return {"first_ms": first, "runs": runs, "words": words}
