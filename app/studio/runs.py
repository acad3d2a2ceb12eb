"""Runs of one prompt, cached and uncached one after the other, as frames that the page paints.

The engine works in its own thread, so a slow browser never slows the clock; the page takes frames as it can.
"""

from __future__ import annotations

import logging
import queue
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import SequenceMatcher
from typing import Any, Literal

from engine import Compared, Delta, Engine, Finished, FirstToken, PreparedSchema, RunSettings, Working
from engine.errors import PromptCacheError

logger = logging.getLogger(__name__)

Side = Literal["cached", "uncached"]
SIDES: tuple[Side, Side] = ("cached", "uncached")
FRAME_SECONDS = 0.05
MAX_NEW_TOKENS = 2048
MAX_REPEATS = 25

State = Literal["waiting", "working", "streaming", "done", "stopped", "not run", "failed"]


@dataclass(frozen=True)
class RunRequest:
    """What the page asks for: the texts of this moment, and how to run them."""

    schema: PreparedSchema
    prompt: str
    settings: RunSettings
    repeats: int = 1
    key: str = ""


@dataclass
class SideRun:
    """What is known of one side so far. Times in milliseconds."""

    state: State = "waiting"
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
    ended: str = ""

    def take_median(self) -> None:
        """Shows the median of the samples: a sample that was measured, with its own timeline."""
        if self.samples_ms:
            self.ttft_ms = statistics.median_low(self.samples_ms)
            self.timeline_ms = self.timelines[self.samples_ms.index(self.ttft_ms)]

    def to_json(self) -> dict[str, Any]:
        """What a pane shows."""
        return {
            "state": self.state,
            "working": self.working,
            "done": self.done,
            "total": self.total,
            "text": self.text,
            "ttft_ms": self.ttft_ms,
            "timeline_ms": self.timeline_ms,
            "tokens": self.tokens,
            "tokens_per_second": self.tokens_per_second,
            "samples_ms": self.samples_ms,
            "ended": self.ended,
        }


@dataclass
class Run:
    """One run of both sides.

    Attributes:
        number: counts the runs of this session from 1; 0 while the run has no first token yet.
        message: what went wrong, in words, where something did.
    """

    key: str
    schema: str
    settings: RunSettings
    order: tuple[Side, ...]
    repeats: int = 1
    number: int = 0
    started: str = ""
    sides: dict[Side, SideRun] = field(default_factory=lambda: {side: SideRun() for side in SIDES})
    comparison: dict[str, Any] = field(default_factory=dict)
    state: State = "working"
    message: str = ""
    repeat: int = 1

    def to_json(self) -> dict[str, Any]:
        """A frame for the page."""
        texts = {side: self.sides[side].text for side in SIDES}
        compared = self.state in ("done", "stopped") and all(texts.values())
        return {
            "key": self.key,
            "number": self.number,
            "schema": self.schema,
            "started": self.started,
            "scope": self.settings.scope,
            "repair": self.settings.repair,
            "placement": self.settings.placement,
            "order": list(self.order),
            "repeats": self.repeats,
            "repeat": self.repeat,
            "state": self.state,
            "message": self.message,
            "sides": {side: run.to_json() for side, run in self.sides.items()},
            "comparison": self.comparison,
            "difference": word_difference(texts["cached"], texts["uncached"]) if compared else None,
        }


class Runs:
    """Starts runs, stops them, and remembers those of this session.

    Args:
        engine: computes the answers, one step at a time.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._history: list[Run] = []
        self._started = 0
        self._stops: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    @property
    def history(self) -> tuple[Run, ...]:
        """The runs that got as far as a first token, in order."""
        with self._lock:
            return tuple(self._history)

    def find(self, number: int) -> Run | None:
        """The run with this number."""
        return next((run for run in self.history if run.number == number), None)

    def stop(self, key: str) -> None:
        """Stops the run with this key at its next step; what it has produced stays."""
        self._stop_of(key).set()

    def stream(self, request: RunRequest) -> Iterator[Run]:
        """Runs both sides, one after the other; yields the same run again whenever there is more to show.

        Closing the iterator stops the run.
        """
        with self._lock:
            order = SIDES if self._started % 2 == 0 else SIDES[::-1]
            self._started += 1
        settings = replace(request.settings, placement=self._engine.placement(request.settings.placement))
        run = Run(request.key, request.schema.name, settings, order, request.repeats)
        run.started = datetime.now().astimezone().isoformat(timespec="seconds")
        stop = self._stop_of(request.key)
        events: queue.SimpleQueue[tuple[float, object]] = queue.SimpleQueue()
        worker = threading.Thread(
            target=self._work, args=(request, order, stop, events), name="run", daemon=True
        )
        worker.start()
        try:
            yield run
            clock = _Clock()
            over = False
            while not over:
                over = self._take(run, events, clock)
                yield run
        finally:
            stop.set()
            with self._lock:
                self._stops.pop(request.key, None)

    def _take(self, run: Run, events: queue.SimpleQueue[tuple[float, object]], clock: _Clock) -> bool:
        """Apply what has come in one frame's time to `run`; says whether that was the end."""
        until = time.monotonic() + FRAME_SECONDS
        wait: float | None = None
        while True:
            try:
                at, event = events.get(timeout=wait)
            except queue.Empty:
                return False
            if event is None:
                _conclude(run)
                self._remember(run)
                return True
            if isinstance(event, BaseException):
                run.state, run.message = "failed", _sentence(event)
            elif isinstance(event, int):
                run.repeat = event
            else:
                _apply(run, event, at, clock)
                self._remember(run)
            wait = max(0.0, until - time.monotonic())

    def _remember(self, run: Run) -> None:
        if run.number == 0 and any(side.ttft_ms is not None for side in run.sides.values()):
            with self._lock:
                run.number = len(self._history) + 1
                self._history.append(run)

    def _stop_of(self, key: str) -> threading.Event:
        with self._lock:
            return self._stops.setdefault(key, threading.Event())

    def _work(
        self,
        request: RunRequest,
        order: Sequence[Side],
        stop: threading.Event,
        events: queue.SimpleQueue[tuple[float, object]],
    ) -> None:
        try:
            for repeat in range(1, request.repeats + 1):
                if stop.is_set():
                    break
                events.put((time.perf_counter(), repeat))
                self._run_once(request, order if repeat % 2 else order[::-1], repeat, stop, events)
        except BaseException as error:  # the page shows it; the thread has nobody else to tell
            events.put((time.perf_counter(), error))
        finally:
            events.put((time.perf_counter(), None))

    def _run_once(
        self,
        request: RunRequest,
        order: Sequence[Side],
        repeat: int,
        stop: threading.Event,
        events: queue.SimpleQueue[tuple[float, object]],
    ) -> None:
        settings = request.settings if repeat == 1 else replace(request.settings, max_new_tokens=1)
        stream = request.schema.prompt(request.prompt).stream(settings, mode="both", order=order)
        try:
            for event in stream:
                if repeat == 1 or isinstance(event, FirstToken):
                    events.put((time.perf_counter(), event))
                if stop.is_set():
                    break
        finally:
            close = getattr(stream, "close", None)
            if close is not None:
                close()


@dataclass
class _Clock:
    """When each side's first and last text came, and how many pieces."""

    first: dict[str, float] = field(default_factory=dict)
    pieces: dict[str, int] = field(default_factory=dict)

    def rate(self, side: str, at: float) -> float | None:
        """Pieces per second after the first one."""
        first = self.first.setdefault(side, at)
        self.pieces[side] = self.pieces.get(side, 0) + 1
        later = self.pieces[side] - 1
        return later / (at - first) if later > 2 and at > first else None


def _apply(run: Run, event: object, at: float, clock: _Clock) -> None:
    match event:
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
            side.state, side.working = "streaming", ""  # it may have waited for another answer
            side.text += event.text
            side.tokens_per_second = clock.rate(event.side, at) or side.tokens_per_second
        case Finished():
            answer = event.answer.to_json()
            side = run.sides[event.side]
            side.state, side.text, side.tokens = "done", answer["text"], dict(answer["tokens"])
            side.ended = str(answer.get("stopped", ""))
            side.tokens_per_second = 1000 / answer["tpot_ms"] if answer.get("tpot_ms") else None
        case Compared():
            run.comparison.update(event.comparison.to_json())
            _speed_up(run)


def _speed_up(run: Run) -> None:
    cached, uncached = run.sides["cached"].ttft_ms, run.sides["uncached"].ttft_ms
    if cached and uncached:
        run.comparison["ttft_speedup"] = uncached / cached


def _conclude(run: Run) -> None:
    for side in run.sides.values():
        if side.state != "done":
            side.state = "not run" if side.ttft_ms is None else "stopped"
            side.working = ""
    if run.state == "working":
        done = all(side.state == "done" for side in run.sides.values())
        enough = all(len(side.samples_ms) == run.repeats for side in run.sides.values())
        run.state = "done" if done and enough else "stopped"


def _sentence(error: BaseException) -> str:
    if isinstance(error, PromptCacheError):
        return str(error)
    logger.error("A run failed", exc_info=error)
    if isinstance(error, MemoryError):
        return "There is not enough memory for this prompt. Pick fewer modules, or open a smaller model."
    return f"The run failed: {error!r}. The terminal of the studio shows the details."


def word_difference(cached: str, uncached: str) -> dict[str, Any]:
    """The two texts cut into runs of words that agree and runs that do not.

    Returns:
        ``cached`` and ``uncached``: lists of ``[text, differs]`` that join to the texts; ``differing``: the
        number of words, on the side with more of them, that stand in runs that differ.
    """
    left, right = _words(cached), _words(uncached)
    pieces: dict[str, list[list[Any]]] = {"cached": [], "uncached": []}
    differing = 0
    matcher = SequenceMatcher(a=[w.strip() for w in left], b=[w.strip() for w in right], autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        differs = kind != "equal"
        differing += max(b - a, d - c) if differs else 0
        if b > a:
            pieces["cached"].append(["".join(left[a:b]), differs])
        if d > c:
            pieces["uncached"].append(["".join(right[c:d]), differs])
    return {**pieces, "differing": differing}


def _words(text: str) -> list[str]:
    words: list[str] = []
    start = 0
    for end in range(1, len(text) + 1):
        if end == len(text) or (text[end].isspace() and not text[end - 1].isspace()):
            words.append(text[start:end])
            start = end
    return words
