"""Endpoints of the File menu: the folder, new and recent documents, saving, renaming and diffs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from app.studio.documents.drafts import Workspace
from app.studio.documents.fitting import NEW_PROMPT, NEW_SCHEMA
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
from app.studio.documents.workspace_opener import Opened
from app.studio.runs.text_diff import TextDifference, difference
from app.studio.web.endpoints import Endpoints, endpoint
from app.studio.web.json_answers import Json, JsonOf
from app.studio.workspace.page_state import Parts
from engine.base.errors import PromptCacheError

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
class Rename:
    """A new name for a file of the user's folder."""

    origin: Words
    name: Words


@request
class Forget:
    """A document to remove from the recent ones."""

    origin: Words


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
    """A recent document; `file` or `sample` opens it, `missing` says why it cannot be opened."""

    origin: str
    name: str
    kind: str
    used: str
    file: NotRequired[str]
    sample: NotRequired[str]
    missing: NotRequired[str]


class RecentEntries(TypedDict):
    """Recent documents, latest first."""

    documents: list[RecentEntry]


class FileDesk(Endpoints):
    """The server side of the File menu."""

    def __init__(self, parts: Parts) -> None:
        self._drafts, self._library, self._folder = parts.drafts, parts.library, parts.library.folder
        self._desk, self._recent = parts.desk, parts.recent

    @endpoint
    def new_workspace(self, request: Shelve) -> Opened:
        """Opens a small new schema with a prompt; the open workspace becomes a version."""
        return self._desk.open(Workspace("Untitled", NEW_SCHEMA, NEW_PROMPT), request.page)

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
        """Returns the recent documents, and which are missing."""
        return {"documents": [self._recent_entry(**asdict(entry)) for entry in self._recent.documents()]}

    @endpoint
    def forget_recent(self, request: Forget) -> RecentEntries:
        """Removes a document from the recent ones; returns the list."""
        self._recent.forget(request.origin)
        return self.recent(Nothing())

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
