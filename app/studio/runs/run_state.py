"""One run while it goes on: what its events make of it, and what is told of it. Computes nothing itself."""

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

if TYPE_CHECKING:
    from engine import PromptEncoding


@dataclass
class Step:
    """How far a part of a run is; it `waits` while a step of other work is computed."""

    state: State = "waiting"
    waits: bool = False
    working: str = ""
    done: int = 0
    total: int = 0

    def take(self, event: Working) -> None:
        """Is told how far it is."""
        self.state, self.working = "working", event.what
        self.done, self.total, self.waits = event.done, event.total, isinstance(event, Waiting)

    def so_far(self) -> StepFrame:
        """What is told of it."""
        return {
            "state": self.state,
            "waits": self.waits,
            "working": self.working,
            "done": self.done,
            "total": self.total,
        }


@dataclass
class SideRun(Step):
    """What is known of one side so far. Times in milliseconds; see `SideFrame`."""

    text: str = ""
    tokens: dict[str, int] = field(default_factory=dict)
    tokens_per_second: float | None = None
    waited_ms: float = 0.0
    ended: Ended = ""
    timelines: list[dict[str, float]] = field(default_factory=list)

    @property
    def warm(self) -> list[dict[str, float]]:
        """The timelines that contain no encoding."""
        return [one for one in self.timelines if "encode" not in one]

    @property
    def timeline(self) -> dict[str, float]:
        """The median timeline: one that was measured, of those without encoding where there are any."""
        shown = self.warm or self.timelines
        if not shown:
            return {}
        times = [sum(one.values()) for one in shown]
        return shown[times.index(statistics.median_low(times))]

    @property
    def samples_ms(self) -> list[float]:
        """The times to the first token that contain no encoding."""
        return [sum(one.values()) for one in self.warm]

    @property
    def ttft_ms(self) -> float | None:
        """The time to the first token that is shown; None while there is none."""
        return sum(self.timeline.values()) if self.timelines else None

    def to_json(self) -> SideFrame:
        """What a pane shows."""
        return {
            **self.so_far(),
            "text": self.text,
            "ttft_ms": self.ttft_ms,
            "timeline_ms": dict(self.timeline),
            "tokens": dict(self.tokens),
            "tokens_per_second": self.tokens_per_second,
            "samples_ms": self.samples_ms,
            "cold_ms": [sum(one.values()) for one in self.timelines if "encode" in one],
            "waited_ms": self.waited_ms,
            "ended": self.ended,
        }


@dataclass
class EncodingRun(Step):
    """The step ahead of the cached side, so far; see `EncodingFrame`."""

    found: PromptEncoding | None = None

    def finish(self, found: PromptEncoding) -> None:
        """Is told what came of it."""
        self.state, self.waits, self.working, self.found = "done", False, "", found

    @property
    def whole_ms(self) -> float | None:
        """What encoding all that the prompt reads takes; None while that is not known."""
        found = self.found
        if found is None or found.others_ms is None:
            return None
        return found.ms + found.others_ms

    def to_json(self) -> EncodingFrame:
        """What the page shows of it."""
        found = self.found
        return {
            **self.so_far(),
            "modules": list(found.modules) if found else [],
            "segments": found.segments if found else 0,
            "tokens": found.tokens if found else 0,
            "ms": found.ms if found else None,
            "others": found.others if found else 0,
            "others_ms": found.others_ms if found else None,
        }


@dataclass
class Run:
    """One run.

    Attributes:
        schema: the name of the schema.
        model: the model that answers.
        placement: the placement that is used.
        texts: digests of schema and prompt.
        number: the run's number in this session, from 1; 0 while it has no first token yet.
        message: what went wrong, in words, where something did.
        warnings: what the answers are complete without, in words.
        reuse: the remedy that the cached side took, where it was answered under a promise.
        kept: the id under which it is kept on disk; "" while it is not.
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
    reuse: ReuseTaken | None = None
    kept: str = ""

    @property
    def mode(self) -> Mode:
        """Which sides run."""
        return self.order[0] if len(self.order) == 1 else "both"

    @property
    def check_follows(self) -> bool:
        """Whether a check of the cached answer is still to come."""
        taken = self.reuse
        if taken is None or taken.checked or not taken.combination:
            return False
        answered = all(self.sides[side].state == "done" for side in self.order)
        return answered and (len(self.order) > 1 or taken.kl is None)

    def begin(self) -> None:
        """Says of the side whose turn it is that it is at work, though nothing has come of it yet."""
        side = next((self.sides[name] for name in self.order if self.sides[name].state != "done"), None)
        if side is not None and side.state == "waiting":
            side.state = "working"

    def conclude(self) -> None:
        """Says of all that is not done that it was stopped, or never begun."""
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
            done = all(side.state == "done" and len(side.timelines) == self.settings.repeats for side in ran)
            self.state = "done" if done else "stopped"

    def to_json(self) -> dict[str, Any]:
        """Returns the frame for the page."""
        return dict(self.frame())

    def frame(self) -> RunFrame:
        """A frame for the page, and for keeping."""
        cached, uncached = self.sides["cached"], self.sides["uncached"]
        compared = self.state in ("done", "stopped") and cached.text and uncached.text
        return {
            "format": FORMAT,
            "number": self.number,
            "mode": self.mode,
            "schema": self.schema,
            "of": belongs(self.texts, self.settings, self.model),
            "started": self.started,
            "settings": self.settings.to_json(),
            "placement": self.placement,
            "model": self.model.copy(),
            "order": list(self.order),
            "repeat": self.repeat,
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
        clear = apart(speedup(cached, uncached))
        return payback(self.encoding.whole_ms, cached.ttft_ms, uncached.ttft_ms, clear=clear)


def belongs(texts: tuple[str, str], settings: PageSettings, model: ModelOfRun) -> Belongs:
    """What a result belongs to; `texts` are the digests of schema and prompt."""
    return {
        "schema": texts[0],
        "prompt": texts[1],
        "settings": settings.digest,
        "model": digest_of_model(model),
    }


def digest_of_model(model: ModelOfRun) -> str:
    """A short name for a model as it is loaded."""
    return digest(" ".join((model["fingerprint"], model["device"], model["dtype"], model["weights"])))


def told_of(taken: ReuseTaken | None, *, follows: bool = False) -> ReuseFrame | None:
    """What is told of the remedy that an answer took, and whether a check of it `follows`."""
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
    """How much faster the cached side was, and in which range; nothing while a side has no time."""
    ours, theirs = cached.ttft_ms, uncached.ttft_ms
    if not ours or not theirs:
        return {}
    found: ComparedSoFar = {"ttft_speedup": theirs / ours}
    if cached.warm and min(len(cached.samples_ms), len(uncached.samples_ms)) > 1:
        found["least_speedup"] = min(uncached.samples_ms) / max(cached.samples_ms)
        found["most_speedup"] = max(uncached.samples_ms) / min(cached.samples_ms)
    return found


@dataclass
class Clock:
    """When each side's first and last text came, and how many pieces."""

    first: dict[str, float] = field(default_factory=dict)
    pieces: dict[str, int] = field(default_factory=dict)

    def rate(self, side: str, at: float) -> float | None:
        """Pieces per second after the first one; `at` in seconds that leave out waiting for others."""
        first = self.first.setdefault(side, at)
        self.pieces[side] = self.pieces.get(side, 0) + 1
        later = self.pieces[side] - 1
        return later / (at - first) if later > 2 and at > first else None


def apply(run: Run, event: Event, at: float, clock: Clock) -> None:
    """Brings a run up to date with an event that came at this time, by `time.perf_counter`."""
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
        case Finished():
            answer = event.answer.to_json()
            side = run.sides[event.side]
            side.state, side.text, side.tokens = "done", answer["text"], dict(answer["tokens"])
            side.ended = event.answer.stopped
            run.reuse = event.answer.reuse or run.reuse
            side.waited_ms = event.answer.waited_ms
            run.warnings = with_warnings(run.warnings, answer["warnings"])
            side.tokens_per_second = 1000 / answer["tpot_ms"] if answer.get("tpot_ms") else None
            run.begin()
        case Compared():
            run.compared.update(cast(ComparedSoFar, event.comparison.to_json()))


def with_warnings(told: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """Adds warnings, each once."""
    return tuple(dict.fromkeys((*told, *more)))
