"""The Benchmark page: sweeps as in `python -m benchmarks sweep`, with charts and stored reports."""

from __future__ import annotations

import json
import threading
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict

from app.studio.documents.requests import Nothing, Whole, Words, request
from app.studio.pages.page import Page, host
from app.studio.pages.sweep_chart import sweep_chart
from app.studio.pages.sweep_history import KeptReport, Measurements
from app.studio.sweeps.plan import AXES, DEFAULTS, Axis, Sweep, as_csv, parsed_values
from app.studio.web.chart import Drawn, sent
from app.studio.web.endpoints import endpoint
from app.studio.web.jobs import Job
from app.studio.web.json_answers import JobState, Json, JsonOf
from app.studio.workspace.page_state import Parts
from engine.base.choices import RANDOM
from engine.base.errors import PromptCacheError

if TYPE_CHECKING:
    from app.studio.sweeps.measuring import Report
    from engine import Engine
    from engine.model.model import Model

ALONE = (
    "A benchmark is running alone, so that nothing else affects its times. Wait for its end, or stop "
    "it on the Benchmark page."
)
LOADED = "loaded"  # stands for the current model's name
_PATIENCE_SECONDS = 1.0  # wait for the engine when estimating
_BASIS = ("estimated from this machine's speed", "estimated from the last sweep here")
_SOON = 0.02  # share of a sweep after which its own speed gives the time left


@request
class WantedSweep:
    """A sweep to measure.

    Attributes:
        model: "loaded", or "random:SHAPE".
        values: its points as text; "" for the default points.
    """

    model: Words = LOADED
    axis: Axis
    values: tuple[Words, ...] = ()
    cached: Whole = 512
    modules: Whole = 8
    new: Whole = 32
    repeats: Whole = 3

    def sweep(self) -> Sweep:
        """Parses the sweep.

        Raises:
            PromptCacheError: the sweep cannot be measured.
        """
        from engine.checkpoint.synthetic import shapes

        if self.model != LOADED and self.model.removeprefix(RANDOM) not in shapes():
            raise PromptCacheError("There is no such model. Choose one from the list.")
        values = parsed_values(self.axis, self.values)
        return Sweep(self.axis, values, self.cached, self.modules, self.new, self.repeats)


@request
class StartSweep(WantedSweep):
    """A sweep to start.

    Attributes:
        key: the key of the new job.
    """

    key: Words


@request
class NamedReport:
    """A stored report."""

    name: Words


@request
class DrawnReport:
    """The chart's content.

    Attributes:
        name: the name of a stored report; "" for the running sweep.
        view: times by way, or their stages.
    """

    name: Words
    view: Literal["times", "stages"] = "times"


class AxisWords(TypedDict):
    """A sweep's axis: its name, its meaning, and its default points."""

    name: Axis
    meaning: str
    values: list[str]


class ShapeWords(TypedDict):
    """A model shape: its name and a description."""

    name: str
    words: str


class Result(TypedDict):
    """A way at a point. Times in milliseconds."""

    name: str
    value: int | str
    samples_ms: list[float]
    median_ms: float
    timeline_ms: NotRequired[dict[str, float]]
    tokens_per_s: NotRequired[float]
    encode_ms: NotRequired[float]
    kl_first_token: NotRequired[float]


class ReportedSweep(TypedDict):
    """The measurements of a sweep."""

    axis: Axis
    values: list[int | str]
    cached: int
    modules: int
    new: int
    repeats: int
    seed: int


class ShownReport(TypedDict):
    """A report for the page: objects of words and numbers describe the model and the machine."""

    sweep: ReportedSweep
    model: Annotated[Json, JsonOf(dict[str, str | int])]
    machine: Annotated[Json, JsonOf(dict[str, str | int])]
    started: str
    seconds: float
    ended: str
    results: Annotated[list[Json], JsonOf(list[Result])]


class MeasuredSweep(TypedDict):
    """A sweep so far, the name of its report once stored, and the estimated seconds left."""

    name: str
    left_seconds: float | None
    report: Annotated[Json, JsonOf(ShownReport)] | None


class Benchmarks(TypedDict):
    """The options, the stored reports, and the key of the running sweep or ""."""

    axes: list[AxisWords]
    models: list[ShapeWords]
    kept: list[KeptReport]
    under_way: str


class KeptReports(TypedDict):
    """The stored reports."""

    kept: list[KeptReport]


class NamedAndShown(TypedDict):
    """A stored report."""

    name: str
    report: Annotated[Json, JsonOf(ShownReport)]


class Expected(TypedDict):
    """The estimated seconds of a sweep, None if unknown, and its number of points."""

    seconds: float | None
    points: int
    basis: str


class ReportFiles(TypedDict):
    """A report as files."""

    name: str
    json: str
    csv: str


class Measuring:
    """A running sweep, as its job shows it.

    Attributes:
        report: the measurements so far; None before the model is loaded.
        name: the stored report's name.
        left: estimated seconds left.
    """

    def __init__(self, left: float | None) -> None:
        self.report: Report | None = None
        self.name, self.left = "", left

    def to_json(self) -> dict[str, Any]:
        """Returns the sweep for the page."""
        return {"name": self.name, "left_seconds": self.left, "report": self.report}


class BenchmarkPage(Page):
    """The server side of the Benchmark page."""

    name, title = "benchmark", "Benchmark"

    def __init__(self, parts: Parts) -> None:
        self._parts, self._jobs = parts, parts.jobs
        self._kept = Measurements(parts.database)
        self._paces: dict[str, float] = {}  # by fingerprint
        self._lock = threading.Lock()
        self._job: Job | None = None
        self._measuring: Measuring | None = None

    def build(self) -> None:
        """Adds the form with the chart, and the table."""
        host(self.name)
        host("sweep-table")

    @endpoint
    def benchmarks(self, _request: Nothing) -> Benchmarks:
        """Returns the options and the stored reports."""
        job = self._job
        return {
            "axes": [
                {"name": axis, "meaning": meaning, "values": [str(value) for value in DEFAULTS[axis]]}
                for axis, meaning in AXES.items()
            ],
            "models": self._models(),
            "kept": self._kept.listed(),
            "under_way": job.key if job is not None and not job.over else "",
        }

    @endpoint
    def expect_sweep(self, request: WantedSweep) -> Expected:
        """Estimates how long a sweep takes."""
        sweep = request.sweep()
        seconds, basis = self._expected(self._parts.engine, request.model, sweep)
        return {"seconds": seconds, "points": len(sweep.values), "basis": basis}

    @endpoint
    def start_sweep(self, request: StartSweep) -> JobState[Annotated[Json, JsonOf(MeasuredSweep)]]:
        """Starts a sweep; no other work runs meanwhile."""
        from app.models.model_fit import require_room
        from app.studio.sweeps.measuring import require_fit

        sweep = request.sweep()
        with self._parts.taken() as engine, self._lock:
            if request.model == LOADED:  # a shape is checked once it is loaded
                require_fit(engine.model, sweep)
            else:
                require_room(request.model)
            measuring = Measuring(self._expected(engine, request.model, sweep)[0])

            def work(job: Job) -> Measuring:
                return self._measure(job, engine, request.model, sweep, measuring)

            job = Job(request.key, work, "benchmark", "beginning", measuring, alone=ALONE)
            self._job, self._measuring = self._jobs.start(job), measuring
            return self._job.state()

    @endpoint
    def show_report(self, request: NamedReport) -> NamedAndShown:
        """Returns a stored report."""
        return {"name": request.name, "report": self._kept.report(request.name)}

    @endpoint
    def remove_report(self, request: NamedReport) -> KeptReports:
        """Deletes a report."""
        self._kept.remove(request.name)
        return {"kept": self._kept.listed()}

    @endpoint
    def report_files(self, request: NamedReport) -> ReportFiles:
        """Returns a report as the files that the command line writes."""
        report = self._kept.report(request.name)
        return {"name": request.name, "json": json.dumps(report, indent=2) + "\n", "csv": as_csv(report)}

    @endpoint
    def draw_sweep(self, request: DrawnReport) -> Drawn:
        """Returns the chart of a report or of the running sweep; empty if there is none."""
        if request.name:
            return {"figure": sent(sweep_chart(self._kept.report(request.name), request.view))}
        measured = self._measuring.report if self._measuring is not None else None
        return {"figure": sent(sweep_chart(measured, request.view))}

    def _models(self) -> list[ShapeWords]:
        from engine.checkpoint.synthetic import shapes

        models: list[ShapeWords] = [{"name": LOADED, "words": ""}]
        if self._parts.opening.there:
            model = self._parts.engine.model
            models = [{"name": LOADED, "words": f"{model.name}, {model.dtype}, on {model.device}"}]
        for name, shape in shapes().items():
            size = f"{shape.parameters / 1e9:.1f} billion weights, {shape.bytes / 2**30:.1f} GiB of memory"
            models.append({"name": f"{RANDOM}{name}", "words": size})
        return models

    def _measure(self, job: Job, engine: Engine, name: str, sweep: Sweep, measuring: Measuring) -> Measuring:
        """Measures until the end or a stop; the measurements are stored in either case."""
        from app.studio.sweeps.measuring import Sweeping

        began = 0.0

        def tell(done: float, total: float, what: str) -> None:
            nonlocal began
            began = began or time.monotonic()
            if done > _SOON * total:
                measuring.left = (time.monotonic() - began) * (total - done) / done
            job.progress(round(done), round(total), what)

        job.progress(0, 0, f"loading {name}" if name != LOADED else "waiting for its turn")
        sweeping = Sweeping(self._model(engine, name), sweep, tell, engine.computing.step)
        measuring.report = sweeping.report
        try:
            for report in sweeping.points():
                with job.changing():
                    measuring.report = dict(report)
        finally:
            if sweeping.report["results"]:
                with job.changing():
                    measuring.report = dict(sweeping.report)
                measuring.name = self._kept.keep(sweeping.report)
        measuring.left = 0.0
        return measuring

    @staticmethod
    def _model(engine: Engine, name: str) -> Model:
        if name == LOADED:
            return engine.model
        from engine.model.loading import load

        return load(name)

    def _expected(self, engine: Engine, name: str, sweep: Sweep) -> tuple[float | None, str]:
        """Returns the estimated seconds, and the basis of the estimate in words."""
        from app.studio.sweeps.measuring import pace, pace_of_shape, total, width
        from engine.checkpoint.synthetic import shapes

        if name != LOADED:
            shape = shapes()[name.removeprefix(RANDOM)]
            known = self._kept.pace(name)
            return total(shape.hidden, sweep) / (known or pace_of_shape(shape)), _BASIS[known is not None]
        model, known = engine.model, self._kept.pace(engine.model.name, engine.model.device)
        measured = known is not None
        known = known or self._paces.get(model.fingerprint)
        if known is None:
            with engine.computing.step(_PATIENCE_SECONDS) as came:
                if not came:
                    return None, "other work is running"
                known = self._paces[model.fingerprint] = pace(model)
        return total(width(model), sweep) / known, _BASIS[measured]
