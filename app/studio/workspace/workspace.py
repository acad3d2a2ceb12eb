"""Endpoints of the page's header: open documents, drafts, files, versions, and job states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from typing_extensions import TypedDict

from app.studio.documents.drafts import StaleDraftError, Workspace
from app.studio.documents.requests import (
    Nothing,
    OneJob,
    OpenSample,
    OpenShelved,
    SaveDraft,
    Shelve,
)
from app.studio.documents.samples import FIRST_SAMPLE, SampleTitle
from app.studio.documents.workspace_opener import Opened, workspace_json
from app.studio.history.runner import model_of
from app.studio.runs.run_frame import RunFrame
from app.studio.runs.run_state import digest_of_model
from app.studio.runs.settings import Matters, described
from app.studio.web.endpoints import Endpoints, endpoint
from app.studio.web.json_answers import JobState, Json, JsonOf
from app.studio.workspace.page_state import Parts
from engine.base.choices import TIMELINE_PARTS, TimelinePart
from engine.base.tiers import TIERS, Tier
from engine.checkpoint.model_catalogue import CATALOGUE, here
from engine.inference.setting import Kind

if TYPE_CHECKING:
    from engine import Engine

ABOUT_DEMO = "The bundled model is tiny and knows only the samples of the gallery."
PREVIEW = 400  # characters of a version's texts


class ModelFacts(TypedDict):
    """A summary of the loaded model; `digest` identifies it in runs.

    `stored` is a model of the catalogue on this disk, or "".
    """

    digest: str
    about: str
    stored: str
    name: str
    own_name: str
    family: str
    device: str
    dtype: str
    weights: str
    context_length: int
    bytes_per_token: int
    summary: str


class SettingForm(TypedDict):
    """A setting as from `engine.inference.setting.Setting.describe`."""

    name: str
    kind: Kind
    label: str
    sentence: str
    default: Any
    range: str
    unit: NotRequired[str]
    least: NotRequired[float]
    most: NotRequired[float]
    above: NotRequired[bool]
    choices: NotRequired[dict[str, str]]
    pattern: NotRequired[str]
    examples: NotRequired[list[str]]
    matters: Matters


class TierWords(TypedDict):
    """A tier's short name and its description."""

    name: Tier
    label: str
    meaning: str


class ModelState(TypedDict):
    """The model, or its loading progress; a new `number` means a new model.

    `switching` is the progress of a model switch, or "".
    """

    loading: str
    model: ModelFacts | None
    number: int
    switching: str


class Start(TypedDict):
    """The initial data of a page; the model may follow later."""

    workspace: Annotated[Json, JsonOf(Workspace)]
    samples: list[SampleTitle]
    folder: bool
    root: str
    files: list[str]
    settings: Annotated[list[Json], JsonOf(list[SettingForm])]
    tiers: Annotated[list[dict[str, str]], JsonOf(list[TierWords])]
    timeline_parts: dict[TimelinePart, str]
    runs: list[RunFrame]


class DraftSaved(TypedDict):
    """The saved revision and its time; or the newer draft of another tab."""

    revision: NotRequired[int]
    saved: NotRequired[str]
    conflict: NotRequired[Annotated[Json, JsonOf(Workspace)]]
    message: NotRequired[str]


class Shelved(TypedDict):
    """The key of the new version; none if the texts are the open ones."""

    key: NotRequired[str]


class KeptWorkspace(TypedDict):
    """A version with the start of its texts."""

    key: str
    name: str
    saved: str
    schema: str
    prompt: str


class Shelf(TypedDict):
    """The versions, latest first."""

    shelf: list[KeptWorkspace]


class Done(TypedDict):
    """Confirms success."""


class Workspaces(Endpoints):
    """The endpoints of the page's header."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._drafts, self._library = parts, parts.drafts, parts.library
        self._jobs, self._runs = parts.jobs, parts.runs
        self._desk, self._recent = parts.desk, parts.recent

    @endpoint
    def open_workspace(self, _request: Nothing) -> Start:
        """Returns the initial data: the draft, or the first sample if there is none."""
        workspace = self._drafts.load()
        if workspace is None:
            workspace = self._drafts.replace(self._library.sample(FIRST_SAMPLE))
        return {
            "workspace": workspace_json(workspace),
            "samples": self._library.titles(),
            "folder": self._library.folder.path is not None,
            "root": "" if self._library.folder.path is None else self._library.folder.path.as_posix(),
            "files": self._library.folder.names(),
            "settings": described(),
            "tiers": [tier.to_json() for tier in TIERS],
            "timeline_parts": dict(TIMELINE_PARTS),
            "runs": [run.frame() for run in self._runs.history],
        }

    @endpoint
    def model(self, _request: Nothing) -> ModelState:
        """Returns the model, or its loading progress."""
        opening, switch = self._parts.opening, self._parts.switching.under_way
        number = opening.number
        return {
            "loading": opening.words,
            "model": model_facts(opening.engine) if opening.there else None,
            "number": number,
            "switching": switch.words if switch is not None else "",
        }

    @endpoint
    def save_draft(self, request: SaveDraft) -> DraftSaved:
        """Saves the page's texts; answers `conflict` if another tab saved first."""
        try:
            draft = self._drafts.save(request.workspace(), base=request.base, force=request.force)
        except StaleDraftError as stale:
            return {"conflict": workspace_json(stale.current), "message": str(stale)}
        return {"revision": draft.revision, "saved": draft.saved}

    @endpoint
    def open_sample(self, request: OpenSample) -> Opened:
        """Opens a sample; the open workspace becomes a version."""
        sample = self._library.sample(request.name, request.prompt)
        self._recent.note(sample.origin, sample.name, "both")
        return self._desk.open(sample, request.page)

    @endpoint
    def shelve(self, request: Shelve) -> Shelved:
        """Saves a page's texts as a version; no `key` if they are the open ones."""
        key = self._drafts.shelve(request.page.workspace())
        return {} if key is None else {"key": key}

    @endpoint
    def shelf(self, _request: Nothing) -> Shelf:
        """Returns the versions, latest first."""
        return {
            "shelf": [
                {
                    "key": key,
                    "name": version.name,
                    "saved": version.saved,
                    "schema": version.schema[:PREVIEW],
                    "prompt": version.prompt[:PREVIEW],
                }
                for key, version in self._drafts.shelf()
            ]
        }

    @endpoint
    def open_shelved(self, request: OpenShelved) -> Opened:
        """Opens a version."""
        return self._desk.open(self._drafts.shelved(request.key), request.page)

    @endpoint
    def job_state(self, request: OneJob) -> JobState[Json]:
        """Returns a job's state."""
        return self._jobs.state(request.key)

    @endpoint
    def stop_job(self, request: OneJob) -> Done:
        """Stops a job at its next step."""
        self._jobs.stop(request.key)
        return {}


def model_facts(engine: Engine) -> ModelFacts:
    """Returns a summary of the loaded model."""
    model = engine.model
    return {
        "digest": digest_of_model(model_of(engine)),
        "about": ABOUT_DEMO if model.name == "demo" else "",
        "stored": next((name for name in CATALOGUE if here(name)), ""),
        "name": model.name,
        "own_name": model.stored.name,
        "family": model.family,
        "device": str(model.device),
        "dtype": str(model.dtype).removeprefix("torch."),
        "weights": model.weights,
        "context_length": model.context_length,
        "bytes_per_token": model.bytes_per_token,
        "summary": model.probe.summary,
    }
