"""Endpoints of the File menu: the folder, new and recent documents, saving, renaming and diffs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from app.studio.documents.drafts import Workspace
from app.studio.documents.fitting import followed, wrapped
from app.studio.documents.folder import ChangedFileError, ElsewhereError, NotUtf8Error, Stamp
from app.studio.documents.folder_index import Entry
from app.studio.documents.requests import (
    Nothing,
    OpenFile,
    OpenSample,
    OpenText,
    Page,
    SaveAs,
    SaveFile,
    Shelve,
    Words,
    request,
)
from app.studio.documents.starting_points import POINTS, from_text, starting_point
from app.studio.documents.workspace_opener import Opened
from app.studio.runs.text_diff import TextDifference, difference
from app.studio.web.endpoints import Endpoints, endpoint
from app.studio.web.json_answers import Json, JsonOf
from app.studio.workspace.page_state import CHOSEN_FOLDER, Parts
from engine.base.errors import PromptCacheError
from engine.pml import parse_schema

MOST_LOOKED_AT = 2


@request
class SeenFile:
    """A file as the page last read or wrote it."""

    origin: Words
    stamp: Stamp


@request
class LookAtFiles:
    """The files of the open documents."""

    files: tuple[SeenFile, ...]


@request
class CompareFile:
    """A document to compare with its file."""

    origin: Words
    text: Words


@request
class Both:
    """The two documents of a workspace."""

    schema: Words
    prompt: Words


@request
class CompareTexts:
    """Two states of a workspace."""

    left: Both
    right: Both


@request
class CompareVersion:
    """A version to compare with the editors."""

    key: Words
    page: Page


@request
class New(Shelve):
    """A workspace to begin with: a starting point by its name, or the user's own text."""

    start: Words = ""
    text: Words = ""


@request
class Follow(Both):
    """Both documents, and the schema's former text."""

    former: Words


@request
class Choose:
    """A folder for documents."""

    path: Words


@request
class Rename:
    """A new name for a file of the user's folder."""

    origin: Words
    name: Words


@request
class Forget:
    """A document to remove from the recent ones."""

    origin: Words


class StartTitle(TypedDict):
    """A starting point in the dialog of new workspaces."""

    name: str
    title: str
    about: str


class Starts(TypedDict):
    """The starting points."""

    starts: list[StartTitle]


class NewPrompt(TypedDict):
    """The text of a prompt."""

    prompt: str


class Files(TypedDict):
    """Documents in the user's folder; `folder` says whether there is one, `root` is its path."""

    folder: bool
    root: str
    files: list[str]


class Browsed(TypedDict):
    """The user's folder; `folder` is "" if there is none."""

    folder: str
    entries: list[Entry]


class FileSaved(TypedDict):
    """The saved file's name and warnings; or why it was not saved, and a question."""

    saved: NotRequired[str]
    origin: NotRequired[str]
    stamp: NotRequired[Annotated[Json, JsonOf(Stamp)]]
    files: NotRequired[list[str]]
    refused: NotRequired[Literal["elsewhere", "unknown", "gone", "changed"]]
    message: NotRequired[str]


class FileSeen(TypedDict):
    """A file's state since it was read or written, and a message."""

    origin: str
    state: Literal["same", "changed", "gone"]
    message: str


class FilesSeen(TypedDict):
    """The states of files."""

    files: list[FileSeen]


class FileCompared(TypedDict):
    """A file compared with the editor's text; or why it cannot be shown."""

    name: str
    difference: NotRequired[TextDifference]
    message: NotRequired[str]


class TextsCompared(TypedDict):
    """The differences of two documents."""

    schema: TextDifference
    prompt: TextDifference


class RecentEntry(TypedDict):
    """A recent document; `file`, `sample` or `version` opens it, `missing` says why it cannot be opened."""

    origin: str
    name: str
    kind: str
    used: str
    file: NotRequired[str]
    sample: NotRequired[str]
    version: NotRequired[str]
    missing: NotRequired[str]


class RecentEntries(TypedDict):
    """Recent documents, latest first."""

    documents: list[RecentEntry]


def _own_entry(workspace: Workspace) -> RecentEntry:
    return {"origin": "", "name": workspace.name or "Untitled", "kind": "workspace", "used": workspace.saved}


class FileDesk(Endpoints):
    """The server side of the File menu."""

    def __init__(self, parts: Parts) -> None:
        self._drafts, self._library, self._folder = parts.drafts, parts.library, parts.library.folder
        self._desk, self._recent = parts.desk, parts.recent

    @endpoint
    def starting_points(self, _request: Nothing) -> Starts:
        """Returns the starting points of new workspaces."""
        return {"starts": [{"name": one.name, "title": one.title, "about": one.about} for one in POINTS]}

    @endpoint
    def new_workspace(self, request: New) -> Opened:
        """Opens a new workspace; the open one becomes a version."""
        workspace = from_text(request.text) if request.text.strip() else starting_point(request.start)
        return self._desk.open(workspace, request.page)

    @endpoint
    def follow_schema(self, request: Follow) -> NewPrompt:
        """Returns the prompt under the schema's new name."""
        tree = parse_schema(request.schema).tree
        return {"prompt": followed(tree, request.prompt, request.former) if tree else request.prompt}

    @endpoint
    def wrap_prompt(self, request: Both) -> NewPrompt:
        """Returns plain text as a prompt."""
        return {"prompt": wrapped(parse_schema(request.schema).tree, request.prompt)}

    @endpoint
    def choose_folder(self, request: Choose) -> Files:
        """Takes a folder for documents, now and at the next start."""
        path = self._folder.choose(request.path)
        self._drafts.keep_form(CHOSEN_FOLDER, {"path": path.as_posix()})
        return self.list_files(Nothing())

    @endpoint
    def list_files(self, _request: Nothing) -> Files:
        """Returns the documents of the user's folder."""
        path = self._folder.path
        root = "" if path is None else path.as_posix()
        return {"folder": path is not None, "root": root, "files": self._folder.names()}

    @endpoint
    def browse(self, _request: Nothing) -> Browsed:
        """Returns the documents of the user's folder by kind."""
        return {"folder": str(self._folder.path or ""), "entries": self._desk.catalogue.entries()}

    @endpoint
    def open_file(self, request: OpenFile) -> Opened:
        """Opens a document of the user's folder as schema or prompt, or returns a question."""
        name = request.name
        try:
            text, stamp = self._folder.read(name, request.encoding)
        except NotUtf8Error as other:
            return {"encoding": other.encoding, "message": str(other)}
        edited = request.encoding != "utf-8"
        origin = self._folder.origin(name)
        return self._desk.open_document(text, name, origin, stamp, request.page, edited=edited)

    @endpoint
    def open_text(self, request: OpenText) -> Opened:
        """Opens a document that the browser read as schema or prompt."""
        name = request.name
        return self._desk.open_document(request.text, name, f"browser:{name}", request.stamp, request.page)

    @endpoint
    def open_sample_schema(self, request: OpenSample) -> Opened:
        """Opens a sample's schema; a prompt that fits it stays open."""
        sample = self._library.sample(request.name)
        return self._desk.open_document(sample.schema, sample.name, sample.origin, Stamp(), request.page)

    @endpoint
    def save_file(self, request: SaveFile) -> FileSaved:
        """Saves a document to its file in the user's folder."""
        if not request.origin.startswith("file:"):
            raise PromptCacheError(
                "This document did not come from the studio's folder, so no file was written."
            )
        try:
            name = self._folder.name_of(request.origin, here=request.here)
            stamp = self._folder.save(name, request.text, request.stamp, force=request.force)
        except ElsewhereError as other:
            return {"refused": "elsewhere" if other.known else "unknown", "message": str(other)}
        except ChangedFileError as changed:
            return {"refused": "gone" if changed.gone else "changed", "message": str(changed)}
        answer: FileSaved = {"saved": name, "origin": self._folder.origin(name), "stamp": asdict(stamp)}
        if stamp != request.stamp:
            try:
                self._drafts.keep_version()
            except PromptCacheError as error:
                answer["message"] = f"{name!r} is saved, but a version of it could not be stored. {error}"
        return answer

    @endpoint
    def save_as(self, request: SaveAs) -> FileSaved:
        """Saves a document to a new file in the user's folder."""
        stamp = self._folder.create(request.name, request.text, request.stamp)
        origin = self._folder.origin(request.name)
        kind = next(
            (item["kind"] for item in self._desk.catalogue.entries() if item["name"] == request.name), "other"
        )
        self._recent.note(origin, request.name, kind)
        return {
            "saved": request.name,
            "origin": origin,
            "stamp": asdict(stamp),
            "files": self._folder.names(),
        }

    @endpoint
    def rename_file(self, request: Rename) -> FileSaved:
        """Renames a document's file."""
        try:
            name = self._folder.name_of(request.origin)
        except ElsewhereError as other:
            return {"refused": "elsewhere" if other.known else "unknown", "message": str(other)}
        self._folder.rename(name, request.name)
        origin = self._folder.origin(request.name)
        known = {document.origin: document.kind for document in self._recent.documents()}
        self._recent.forget(request.origin)
        self._recent.note(origin, request.name, known.get(request.origin, "other"))
        return {"saved": request.name, "origin": origin, "files": self._folder.names()}

    @endpoint
    def look_at_files(self, request: LookAtFiles) -> FilesSeen:
        """Returns whether files of open documents have changed, without those of other folders."""
        states: list[FileSeen] = []
        for file in request.files[:MOST_LOOKED_AT]:
            if not self._folder.owns(file.origin):
                continue
            name = self._folder.name_of(file.origin)
            state = self._folder.look(name, file.stamp)
            message = {
                "same": "",
                "changed": f"{name!r} was changed by another program since it was opened here.",
                "gone": f"{name!r} no longer exists. Your text is saved as a draft.",
            }[state]
            states.append({"origin": file.origin, "state": state, "message": message})
        return {"files": states}

    @endpoint
    def compare_file(self, request: CompareFile) -> FileCompared:
        """Compares a document's file, on the left, with the page's text."""
        try:
            name = self._folder.name_of(request.origin)
        except ElsewhereError as other:
            raise PromptCacheError(str(other)) from None
        try:
            stored, _ = self._folder.read(name)
        except NotUtf8Error as other:
            return {
                "name": name,
                "message": f"{name!r} is no longer UTF-8, so it cannot be shown ({other.why}).",
            }
        return {"name": name, "difference": difference(stored, request.text)}

    @endpoint
    def compare_texts(self, request: CompareTexts) -> TextsCompared:
        """Compares two states of a workspace."""
        left, right = request.left, request.right
        return {
            "schema": difference(left.schema, right.schema),
            "prompt": difference(left.prompt, right.prompt),
        }

    @endpoint
    def compare_version(self, request: CompareVersion) -> TextsCompared:
        """Compares a version, on the left, with the page's texts."""
        version, page = self._drafts.shelved(request.key), request.page
        return {
            "schema": difference(version.schema, page.schema),
            "prompt": difference(version.prompt, page.prompt),
        }

    @endpoint
    def recent(self, _request: Nothing) -> RecentEntries:
        """Returns the recent documents, and which are missing, with the user's own workspaces."""
        entries = [self._recent_entry(**asdict(entry)) for entry in self._recent.documents()]
        entries += self._own_workspaces()
        return {"documents": sorted(entries, key=lambda entry: entry["used"], reverse=True)}

    @endpoint
    def forget_recent(self, request: Forget) -> RecentEntries:
        """Removes a document from the recent ones; returns the list."""
        self._recent.forget(request.origin)
        return self.recent(Nothing())

    def _own_workspaces(self) -> list[RecentEntry]:
        """Returns the open workspace and the latest version of each name, without files and samples."""
        present = self._drafts.load()
        found: dict[str, RecentEntry] = {}
        for key, one in self._drafts.shelf():
            if one.name not in found and self._is_own(one) and not (present and present.same_text(one)):
                found[one.name] = {**_own_entry(one), "origin": f"version:{key}", "version": key}
        if present is None or not self._is_own(present):
            return list(found.values())
        return [{**_own_entry(present), "missing": "Open now."}, *found.values()]

    def _is_own(self, workspace: Workspace) -> bool:
        """Whether a workspace has neither a file nor the unchanged texts of a sample."""
        kind, _, place = workspace.origin.partition(":")
        return kind != "file" and not (kind == "sample" and self._library.is_sample(place, workspace))

    def _recent_entry(self, origin: str, name: str, kind: str, used: str) -> RecentEntry:
        entry: RecentEntry = {"origin": origin, "name": name, "kind": kind, "used": used}
        source, _, place = origin.partition(":")
        if source == "sample":
            if any(title["name"] == place for title in self._library.titles()):
                entry["sample"] = place
            else:
                entry["missing"] = "This sample no longer exists."
        elif not self._folder.owns(origin):
            above = place.rpartition("/")[0]
            entry["missing"] = f"In another folder: start the studio with --schemas {above}."
        else:
            file = self._folder.name_of(origin)
            if self._folder.has(file):
                entry["file"] = file
            else:
                entry["missing"] = "No longer exists."
        return entry
