"""The state of a running run, updated from its events."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from app.studio.runs.differences import word_difference
from app.studio.runs.payback import apart, payback
from app.studio.runs.run_frame import (
    FORMAT,
    SIDES,
    Belongs,
    ComparedSoFar,
    EncodingFrame,
    Ended,
    Mode,
    ModelOfRun,
    Payback,
    ReuseFrame,
    RunFrame,
    Side,
    SideFrame,
    State,
    StepFrame,
)
from app.studio.runs.settings import PageSettings
from app.studio.web.digests import digest
from engine.base.choices import PlacementPolicy
from engine.base.events import Compared, Delta, Event, Finished, FirstToken, ReuseTaken, Waiting, Working
from engine.rows.validity import format_fault

if TYPE_CHECKING:
    from engine import PromptEncoding


@dataclass
class Step:
    """The progress of a part of a run; it `waits` for other work."""

    state: State = "waiting"
    waits: bool = False
    working: str = ""
    done: int = 0
    total: int = 0

    def take(self, event: Working) -> None:
        """Updates the progress."""
        self.state, self.working = "working", event.what
        self.done, self.total, self.waits = event.done, event.total, isinstance(event, Waiting)

    def so_far(self) -> StepFrame:
        """Returns the progress as a frame."""
        return {
            "state": self.state,
            "waits": self.waits,
            "working": self.working,
            "done": self.done,
            "total": self.total,
        }


@dataclass
class SideRun(Step):
    """The state of one side. Times in milliseconds; see `SideFrame`."""

    text: str = ""
    tokens: dict[str, int] = field(default_factory=dict)
    tokens_per_second: float | None = None
    waited_ms: float = 0.0
    ended: Ended = ""
    format_fault: str | None = None
    timelines: list[dict[str, float]] = field(default_factory=list)

    @property
    def warm(self) -> list[dict[str, float]]:
        """The timelines without encoding."""
        return [timeline for timeline in self.timelines if "encode" not in timeline]

    @property
    def timeline(self) -> dict[str, float]:
        """The median timeline, of those without encoding if there are any."""
        shown = self.warm or self.timelines
        if not shown:
            return {}
        times = [sum(stages.values()) for stages in shown]
        return shown[times.index(statistics.median_low(times))]

    @property
    def samples_ms(self) -> list[float]:
        """The times to first token without encoding."""
        return [sum(timeline.values()) for timeline in self.warm]

    @property
    def ttft_ms(self) -> float | None:
        """The displayed time to first token; None until there is one."""
        return sum(self.timeline.values()) if self.timelines else None

    def to_json(self) -> SideFrame:
        """Returns the side as a frame."""
        return {
            **self.so_far(),
            "text": self.text,
            "ttft_ms": self.ttft_ms,
            "timeline_ms": dict(self.timeline),
            "tokens": dict(self.tokens),
            "tokens_per_second": self.tokens_per_second,
            "samples_ms": self.samples_ms,
            "cold_ms": [sum(timeline.values()) for timeline in self.timelines if "encode" in timeline],
            "waited_ms": self.waited_ms,
            "ended": self.ended,
            "format_fault": self.format_fault,
        }


@dataclass
class EncodingRun(Step):
    """The encoding before the cached side; see `EncodingFrame`."""

    found: PromptEncoding | None = None

    def finish(self, found: PromptEncoding) -> None:
        """Adds the result of the encoding."""
        self.state, self.waits, self.working, self.found = "done", False, "", found

    @property
    def whole_ms(self) -> float | None:
        """The time to encode all of the prompt's segments; None if unknown."""
        encoding = self.found
        if encoding is None or encoding.others_ms is None:
            return None
        return encoding.ms + encoding.others_ms

    def to_json(self) -> EncodingFrame:
        """Returns the encoding as a frame."""
        encoding = self.found
        return {
            **self.so_far(),
            "modules": list(encoding.modules) if encoding else [],
            "segments": encoding.segments if encoding else 0,
            "tokens": encoding.tokens if encoding else 0,
            "ms": encoding.ms if encoding else None,
            "others": encoding.others if encoding else 0,
            "others_ms": encoding.others_ms if encoding else None,
        }


@dataclass
class Run:
    """One run.

    Attributes:
        schema: the schema's name.
        model: the model that answers.
        placement: the placement in use.
        texts: digests of schema and prompt.
        number: the run's number in this session, from 1; 0 before its first token.
        repeat: the current timing, from 1, of `timings`.
        message: the error message, if any.
        warnings: warnings that do not affect the answers.
        reuse: the reuse settings that automatic reuse chose, if any.
        kept: the id of the stored run; "" until it is stored.
        question: the prompt's last text; "" if it has none.
    """

    schema: str
    settings: PageSettings
    order: tuple[Side, ...]
    model: ModelOfRun
    placement: PlacementPolicy = "compact"
    texts: tuple[str, str] = ("", "")
    number: int = 0
    started: str = ""
    encoding: EncodingRun = field(default_factory=EncodingRun)
    sides: dict[Side, SideRun] = field(default_factory=lambda: {side: SideRun() for side in SIDES})
    compared: ComparedSoFar = field(default_factory=ComparedSoFar)
    state: State = "working"
    message: str = ""
    warnings: tuple[str, ...] = ()
    repeat: int = 1
    timings: int = 1
    reuse: ReuseTaken | None = None
    kept: str = ""
    question: str = ""

    @property
    def mode(self) -> Mode:
        """The sides to run."""
        return self.order[0] if len(self.order) == 1 else "both"

    @property
    def answered(self) -> bool:
        """Whether a side has reached its first token."""
        return any(side.timelines for side in self.sides.values())

    @property
    def check_follows(self) -> bool:
        """Whether a check of the cached answer is pending."""
        taken = self.reuse
        if taken is None or taken.checked or not taken.combination:
            return False
        answered = all(self.sides[side].state == "done" for side in self.order)
        return answered and (len(self.order) > 1 or taken.kl is None)

    def begin(self) -> None:
        """Marks the current side as working, before its first event."""
        side = next((self.sides[name] for name in self.order if self.sides[name].state != "done"), None)
        if side is not None and side.state == "waiting":
            side.state = "working"

    def conclude(self) -> None:
        """Marks unfinished parts as stopped or not run."""
        self.encoding.waits = False
        if self.encoding.state != "done":
            self.encoding.state = "not run" if self.encoding.state == "waiting" else "stopped"
        for side in self.sides.values():
            side.waits = False
            if side.state != "done":
                side.state = "not run" if side.ttft_ms is None else "stopped"
                side.working = ""
        if self.state == "working":
            ran = [self.sides[side] for side in self.order]
            done = all(side.state == "done" and len(side.timelines) >= self.timings for side in ran)
            self.state = "done" if done else "stopped"

    def to_json(self) -> dict[str, Any]:
        """Returns the frame for the page."""
        return dict(self.frame())

    def frame(self) -> RunFrame:
        """Returns the frame for the page and the database."""
        cached, uncached = self.sides["cached"], self.sides["uncached"]
        compared = self.state in ("done", "stopped") and cached.text and uncached.text
        return {
            "format": FORMAT,
            "kept": self.kept,
            "number": self.number,
            "mode": self.mode,
            "question": self.question,
            "schema": self.schema,
            "of": belongs(self.texts, self.settings, self.model),
            "started": self.started,
            "settings": self.settings.to_json(),
            "placement": self.placement,
            "model": self.model.copy(),
            "order": list(self.order),
            "repeat": self.repeat,
            "timings": self.timings,
            "state": self.state,
            "message": self.message,
            "warnings": list(self.warnings),
            "encoding": self.encoding.to_json(),
            "sides": {"cached": cached.to_json(), "uncached": uncached.to_json()},
            "comparison": {**self.compared, **speedup(cached, uncached)},
            "payback": self._payback(),
            "difference": word_difference(cached.text, uncached.text) if compared else None,
            "fidelity": None,
            "reuse": told_of(self.reuse, follows=self.check_follows),
        }

    def _payback(self) -> Payback | None:
        cached, uncached = self.sides["cached"], self.sides["uncached"]
        if not cached.warm or cached.ttft_ms is None:
            return None
        unread = self.reuse is not None and not self.reuse.scope
        ratios = speedup(cached, uncached)
        clear, repeated = apart(ratios) and not unread, "least_speedup" in ratios
        encode_ms, uncached_ms = self.encoding.whole_ms, uncached.ttft_ms
        return payback(encode_ms, cached.ttft_ms, uncached_ms, clear=clear, repeated=repeated)


def belongs(texts: tuple[str, str], settings: PageSettings, model: ModelOfRun) -> Belongs:
    """Returns a result's identity; `texts` are the digests of schema and prompt."""
    return {
        "schema": texts[0],
        "prompt": texts[1],
        "settings": settings.digest,
        "model": digest_of_model(model),
    }


def digest_of_model(model: ModelOfRun) -> str:
    """Returns a short name for a loaded model."""
    return digest(" ".join((model["fingerprint"], model["device"], model["dtype"], model["weights"])))


def told_of(taken: ReuseTaken | None, *, follows: bool = False) -> ReuseFrame | None:
    """Returns an answer's reuse settings as a frame; `follows` means that a check is pending."""
    if taken is None:
        return None
    return {
        "scope": taken.scope,
        "repair": taken.repair,
        "why": taken.why,
        "kl": taken.kl,
        "checked": taken.checked,
        "follows": follows,
        "broken": taken.broken,
    }


def speedup(cached: SideRun, uncached: SideRun) -> ComparedSoFar:
    """Returns the speedup and its range; empty until both sides have a time."""
    cached_ms, uncached_ms = cached.ttft_ms, uncached.ttft_ms
    if not cached_ms or not uncached_ms:
        return {}
    result: ComparedSoFar = {"ttft_speedup": uncached_ms / cached_ms}
    if cached.warm and min(len(cached.samples_ms), len(uncached.samples_ms)) > 1:
        result["least_speedup"] = min(uncached.samples_ms) / max(cached.samples_ms)
        result["most_speedup"] = max(uncached.samples_ms) / min(cached.samples_ms)
    return result


@dataclass
class Clock:
    """The times of each side's first and last text, and the number of pieces."""

    first: dict[str, float] = field(default_factory=dict)
    pieces: dict[str, int] = field(default_factory=dict)

    def rate(self, side: str, at: float) -> float | None:
        """Returns pieces per second after the first one; `at` is in seconds without waiting."""
        first = self.first.setdefault(side, at)
        self.pieces[side] = self.pieces.get(side, 0) + 1
        later = self.pieces[side] - 1
        return later / (at - first) if later > 2 and at > first else None


def apply(run: Run, event: Event, at: float, clock: Clock) -> None:
    """Updates a run with an event at a time of `time.perf_counter`."""
    if not isinstance(event, Compared):
        run.sides[event.side].waits = isinstance(event, Waiting)
    match event:
        case Waiting():
            pass
        case Working():
            run.sides[event.side].take(event)
        case FirstToken():
            side = run.sides[event.side]
            side.timelines.append(dict(event.timeline_ms))
            if len(side.timelines) == 1:
                side.state, side.working, side.tokens = "streaming", "", dict(event.tokens)
        case Delta():
            side = run.sides[event.side]
            side.state, side.working = "streaming", ""
            side.text += event.text
            if event.text:
                own = at - event.waited_ms / 1000
                side.tokens_per_second = clock.rate(event.side, own) or side.tokens_per_second
                side.tokens["generated"] = clock.pieces[event.side]  # until the end counts them
        case Finished():
            side, answer = run.sides[event.side], event.answer
            side.state, side.text, side.tokens = "done", answer.text, dict(answer.tokens)
            side.ended, side.waited_ms = answer.stopped, answer.waited_ms
            side.format_fault = format_fault(answer.grammar, answer.text, answer.stopped)
            side.tokens_per_second = 1000 / answer.tpot_ms if answer.tpot_ms else None
            run.reuse = answer.reuse or run.reuse
            run.warnings = with_warnings(run.warnings, answer.warnings)
            run.begin()
        case Compared():
            run.compared.update(cast(ComparedSoFar, event.comparison.to_json()))


def with_warnings(told: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """Adds warnings without duplicates."""
    return tuple(dict.fromkeys((*told, *more)))
