"""The Runs page: finds, names, compares, shares and opens the user's runs."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.studio.documents.drafts import Workspace
from app.studio.documents.requests import Nothing, Shelve, Words, request
from app.studio.documents.workspace_opener import Opened, workspace_json
from app.studio.history import Record, RunsHeld, RunSummary
from app.studio.history.compare import RunBeside, beside
from app.studio.history.exchange import BASE_URL, FORMS, converted
from app.studio.history.ratings import Thumb
from app.studio.history.runs_chart import runs_chart
from app.studio.history.sharing import from_text, to_html, to_json
from app.studio.history.shown import Reopened, reopened
from app.studio.pages.page import Page, host
from app.studio.runs.run_frame import Side
from app.studio.runs.settings import valid
from app.studio.web.chart import Drawn, sent
from app.studio.web.endpoints import endpoint
from app.studio.workspace.page_state import Parts
from engine.base.errors import PromptCacheError

MOST_BESIDE = 8


@request
class SomeRuns:
    """Ids of runs."""

    ids: tuple[Words, ...]


@request
class ShareRuns(SomeRuns):
    """Runs to export in one file.

    Attributes:
        base_url: the base URL of this studio's API, for promptfoo.
    """

    form: Literal["html", "json", "promptfoo", "promptfoo results", "langfuse dataset", "langfuse traces"]
    base_url: Words = BASE_URL


@request
class LabelRun:
    """A run's new name or note; None leaves the current value."""

    id: Words
    name: Words | None = None
    note: Words | None = None


@request
class RateAnswer:
    """A new rating of an answer; None leaves the current value."""

    id: Words
    side: Side
    thumb: Thumb | None = None
    note: Words | None = None


@request
class FindRuns:
    """Words to find in the documents or answers of runs."""

    words: Words


@request
class ImportRuns:
    """A file of runs that the browser read."""

    name: Words
    text: Words


@request
class RestoreRun(Shelve):
    """A run whose documents and settings to open."""

    id: Words


class KeptRuns(TypedDict):
    """Every run of this user, newest first; the size of the database."""

    runs: list[RunSummary]
    held: RunsHeld


class FoundRuns(TypedDict):
    """Ids of runs."""

    ids: list[str]


class RunsBeside(TypedDict):
    """Compared runs."""

    runs: list[RunBeside]


class DeletedRuns(TypedDict):
    """The number of deleted runs."""

    deleted: int


class SharedRuns(TypedDict):
    """A file of runs."""

    filename: str
    media_type: str
    text: str


class ImportedRuns(TypedDict):
    """The number of runs in a file, and how many of them are new."""

    read: int
    added: int


class Labelled(TypedDict):
    """The run with its new name, note or rating."""

    run: NotRequired[RunSummary]


class RunsPage(Page):
    """The server side of the Runs page."""

    name, title = "runs", "Runs"

    def __init__(self, parts: Parts) -> None:
        self._kept, self._drafts, self._library = parts.kept, parts.drafts, parts.library

    def build(self) -> None:
        """Adds the filter with the chart, and the list."""
        host(self.name)
        host("runslist")

    @endpoint
    def draw_runs(self, request: SomeRuns) -> Drawn:
        """Returns the chart of some runs, without deleted ones."""
        ids = set(request.ids)
        return {"figure": sent(runs_chart([run for run in self._kept.summaries() if run["id"] in ids][::-1]))}

    @endpoint
    def list_runs(self, _request: Nothing) -> KeptRuns:
        """Returns every stored run, or the problem with the database."""
        usage = self._kept.held()
        return {"runs": self._kept.summaries() if usage["runs"] else [], "held": usage}

    @endpoint
    def find_runs(self, request: FindRuns) -> FoundRuns:
        """Returns the runs whose documents or answers contain all words."""
        return {"ids": self._kept.search(request.words.split())}

    @endpoint
    def label_run(self, request: LabelRun) -> Labelled:
        """Sets a name or a note."""
        self._kept.label(request.id, name=request.name, note=request.note)
        return {"run": self._kept.find([request.id])[0].summary()}

    @endpoint
    def rate_answer(self, request: RateAnswer) -> Labelled:
        """Sets the rating of an answer; returns the run, also if nothing changes."""
        if request.thumb is not None or request.note is not None:
            self._kept.rate(request.id, request.side, thumb=request.thumb, note=request.note)
        return {"run": self._kept.find([request.id])[0].summary()}

    @endpoint
    def compare_runs(self, request: SomeRuns) -> RunsBeside:
        """Compares the first run with the others."""
        if not 1 <= len(request.ids) <= MOST_BESIDE:
            raise PromptCacheError(f"At most {MOST_BESIDE} runs can be compared. Choose fewer.")
        return {"runs": beside(self._kept.find(request.ids))}

    @endpoint
    def delete_runs(self, request: SomeRuns) -> DeletedRuns:
        """Deletes runs permanently."""
        return {"deleted": self._kept.delete(request.ids)}

    @endpoint
    def share_runs(self, request: ShareRuns) -> SharedRuns:
        """Exports runs as one file."""
        records = self._kept.find(request.ids)
        if not records:
            raise PromptCacheError("Choose the runs to share first.")
        if request.form in FORMS:
            filename, media_type, text = converted(request.form, records, request.base_url)
            return {"filename": filename, "media_type": media_type, "text": text}
        stem = "prompt-cache-run" if len(records) == 1 else f"prompt-cache-runs-{len(records)}"
        if request.form == "html":
            return {"filename": f"{stem}.html", "media_type": "text/html", "text": to_html(records)}
        return {"filename": f"{stem}.json", "media_type": "application/json", "text": to_json(records)}

    @endpoint
    def import_runs(self, request: ImportRuns) -> ImportedRuns:
        """Imports the runs of a file, all or none."""
        records = from_text(request.text, request.name)
        return {"read": len(records), "added": self._kept.import_runs(records)}

    @endpoint
    def restore_run(self, request: RestoreRun) -> Opened:
        """Opens a run's documents and settings; the open ones become a version."""
        record = self._kept.find([request.id])[0]
        again = reopened(record, self._library.base_of(record.origin))
        self._drafts.save(request.page.workspace(), base=request.page.base, force=True)
        opened: Opened = {"workspace": workspace_json(self._drafts.replace(workspace_of(record, again)))}
        if again.told:
            opened["told"] = again.told
        return opened


def workspace_of(record: Record, again: Reopened) -> Workspace:
    """Returns a run's workspace with its reopened schema and without obsolete settings.

    It has no file stamp, so saving over the user's file needs a confirmation.
    """
    frame = record.told
    settings = valid(frame["settings"])
    name = record.name or f"{frame['schema'] or 'Untitled'}, run of {frame['started'].replace('T', ' ')[:16]}"
    return Workspace(
        name=name, schema=again.schema, prompt=record.prompt, origin=again.origin, settings=settings
    )
