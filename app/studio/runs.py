"""Runs of one prompt, cached and uncached one after the other.

The engine works in the job's own thread, so a slow browser never slows the clock.
"""

from __future__ import annotations

import contextlib
import logging
import statistics
import threading
import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Literal, NotRequired, cast

from typing_extensions import TypedDict

from app.studio.jobs import Job, Jobs
from app.studio.opening import Opening
from app.studio.settings import PageSettings
from engine.errors import PromptCacheError
from engine.events import Compared, Delta, Event, Finished, FirstToken, Listener, Waiting, Working

if TYPE_CHECKING:
    from engine import PreparedSchema

logger = logging.getLogger(__name__)

Side = Literal["cached", "uncached"]
State = Literal["waiting", "working", "streaming", "done", "stopped", "not run", "failed"]
SIDES: tuple[Side, Side] = ("cached", "uncached")
NOT_STORED = "What was computed is held in memory at most, as the budget of the cache is 0."


class SideFrame(TypedDict):
    """One side of a run, so far. Times in milliseconds; it `waits` while a step of other work is computed."""

    state: State
    waits: bool
    working: str
    done: int
    total: int
    text: str
    ttft_ms: float | None
    timeline_ms: dict[str, float]
    tokens: dict[str, int]
    tokens_per_second: float | None
    samples_ms: list[float]
    waited_ms: float
    ended: str


class Sides(TypedDict):
    """Both sides."""

    cached: SideFrame
    uncached: SideFrame


class ComparedSoFar(TypedDict):
    """The cached answer beside the uncached one, as far as it is known."""

    ttft_speedup: NotRequired[float]
    first_token_agrees: NotRequired[bool]
    kl_first_token: NotRequired[float]
    same_text: NotRequired[bool]


class Difference(TypedDict):
    """Both texts cut into runs of words, each with whether it differs; how many words do."""

    cached: list[tuple[str, bool]]
    uncached: list[tuple[str, bool]]
    differing: int


class RunFrame(TypedDict):
    """A run, so far; `texts` as in `CheckedTexts`."""

    number: int
    schema: str
    texts: str
    started: str
    scope: str
    repair: str
    placement: str
    order: list[Side]
    repeats: int
    repeat: int
    state: State
    message: str
    warnings: list[str]
    sides: Sides
    comparison: ComparedSoFar
    difference: Difference | None


@dataclass(frozen=True)
class RunRequest:
    """What the page asks for: the texts of this moment, and how to run them.

    Attributes:
        texts: digest of both documents.
    """

    key: str
    schema: PreparedSchema
    prompt: str
    settings: PageSettings
    texts: str = ""


@dataclass
class SideRun:
    """What is known of one side so far. Times in milliseconds."""

    state: State = "waiting"
    waits: bool = False
    working: str = ""
    done: int = 0
    total: int = 0
    text: str = ""
    ttft_ms: float | None = None
    timeline_ms: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    tokens_per_second: float | None = None
    samples_ms: list[float] = field(default_factory=list)
    timelines: list[dict[str, float]] = field(default_factory=list)
    waited_ms: float = 0.0
    ended: str = ""

    def take_median(self) -> None:
        """Shows the median of the samples: a sample that was measured, with its own timeline."""
        if self.samples_ms:
            self.ttft_ms = statistics.median_low(self.samples_ms)
            self.timeline_ms = self.timelines[self.samples_ms.index(self.ttft_ms)]

    def to_json(self) -> SideFrame:
        """What a pane shows."""
        return {
            "state": self.state,
            "waits": self.waits,
            "working": self.working,
            "done": self.done,
            "total": self.total,
            "text": self.text,
            "ttft_ms": self.ttft_ms,
            "timeline_ms": dict(self.timeline_ms),
            "tokens": dict(self.tokens),
            "tokens_per_second": self.tokens_per_second,
            "samples_ms": list(self.samples_ms),
            "waited_ms": self.waited_ms,
            "ended": self.ended,
        }


@dataclass
class Run:
    """One run of both sides.

    Attributes:
        number: the run's number in this session, from 1; 0 while it has no first token yet.
        texts: digest of both documents.
        message: what went wrong, in words, where something did.
        warnings: what the answers are complete without, in words.
    """

    schema: str
    settings: PageSettings
    order: tuple[Side, ...]
    number: int = 0
    started: str = ""
    sides: dict[Side, SideRun] = field(default_factory=lambda: {side: SideRun() for side in SIDES})
    comparison: ComparedSoFar = field(default_factory=ComparedSoFar)
    state: State = "working"
    message: str = ""
    warnings: tuple[str, ...] = ()
    repeat: int = 1
    texts: str = ""

    def begin(self) -> None:
        """Says of the side whose turn it is that it is at work, though nothing has come of it yet."""
        side = next((self.sides[name] for name in self.order if self.sides[name].state != "done"), None)
        if side is not None and side.state == "waiting":
            side.state = "working"

    def to_json(self) -> dict[str, Any]:
        """Returns the frame for the page."""
        return dict(self.frame())

    def frame(self) -> RunFrame:
        """A frame for the page."""
        cached, uncached = self.sides["cached"], self.sides["uncached"]
        compared = self.state in ("done", "stopped") and cached.text and uncached.text
        return {
            "number": self.number,
            "schema": self.schema,
            "texts": self.texts,
            "started": self.started,
            "scope": self.settings.scope,
            "repair": self.settings.repair,
            "placement": self.settings.placement,
            "order": list(self.order),
            "repeats": self.settings.repeats,
            "repeat": self.repeat,
            "state": self.state,
            "message": self.message,
            "warnings": list(self.warnings),
            "sides": {"cached": cached.to_json(), "uncached": uncached.to_json()},
            "comparison": self.comparison.copy(),
            "difference": word_difference(cached.text, uncached.text) if compared else None,
        }


class Runs:
    """Starts runs, and remembers those of this session.

    Args:
        engine: computes the answers, one step at a time.
        jobs: the register where the runs can be asked about and stopped.
    """

    def __init__(self, opening: Opening, jobs: Jobs) -> None:
        self._opening, self._jobs = opening, jobs
        self._history: list[Run] = []
        self._started = 0
        self._lock = threading.Lock()

    @property
    def history(self) -> tuple[Run, ...]:
        """The runs that got as far as a first token, in order."""
        with self._lock:
            return tuple(self._history)

    def find(self, number: int) -> Run | None:
        """The run with this number."""
        return next((run for run in self.history if run.number == number), None)

    def start(self, request: RunRequest) -> Job:
        """Begins to run both sides, one after the other; what a stopped run has produced stays."""
        with self._lock:
            order = SIDES if self._started % 2 == 0 else SIDES[::-1]
            self._started += 1
        placement = self._opening.engine.placement(request.settings.placement)
        settings = replace(request.settings, placement=placement)
        run = Run(request.schema.name, settings, order, texts=request.texts)
        run.begin()
        run.started = datetime.now().astimezone().isoformat(timespec="seconds")
        return self._jobs.start(
            Job(request.key, lambda job: self._work(job, run, request), "run", result=run)
        )

    def _work(self, job: Job, run: Run, request: RunRequest) -> Run:
        clock = Clock()
        try:
            for repeat in range(1, run.settings.repeats + 1):
                if job.stopping:
                    break
                with job.changing():
                    run.repeat = repeat
                self._run_once(job, run, request, clock)
        except Exception as error:  # the page shows it, beside what came before
            with job.changing():
                run.state, run.message = "failed", _sentence(error)
        with job.changing():
            _conclude(run)
            if run.sides["cached"].tokens.get("encoded") and not self._opening.engine.store.settings.budget:
                run.warnings = (*run.warnings, NOT_STORED)
            self._remember(run)
        return run

    def _run_once(self, job: Job, run: Run, request: RunRequest, clock: Clock) -> None:
        order = run.order if run.repeat % 2 else run.order[::-1]
        settings = request.settings if run.repeat == 1 else replace(request.settings, max_new_tokens=1)

        def turn(side: Side) -> None:
            with job.changing():
                run.sides[side].waits = False

        prompt = request.schema.prompt(request.prompt)
        listener = Listener(turn, lambda: job.stopping)
        stream = prompt.stream(settings, mode="both", order=order, listener=listener)
        with contextlib.closing(cast(Any, stream)):
            for event in stream:
                if run.repeat == 1 or isinstance(event, (FirstToken, Waiting)):
                    with job.changing():
                        apply(run, event, time.perf_counter(), clock)
                        self._remember(run)
                if job.stopping:
                    break

    def _remember(self, run: Run) -> None:
        if run.number == 0 and any(side.ttft_ms is not None for side in run.sides.values()):
            with self._lock:
                run.number = len(self._history) + 1
                self._history.append(run)


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
            side = run.sides[event.side]
            side.state, side.working, side.done, side.total = "working", event.what, event.done, event.total
        case FirstToken():
            side = run.sides[event.side]
            side.samples_ms.append(event.ttft_ms)
            side.timelines.append(dict(event.timeline_ms))
            if len(side.samples_ms) == 1:
                side.state, side.working, side.tokens = "streaming", "", dict(event.tokens)
            side.take_median()
            _speed_up(run)
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
            side.ended = str(answer.get("stopped", ""))
            side.waited_ms = event.answer.waited_ms
            run.warnings = tuple(dict.fromkeys((*run.warnings, *answer["warnings"])))
            side.tokens_per_second = 1000 / answer["tpot_ms"] if answer.get("tpot_ms") else None
            run.begin()
        case Compared():
            run.comparison.update(cast(ComparedSoFar, event.comparison.to_json()))
            _speed_up(run)


def _speed_up(run: Run) -> None:
    cached, uncached = run.sides["cached"].ttft_ms, run.sides["uncached"].ttft_ms
    if cached and uncached:
        run.comparison["ttft_speedup"] = uncached / cached


def _conclude(run: Run) -> None:
    for side in run.sides.values():
        side.waits = False
        if side.state != "done":
            side.state = "not run" if side.ttft_ms is None else "stopped"
            side.working = ""
    if run.state == "working":
        done = all(side.state == "done" for side in run.sides.values())
        enough = all(len(side.samples_ms) == run.settings.repeats for side in run.sides.values())
        run.state = "done" if done and enough else "stopped"


def _sentence(error: BaseException) -> str:
    if isinstance(error, PromptCacheError):
        return str(error)
    logger.error("A run failed", exc_info=error)
    if isinstance(error, MemoryError):
        return "There is not enough memory for this prompt. Pick fewer modules, or open a smaller model."
    return f"The run failed: {error!r}. The terminal of the studio shows the details."


def word_difference(cached: str, uncached: str) -> Difference:
    """The two texts cut into runs of words that agree and runs that do not.

    Returns:
        ``cached`` and ``uncached``: lists of ``(text, differs)`` that join to the texts; ``differing``: the
        number of words, on the side with more of them, that stand in runs that differ.
    """
    left, right = _words(cached), _words(uncached)
    ours: list[tuple[str, bool]] = []
    theirs: list[tuple[str, bool]] = []
    differing = 0
    matcher = SequenceMatcher(a=[w.strip() for w in left], b=[w.strip() for w in right], autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        differs = kind != "equal"
        differing += max(b - a, d - c) if differs else 0
        if b > a:
            ours.append(("".join(left[a:b]), differs))
        if d > c:
            theirs.append(("".join(right[c:d]), differs))
    return {"cached": ours, "uncached": theirs, "differing": differing}


def _words(text: str) -> list[str]:
    words: list[str] = []
    start = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or (text[end].isspace() and not text[end - 1].isspace()):
            words.append(text[start:end])
            start = end
    return words
