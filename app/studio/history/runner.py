"""Runs a prompt: encodes missing segments, then times both sides in turns.

The engine works in the job's thread, so a slow browser does not affect timings.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from app.studio.history import Record, RunStore
from app.studio.history.record import asked, contained
from app.studio.runs.run_frame import SIDES, Mode, ModelOfRun, Side
from app.studio.runs.run_state import Clock, Run, apply, belongs, told_of, with_warnings
from app.studio.runs.settings import AUTOMATIC, PageSettings
from app.studio.web.jobs import Job, Jobs
from engine.base.errors import CancelledError, PromptCacheError
from engine.base.events import FirstToken, Listener, ReuseTaken, Waiting

if TYPE_CHECKING:
    from engine import Engine, PreparedPrompt, PreparedSchema

logger = logging.getLogger(__name__)

NOT_STORED = "Segments are in memory at most, because the budget of the cache is 0."
NOT_KEPT = "The answer is complete, but the run could not be saved."
LEFT = "Stopped: the page was closed or reloaded."


@dataclass(frozen=True)
class RunRequest:
    """The current texts, and how to run them.

    Attributes:
        engine: computes the answers one step at a time; prepared the schema.
        mode: the sides to run.
        texts: digests of schema and prompt.
        source: the schema's text; `origin` is its source.
        linked: the id of the run that another model answered. Such a run is stored, but not in the session.
    """

    key: str
    engine: Engine
    schema: PreparedSchema
    prompt: str
    settings: PageSettings
    mode: Mode = "both"
    texts: tuple[str, str] = ("", "")
    source: str = ""
    origin: str = ""
    linked: str = ""


class Runs:
    """Starts runs and remembers those of this session.

    Args:
        jobs: the register of background work.
        kept: the stored runs. A run that reaches a first token is added when it ends.
    """

    def __init__(self, jobs: Jobs, kept: RunStore | None = None) -> None:
        self._jobs, self._kept = jobs, kept
        self._history: list[Run] = []
        self._started = 0
        self._lock = threading.Lock()

    @property
    def history(self) -> tuple[Run, ...]:
        """The runs that reached a first token, in order."""
        with self._lock:
            return tuple(self._history)

    def find(self, number: int) -> Run | None:
        """Returns the run with this number."""
        return next((run for run in self.history if run.number == number), None)

    def start(self, request: RunRequest) -> Job:
        """Starts to run the sides in turn. A stopped run keeps its output."""
        run = self.prepared(request)
        return self._jobs.start(
            Job(request.key, lambda job: self.answer(job, run, request), "run", result=run)
        )

    def prepared(self, request: RunRequest) -> Run:
        """Returns a run for `answer`."""
        engine = request.engine
        run = Run(
            request.schema.name,
            request.settings,
            self._order(request.mode),
            model_of(engine),
            placement=engine.placement(request.settings.placement),
            texts=request.texts,
            question=asked(request.prompt, request.schema.tree),
        )
        run.started = datetime.now().astimezone().isoformat(timespec="seconds")
        if "cached" in run.order:
            run.encoding.state = "working"
        else:
            run.begin()
        return run

    def time_again(self, request: RunRequest, number: int) -> Job:
        """Starts to time the first token of an earlier run more often.

        Raises:
            PromptCacheError: the run is gone, or has other texts, settings or another model.
        """
        run, model = self.find(number), model_of(request.engine)
        now = belongs(request.texts, request.settings, model)
        if run is None or run.state != "done" or belongs(run.texts, run.settings, run.model) != now:
            raise PromptCacheError("Only the last run of these documents can be timed again. Run it again.")
        return self._jobs.start(
            Job(request.key, lambda job: self._timed_again(job, run, request), "run", result=run)
        )

    def _timed_again(self, job: Job, run: Run, request: RunRequest) -> Run:
        with job.changing():
            run.state, run.timings = "working", run.timings + AUTOMATIC - 1
        with contextlib.suppress(CancelledError):
            self._time(job, run, request)
        with job.changing():
            run.repeat = run.timings = min(len(run.sides[side].timelines) for side in run.order)
            run.conclude()
        frame = cast(dict[str, Any], run.frame())
        if self._kept is not None and run.kept:
            self._kept.note(run.kept, **{name: frame[name] for name in ("sides", "comparison", "payback")})
        return run

    def _order(self, mode: Mode) -> tuple[Side, ...]:
        if mode != "both":
            return (mode,)
        with self._lock:
            self._started += 1
            return SIDES if self._started % 2 else SIDES[::-1]

    def answer(self, job: Job, run: Run, request: RunRequest) -> Run:
        """Runs the sides in turn, in a job's thread."""
        clock = Clock()
        try:
            if "cached" in run.order and not job.stopping:
                self._encode(job, run, request)
            if not job.stopping:
                self._run_once(job, run, request, clock)
            with job.changing():
                run.timings = run.settings.timings(sum(side.ttft_ms or 0 for side in run.sides.values()))
            self._time(job, run, request)
        except CancelledError:
            pass
        except Exception as error:  # the page shows it with the earlier output
            with job.changing():
                run.state, run.message = "failed", _sentence(error)
        with job.changing():
            run.conclude()
            if run.state == "stopped" and job.left:
                run.message = LEFT
            encoding = run.encoding.found
            if encoding is not None and encoding.segments and not request.engine.store.settings.budget:
                run.warnings = with_warnings(run.warnings, [NOT_STORED])
            self._remember(run, request)
        self._keep(job, run, request)
        return run

    def _time(self, job: Job, run: Run, request: RunRequest) -> None:
        """Times the first token again, up to the run's number of timings."""
        for repeat in range(run.repeat + 1, run.timings + 1):
            if job.stopping:
                break
            with job.changing():
                run.repeat = repeat
            self._run_once(job, run, request, Clock())

    def _keep(self, job: Job, run: Run, request: RunRequest) -> None:
        """Stores a run after its clocks have stopped and the page has shown its end."""
        if self._kept is None or not run.answered:
            return
        frame = cast(dict[str, Any], run.frame())
        try:
            whole = contained(request.schema.tree)
            record = Record(
                request.source, request.prompt, frame, "", "", request.origin, whole, linked=request.linked
            )
            self._kept.keep(record)
            run.kept = record.id
        except Exception as error:  # the answer is complete without it
            logger.warning("A run was not stored", exc_info=not isinstance(error, PromptCacheError))
            with job.changing():
                run.warnings = with_warnings(run.warnings, [f"{NOT_KEPT} {error}"])

    def _encode(self, job: Job, run: Run, request: RunRequest) -> None:
        """Encodes missing segments in a step of its own."""

        def turn(_: Side) -> None:
            with job.changing():
                run.encoding.waits = False

        prompt = request.schema.prompt(request.prompt)
        steps = prompt.encoding(request.settings, Listener(turn, lambda: job.stopping))
        with contextlib.closing(steps):
            while True:
                try:
                    event = next(steps)
                except StopIteration as end:
                    with job.changing():
                        run.encoding.finish(end.value)
                        run.warnings = with_warnings(run.warnings, end.value.warnings)
                        run.begin()
                    return
                with job.changing():
                    run.encoding.take(event)
                if job.stopping:
                    raise CancelledError("The run was stopped.")

    def _run_once(self, job: Job, run: Run, request: RunRequest, clock: Clock) -> None:
        order = run.order if run.repeat % 2 else run.order[::-1]
        settings = request.settings if run.repeat == 1 else replace(request.settings, max_new_tokens=1)

        def turn(side: Side) -> None:
            with job.changing():
                run.sides[side].waits = False

        def checked(found: ReuseTaken) -> None:
            self._checked(run, found)

        listener = Listener(turn, lambda: job.stopping, checked)
        prompt, check = request.schema.prompt(request.prompt), run.repeat == 1
        stream = self._stream(prompt, settings, order, listener, check=check)
        with contextlib.closing(cast(Any, stream)):
            for event in stream:
                if run.repeat == 1 or isinstance(event, (FirstToken, Waiting)):
                    with job.changing():
                        apply(run, event, time.perf_counter(), clock)
                        self._remember(run, request)
                if job.stopping:
                    break

    @staticmethod
    def _stream(
        prompt: PreparedPrompt,
        settings: PageSettings,
        order: tuple[Side, ...],
        listener: Listener,
        *,
        check: bool,
    ) -> Any:
        mode: Mode = order[0] if len(order) == 1 else "both"
        order = order if mode == "both" else SIDES
        return prompt.stream(settings, mode=mode, order=order, listener=listener, check=check)

    def _checked(self, run: Run, found: ReuseTaken) -> None:
        """Adds a check's result to a finished run."""
        run.reuse, frame = found, told_of(found)
        if self._kept is not None and run.kept and frame is not None:
            self._kept.note(run.kept, reuse=frame)

    def _remember(self, run: Run, request: RunRequest) -> None:
        if run.number == 0 and run.answered and not request.linked:
            with self._lock:
                run.number = len(self._history) + 1
                self._history.append(run)


def model_of(engine: Engine) -> ModelOfRun:
    """Returns a run's description of its model."""
    model = engine.model
    return {
        "name": model.name,
        "fingerprint": model.fingerprint,
        "device": str(model.device),
        "dtype": str(model.dtype).removeprefix("torch."),
        "weights": model.weights,
    }


def _sentence(error: BaseException) -> str:
    if isinstance(error, PromptCacheError):
        return str(error)
    logger.error("A run failed", exc_info=error)
    if isinstance(error, MemoryError):
        return "There is not enough memory for this prompt. Pick fewer modules, or open a smaller model."
    return f"The run failed: {error!r}. The terminal of the studio shows the details."
