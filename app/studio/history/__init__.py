"""Stored runs, and files to share them."""

from __future__ import annotations

from app.studio.history.frames import read_frame
from app.studio.history.record import Record, RunSummary
from app.studio.history.store import MOST_BYTES, MOST_RUNS, RunsHeld, RunStore

__all__ = [
    "MOST_BYTES",
    "MOST_RUNS",
    "Record",
    "RunStore",
    "RunSummary",
    "RunsHeld",
    "read_frame",
]
