"""What computing an answer takes, shared by all that one engine has prepared."""

from __future__ import annotations

from dataclasses import dataclass

from engine.batch.idle import Idle
from engine.cache.segment_cache import SegmentCache
from engine.inference.step_lock import Computing


@dataclass(frozen=True)
class Workshop:
    """What computing an answer takes.

    Attributes:
        cache: segments of one model, and the model.
        computing: decides whose step is computed.
        idle: checks answers while nothing else is computed.
    """

    cache: SegmentCache
    computing: Computing
    idle: Idle
