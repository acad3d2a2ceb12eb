"""What reuse did to an answer: measured, kept with the runs, and found again."""

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

Progress = Callable[[int, int, str], None]


class MeasuredFidelity(TypedDict):
    """What was found and when, and the texts, settings and model that it belongs to.

    `schema` is the schema's name; `unkept` says why it is not on disk, "" where it is.
    """

    schema: str
    of: Belongs
    settings: Annotated[Json, JsonOf(dict[str, Any])]
    model: ModelOfRun
    measured: str
    found: Annotated[Json, JsonOf(named="engine.fidelity.findings:Fidelity")]
    unkept: str


class KnownFidelity(TypedDict):
    """The kept measurement of what is open; the key of the work that measures it, "" where none does."""

    kept: MeasuredFidelity | None
    under_way: str


@dataclass(frozen=True)
class FidelityOf:
    """What comes of a measurement.

    Attributes:
        frame: what it is kept as: a run that answered nothing.
        found: what was found.
        unkept: why it is not on disk, in words; "" where it is.
    """

    frame: RunFrame
    found: Fidelity
    unkept: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns it for the page."""
        return dict(_told(self.frame, self.found.to_json(), self.unkept))


def measure(request: RunRequest, store: RunStore, progress: Progress) -> FidelityOf:
    """Measures a prompt, and keeps what was found; it is complete without being kept.

    Args:
        request: the texts and settings to measure.
        store: the runs on disk.
        progress: called with (done, total, what) before each step.

    Raises:
        PromptError: the prompt, or a segment that it reads, does not fit the context window.
    """
    engine, settings = request.engine, request.settings
    found = request.schema.prompt(request.prompt).fidelity(settings, progress)
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
            "fidelity": {"measured": now, "found": found.to_json()},
        }
    )
    told, whole = cast(dict[str, Any], frame), contained(request.schema.tree)
    record = Record(request.source, request.prompt, told, origin=request.origin, contained=whole)
    try:
        store.keep_fidelity(record)
    except PromptCacheError as error:
        return FidelityOf(frame, found, f"The measurement is complete, but it is not kept on disk. {error}")
    return FidelityOf(frame, found)


@dataclass
class Measurements:
    """Measurements of this session, and those that are kept.

    Args:
        jobs: the register where they can be asked about and stopped.
        kept: the runs on disk.
    """

    jobs: Jobs
    kept: RunStore
    _begun: list[tuple[Belongs, Job]] = field(default_factory=list)

    def start(self, request: RunRequest) -> Job:
        """Begins to measure."""
        of = belongs(request.texts, request.settings, model_of(request.engine))
        job = Job(
            request.key,
            lambda job: measure(request, self.kept, job.progress),
            "fidelity",
            "waiting for its turn",
        )
        self.jobs.start(job)
        self._begun = [(of, job), *(one for one in self._begun if not one[1].over)]
        return job

    def find(self, texts: tuple[str, str], settings: PageSettings, engine: Engine) -> KnownFidelity:
        """The kept measurement of texts, by their digests, under settings; or the work that measures it.

        Raises:
            PromptCacheError: the kept ones cannot be read.
        """
        of = belongs(texts, settings, model_of(engine))
        going = (job.key for measured, job in self._begun if measured == of and not job.over)
        frame = self.kept.measured(of)
        kept = _told(frame, frame["fidelity"]["found"]) if frame and frame["fidelity"] else None
        return {"kept": kept, "under_way": next(going, "")}


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
