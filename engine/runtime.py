"""The parts that compute answers, shared by all schemas and prompts of one engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.batch.idle import Idle
from engine.cache.segment_cache import SegmentCache
from engine.decisions.calibrations import Calibrations
from engine.inference.step_lock import Computing


@dataclass(frozen=True)
class Workshop:
    """The parts that compute answers.

    Attributes:
        cache: segments of one model, and the model.
        computing: schedules steps.
        idle: checks answers while the engine is idle.
        calibrations: scores that decisions subtract.
    """

    cache: SegmentCache
    computing: Computing
    idle: Idle
    calibrations: Calibrations = field(default_factory=Calibrations)
