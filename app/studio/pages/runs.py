"""The Runs page: every run of this user, found again, named, compared, shared and opened."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from app.studio.documents.drafts import Workspace
from app.studio.documents.requests import Nothing, Shelve, Words, request
from app.studio.documents.workspace_opener import Opened, workspace_json
from app.studio.history import Record, RunsHeld, RunSummary
from app.studio.history.compare import RunBeside, beside
from app.studio.history.runs_chart import runs_chart
from app.studio.history.sharing import from_text, to_html, to_json
from app.studio.history.shown import Reopened, reopened
from app.studio.pages.page import Page, host
from app.studio.runs.settings import declarations
from app.studio.web.chart import Drawn, sent
from app.studio.web.endpoints import endpoint
from app.studio.workspace.page_state import Parts
from engine.base.errors import PromptCacheError

MOST_BESIDE = 8


@request
class SomeRuns:
    """Runs by their ids."""

    ids: tuple[Words, ...]


@request
class ShareRuns(SomeRuns):
    """Runs for somebody else, in one file."""

    form: Literal["html", "json"]


@request
class LabelRun:
    """What the user calls a run, and notes on it; what is left out stays."""

    id: Words
    name: Words | None = None
    note: Words | None = None


@request
class FindRuns:
    """Words that stand in the documents or answers of a run."""

    words: Words


@request
class ImportRuns:
    """A file of runs, as the browser has read it."""

    name: Words
    text: Words


@request
class RestoreRun(Shelve):
    """A run whose documents and settings are to be open."""

    id: Words


class KeptRuns(TypedDict):
    """Every run of this user, the newest first; how full their file is."""

    runs: list[RunSummary]
    held: RunsHeld


class FoundRuns(TypedDict):
    """Ids of runs."""

    ids: list[str]


class RunsBeside(TypedDict):
    """Runs side by side."""

    runs: list[RunBeside]


class DeletedRuns(TypedDict):
    """How many runs went."""

    deleted: int


class SharedRuns(TypedDict):
    """A file of runs."""

    filename: str
    media_type: str
    text: str


class ImportedRuns(TypedDict):
    """How many runs a file holds, and how many of them are new here."""

    read: int
    added: int


class Labelled(TypedDict):
    """The run is called so now."""

    run: NotRequired[RunSummary]


class RunsPage(Page):
    """The server side of the Runs page."""

    name, title = "runs", "Runs"

    def __init__(self, parts: Parts) -> None:
        self._kept, self._drafts, self._library = parts.kept, parts.drafts, parts.library

    def build(self) -> None:
        """Puts the filter with the chart, and the list, into the column."""
        host(self.name)
        host("runslist")

    @endpoint
    def draw_runs(self, request: SomeRuns) -> Drawn:
        """The chart of some runs; those that are not kept any more are left out."""
        ids = set(request.ids)
        return {"figure": sent(runs_chart([run for run in self._kept.summaries() if run["id"] in ids][::-1]))}

    @endpoint
    def list_runs(self, _request: Nothing) -> KeptRuns:
        """Every run that is kept; where the file cannot be read, what there is to say of it."""
        held = self._kept.held()
        return {"runs": self._kept.summaries() if held["runs"] else [], "held": held}

    @endpoint
    def find_runs(self, request: FindRuns) -> FoundRuns:
        """The runs in whose documents or answers all of the words stand."""
        return {"ids": self._kept.holding(request.words.split())}

    @endpoint
    def label_run(self, request: LabelRun) -> Labelled:
        """Writes a name or a note."""
        self._kept.label(request.id, name=request.name, note=request.note)
        return {"run": self._kept.find([request.id])[0].summary()}

    @endpoint
    def compare_runs(self, request: SomeRuns) -> RunsBeside:
        """Runs side by side, the first as what the others are compared with."""
        if not 1 <= len(request.ids) <= MOST_BESIDE:
            raise PromptCacheError(f"At most {MOST_BESIDE} runs fit side by side. Choose fewer.")
        return {"runs": beside(self._kept.find(request.ids))}

    @endpoint
    def delete_runs(self, request: SomeRuns) -> DeletedRuns:
        """Deletes runs for good."""
        return {"deleted": self._kept.delete(request.ids)}

    @endpoint
    def share_runs(self, request: ShareRuns) -> SharedRuns:
        """Runs as one file."""
        records = self._kept.find(request.ids)
        if not records:
            raise PromptCacheError("Choose the runs to share first.")
        stem = "prompt-cache-run" if len(records) == 1 else f"prompt-cache-runs-{len(records)}"
        if request.form == "html":
            return {"filename": f"{stem}.html", "media_type": "text/html", "text": to_html(records)}
        return {"filename": f"{stem}.json", "media_type": "application/json", "text": to_json(records)}

    @endpoint
    def import_runs(self, request: ImportRuns) -> ImportedRuns:
        """Adds the runs of a file, all or none of them."""
        records = from_text(request.text, request.name)
        return {"read": len(records), "added": self._kept.bring(records)}

    @endpoint
    def restore_run(self, request: RestoreRun) -> Opened:
        """The documents and settings of a run instead of the open ones, which go to the shelf."""
        record = self._kept.find([request.id])[0]
        again = reopened(record, self._library.base_of(record.origin))
        self._drafts.save(request.page.workspace(), base=request.page.base, force=True)
        opened: Opened = {"workspace": workspace_json(self._drafts.replace(workspace_of(record, again)))}
        if again.told:
            opened["told"] = again.told
        return opened


def workspace_of(record: Record, again: Reopened) -> Workspace:
    """The workspace of a run with its schema as it is opened; settings that are none today are left out.

    What a file of the user's was like is not known any more, so it is not written over unasked.
    """
    told, known = record.told, declarations()
    settings = {
        name: value for name, value in told["settings"].items() if name in known and known[name].takes(value)
    }
    name = record.name or f"{told['schema'] or 'Untitled'}, run of {told['started'].replace('T', ' ')[:16]}"
    return Workspace(
        name=name, schema=again.schema, prompt=record.prompt, origin=again.origin, settings=settings
    )
