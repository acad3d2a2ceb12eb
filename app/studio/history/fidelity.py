"""Measures how reuse changes an answer, and stores the results with the runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, cast

from typing_extensions import TypedDict

from app.studio.history import Record, RunStore, read_frame
from app.studio.history.record import contained
from app.studio.history.runner import RunRequest, model_of
from app.studio.runs.run_frame import Belongs, ModelOfRun, RunFrame
from app.studio.runs.run_state import belongs
from app.studio.runs.settings import PageSettings
from app.studio.web.jobs import Job, Jobs
from app.studio.web.json_answers import Json, JsonOf
from engine.base.errors import PromptCacheError

if TYPE_CHECKING:
    from engine import Engine, Fidelity

LEAST_STEPS = 2  # both answers; a measurement that is stopped earlier has no result

Progress = Callable[[int, int, str], None]


class MeasuredFidelity(TypedDict):
    """A measurement with its time, texts, settings and model.

    `schema` is the schema's name. `unkept` says why it is not stored, or is "".
    """

    schema: str
    of: Belongs
    settings: Annotated[Json, JsonOf(dict[str, Any])]
    model: ModelOfRun
    measured: str
    found: Annotated[Json, JsonOf(named="engine.fidelity.findings:Fidelity")]
    unkept: str


class KnownFidelity(TypedDict):
    """The stored measurement of the open documents, and the key of a running measurement or ""."""

    kept: MeasuredFidelity | None
    under_way: str


@dataclass(frozen=True)
class FidelityOf:
    """The result of a measurement.

    Attributes:
        frame: its stored form: a run without answers.
        found: the measurement.
        unkept: why it is not stored; "" if it is.
    """

    frame: RunFrame
    found: Fidelity
    unkept: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the result for the page."""
        return dict(_told(self.frame, self.found.to_json(), self.unkept))


def measure(
    request: RunRequest, store: RunStore, progress: Progress, enough: Callable[[], bool] = lambda: False
) -> FidelityOf:
    """Measures a prompt and stores the result. The result is complete even if storing fails.

    Args:
        request: the texts and settings to measure.
        store: the stored runs.
        progress: called with (done, total, what) before each step.
        enough: asked before each module and each fix; true ends the measurement with what it has.

    Raises:
        PromptError: the prompt, or one of its segments, does not fit the context window.
    """
    engine, settings = request.engine, request.settings
    result = request.schema.prompt(request.prompt).fidelity(settings, progress, enough)
    now, model = datetime.now().astimezone().isoformat(timespec="seconds"), model_of(engine)
    frame = read_frame(
        {
            "schema": request.schema.name,
            "of": belongs(request.texts, settings, model),
            "started": now,
            "state": "measured",
            "settings": settings.to_json(),
            "placement": engine.placement(settings.placement),
            "model": model,
            "fidelity": {"measured": now, "found": result.to_json()},
        }
    )
    frame_json, whole = cast(dict[str, Any], frame), contained(request.schema.tree)
    record = Record(request.source, request.prompt, frame_json, origin=request.origin, contained=whole)
    try:
        known = None if result.complete else store.measured(frame["of"])
        if known is not None and known["fidelity"] and known["fidelity"]["found"]["complete"]:
            return FidelityOf(frame, result, "Stopped: the earlier complete measurement stays saved.")
        store.keep_fidelity(record)
    except PromptCacheError as error:
        return FidelityOf(frame, result, f"The measurement is complete, but could not be saved. {error}")
    return FidelityOf(frame, result)


@dataclass
class Measurements:
    """Measurements of this session, and stored ones.

    Args:
        jobs: the register of background work.
        kept: the stored runs.
    """

    jobs: Jobs
    kept: RunStore
    _begun: list[tuple[Belongs, Job]] = field(default_factory=list)

    def start(self, request: RunRequest) -> Job:
        """Starts a measurement."""
        of = belongs(request.texts, request.settings, model_of(request.engine))

        def work(job: Job) -> FidelityOf:
            def progress(done: int, total: int, what: str) -> None:
                (job.progress if done < LEAST_STEPS else job.tell)(done, total, what)

            return measure(request, self.kept, progress, lambda: job.stopping)

        job = self.jobs.start(Job(request.key, work, "fidelity", "waiting for its turn"))
        self._begun = [(of, job), *(earlier for earlier in self._begun if not earlier[1].over)]
        return job

    def find(self, texts: tuple[str, str], settings: PageSettings, engine: Engine) -> KnownFidelity:
        """Returns the stored measurement of texts under settings, by the texts' digests, or the running one.

        Raises:
            PromptCacheError: the database cannot be read.
        """
        of = belongs(texts, settings, model_of(engine))
        going = (job.key for measured, job in self._begun if measured == of and not job.over)
        frame = self.kept.measured(of)
        known = _told(frame, frame["fidelity"]["found"]) if frame and frame["fidelity"] else None
        return {"kept": known, "under_way": next(going, "")}


def _told(frame: RunFrame, found: Json, unkept: str = "") -> MeasuredFidelity:
    return {
        "schema": frame["schema"],
        "of": frame["of"],
        "settings": frame["settings"],
        "model": frame["model"],
        "measured": frame["started"] if frame["fidelity"] is None else frame["fidelity"]["measured"],
        "found": found,
        "unkept": unkept,
    }
