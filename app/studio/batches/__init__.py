"""Batches of prompts and their database."""

from __future__ import annotations

from app.studio.batches.store import (
    MOST_BATCHES,
    MOST_BYTES,
    BatchesHeld,
    BatchKept,
    BatchStore,
    KeptState,
)

__all__ = ["MOST_BATCHES", "MOST_BYTES", "BatchKept", "BatchStore", "BatchesHeld", "KeptState"]
