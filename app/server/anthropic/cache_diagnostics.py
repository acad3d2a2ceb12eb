"""Explains cache misses between two requests, in Anthropic's terms."""

from __future__ import annotations

from pydantic import MISSING

from app.server.anthropic.shapes import CacheMissReason, Diagnosis
from app.server.core.running import Running
from app.server.recent.reasons import changed_part


def diagnosis(running: Running, *, wanted: bool) -> Diagnosis | MISSING:
    """Compares a request whose first token has come with the one that it names.

    The reason is None for the first turn, and if the request only continues the earlier one and read it.
    """
    record = running.record
    if not wanted:
        return MISSING
    if record.previous is None:
        return Diagnosis(cache_miss_reason=None)
    if (earlier := running.compared()) is None:
        return Diagnosis(cache_miss_reason=CacheMissReason(type="previous_message_not_found"))
    part, why = changed_part(earlier, record), running.why()
    missed = max(0, min(len(earlier.token_ids), len(record.token_ids)) - record.read)
    if part is not None:
        reason = CacheMissReason(
            type=f"{part}_changed", cache_missed_input_tokens=missed, explanation=why or MISSING
        )
        return Diagnosis(cache_miss_reason=reason)
    if why is None or why.reason == "new":
        return Diagnosis(cache_miss_reason=None)
    return Diagnosis(cache_miss_reason=CacheMissReason(type="unavailable", explanation=why))
