"""What the head of the page asks: open documents, drafts, files, the shelf, and how long work goes."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict

from app.studio.answers import JobState, Json, JsonOf
from app.studio.drafts import StaleDraftError, Workspace
from app.studio.endpoints import Endpoints, endpoint
from app.studio.folder import ChangedFileError, ElsewhereError, Encoding, NotUtf8Error, Stamp
from app.studio.parts import Parts
from app.studio.requests import (
    Nothing,
    OneJob,
    OpenFile,
    OpenSample,
    OpenShelved,
    OpenText,
    Page,
    SaveAs,
    SaveDraft,
    SaveFile,
    Shelve,
)
from app.studio.runs import RunFrame
from app.studio.samples import FIRST_SAMPLE, SampleTitle
from app.studio.settings import as_today, described
from engine.choices import TIMELINE_PARTS, TimelinePart
from engine.errors import PromptCacheError
from engine.inference.settings import Kind
from engine.pml import document_kind
from engine.tiers import TIERS, Tier

if TYPE_CHECKING:
    from engine import Engine

ABOUT_DEMO = (
    "The bundled model is tiny and was made for the gallery's samples: it shows what caching does, reads "
    "prompts of their kind, and knows nothing else. For real answers: pml studio --model OWNER/NAME "
    "(or a folder)."
)
PREVIEW = 400  # characters of an earlier workspace's texts


class ModelFacts(TypedDict):
    """The loaded model in a few words."""

    about: str
    name: str
    family: str
    device: str
    dtype: str
    weights: str
    context_length: int
    bytes_per_token: int
    summary: str


class SettingForm(TypedDict):
    """A setting as `engine.inference.settings.Setting.describe` tells it."""

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


class TierWords(TypedDict):
    """A tier in a word or two, and in a sentence."""

    name: Tier
    label: str
    meaning: str


class ModelState(TypedDict):
    """The model, or what is being done for it, in words."""

    loading: str
    model: ModelFacts | None


class Start(TypedDict):
    """Everything a page needs to start; the model may come later."""

    workspace: Annotated[Json, JsonOf(Workspace)]
    samples: list[SampleTitle]
    folder: bool
    files: list[str]
    settings: Annotated[list[Json], JsonOf(list[SettingForm])]
    tiers: Annotated[list[dict[str, str]], JsonOf(list[TierWords])]
    timeline_parts: dict[TimelinePart, str]
    runs: list[RunFrame]


class Opened(TypedDict):
    """The workspace that is open now; or what to ask about a file in another encoding."""

    workspace: NotRequired[Annotated[Json, JsonOf(Workspace)]]
    kind: NotRequired[Literal["schema", "prompt"]]
    encoding: NotRequired[Encoding]
    message: NotRequired[str]


class DraftSaved(TypedDict):
    """The revision that was kept and when; or the draft of another tab that was faster."""

    revision: NotRequired[int]
    saved: NotRequired[str]
    conflict: NotRequired[Annotated[Json, JsonOf(Workspace)]]
    message: NotRequired[str]


class Files(TypedDict):
    """Names of the documents in the user's folder."""

    files: list[str]


class FileSaved(TypedDict):
    """The name of the file that was written; or why it was not, and what to ask."""

    saved: NotRequired[str]
    origin: NotRequired[str]
    stamp: NotRequired[Annotated[Json, JsonOf(Stamp)]]
    files: NotRequired[list[str]]
    refused: NotRequired[Literal["elsewhere", "unknown", "gone", "changed"]]
    message: NotRequired[str]


class Shelved(TypedDict):
    """The key among the earlier workspaces; none where the texts are the open ones."""

    key: NotRequired[str]


class KeptWorkspace(TypedDict):
    """An earlier workspace: the beginnings of its texts."""

    key: str
    name: str
    saved: str
    schema: str
    prompt: str


class Shelf(TypedDict):
    """Earlier workspaces, latest first."""

    shelf: list[KeptWorkspace]


class Done(TypedDict):
    """It was done."""


class Workspaces(Endpoints):
    """The server side of the head."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._drafts, self._library = parts, parts.drafts, parts.library
        self._jobs, self._runs = parts.jobs, parts.runs

    @endpoint
    def open_workspace(self, _request: Nothing) -> Start:
        """Everything a page needs to start: the draft, or the first sample where there is none."""
        workspace = self._drafts.load()
        if workspace is None:
            workspace = self._drafts.replace(self._library.sample(FIRST_SAMPLE))
        return {
            "workspace": workspace_json(workspace),
            "samples": self._library.titles(),
            "folder": self._library.folder.path is not None,
            "files": self._library.folder.names(),
            "settings": described(),
            "tiers": [tier.to_json() for tier in TIERS],
            "timeline_parts": dict(TIMELINE_PARTS),
            "runs": [run.frame() for run in self._runs.history],
        }

    @endpoint
    def model(self, _request: Nothing) -> ModelState:
        """The model once it is loaded; until then, what is being done for it."""
        opening = self._parts.opening
        return {
            "loading": opening.words,
            "model": model_facts(opening.engine) if opening.there else None,
        }

    @endpoint
    def save_draft(self, request: SaveDraft) -> DraftSaved:
        """Keeps the page's texts; answers `conflict` where another tab was faster."""
        try:
            kept = self._drafts.save(request.workspace(), base=request.base, force=request.force)
        except StaleDraftError as stale:
            return {"conflict": workspace_json(stale.current), "message": str(stale)}
        return {"revision": kept.revision, "saved": kept.saved}

    @endpoint
    def open_sample(self, request: OpenSample) -> Opened:
        """A sample instead of the open workspace, which goes to the shelf."""
        return self._opened(self._library.sample(request.name, request.prompt), request.page)

    @endpoint
    def list_files(self, _request: Nothing) -> Files:
        """The documents that are in the user's folder now."""
        return {"files": self._library.folder.names()}

    @endpoint
    def open_file(self, request: OpenFile) -> Opened:
        """A document of the user's folder instead of the open schema or prompt, or what to ask."""
        name, folder = request.name, self._library.folder
        try:
            text, stamp = folder.read(name, request.encoding)
        except NotUtf8Error as other:
            return {"encoding": other.encoding, "message": str(other)}
        return self._opened_text(text, name, folder.origin(name), stamp, request.page)

    @endpoint
    def open_text(self, request: OpenText) -> Opened:
        """A document that the browser has read, instead of the open schema or prompt."""
        name = request.name
        return self._opened_text(request.text, name, f"browser:{name}", request.stamp, request.page)

    @endpoint
    def save_file(self, request: SaveFile) -> FileSaved:
        """Writes a document back to the file of the user's folder that it came from."""
        folder = self._library.folder
        if not request.origin.startswith("file:"):
            raise PromptCacheError(
                "This document did not come from the studio's folder, so no file was written."
            )
        try:
            name = folder.name_of(request.origin, here=request.here)
            stamp = folder.save(name, request.text, request.stamp, force=request.force)
        except ElsewhereError as other:
            return {"refused": "elsewhere" if other.known else "unknown", "message": str(other)}
        except ChangedFileError as changed:
            return {"refused": "gone" if changed.gone else "changed", "message": str(changed)}
        return {"saved": name, "origin": folder.origin(name), "stamp": asdict(stamp)}

    @endpoint
    def save_as(self, request: SaveAs) -> FileSaved:
        """Writes a document to a new file of the user's folder."""
        folder = self._library.folder
        stamp = folder.create(request.name, request.text, request.stamp)
        return {
            "saved": request.name,
            "origin": folder.origin(request.name),
            "stamp": asdict(stamp),
            "files": folder.names(),
        }

    @endpoint
    def shelve(self, request: Shelve) -> Shelved:
        """Puts a page's texts among the earlier workspaces; no `key` where they are the open ones."""
        key = self._drafts.shelve(request.page.workspace())
        return {} if key is None else {"key": key}

    @endpoint
    def shelf(self, _request: Nothing) -> Shelf:
        """Earlier workspaces, latest first."""
        return {
            "shelf": [
                {
                    "key": key,
                    "name": kept.name,
                    "saved": kept.saved,
                    "schema": kept.schema[:PREVIEW],
                    "prompt": kept.prompt[:PREVIEW],
                }
                for key, kept in self._drafts.shelf()
            ]
        }

    @endpoint
    def open_shelved(self, request: OpenShelved) -> Opened:
        """An earlier workspace instead of the open one."""
        return self._opened(self._drafts.shelved(request.key), request.page)

    @endpoint
    def job_state(self, request: OneJob) -> JobState[Json]:
        """How far a piece of long work is, or what came of it."""
        return self._jobs.state(request.key)

    @endpoint
    def stop_job(self, request: OneJob) -> Done:
        """Has a piece of long work stop at its next step."""
        self._jobs.stop(request.key)
        return {}

    def _opened(self, workspace: Workspace, page: Page) -> Opened:
        self._keep(page)
        return {"workspace": workspace_json(self._drafts.replace(workspace))}

    def _opened_text(self, text: str, name: str, origin: str, stamp: Stamp, page: Page) -> Opened:
        kind = document_kind(text)
        if kind is None:
            raise PromptCacheError(
                f"{name!r} is no PML document. Open a file whose root is <schema> or <prompt>."
            )
        kept = self._keep(page)
        files = {**kept.files, kind: asdict(stamp)}
        if kind == "prompt":
            opened = replace(kept, prompt=text, prompt_origin=origin, files=files)
        else:
            opened = replace(kept, name=name, schema=text, origin=origin, files=files)
        return {"workspace": workspace_json(self._drafts.replace(opened)), "kind": kind}

    def _keep(self, page: Page) -> Workspace:
        kept = page.workspace()
        self._drafts.save(kept, base=page.base, force=True)
        return kept


def workspace_json(workspace: Workspace) -> Json:
    """A workspace for the page."""
    return {**asdict(workspace), "settings": as_today(workspace.settings)}


def model_facts(engine: Engine) -> ModelFacts:
    """The loaded model in a few words."""
    model = engine.model
    return {
        "about": ABOUT_DEMO if model.name == "demo" else "",
        "name": model.name,
        "family": model.family,
        "device": str(model.device),
        "dtype": str(model.dtype).removeprefix("torch."),
        "weights": model.weights,
        "context_length": model.context_length,
        "bytes_per_token": model.bytes_per_token,
        "summary": model.probe.summary,
    }
