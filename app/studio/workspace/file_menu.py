"""What the File menu asks: the folder, new and recent documents, saving, renaming, and what differs."""

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
    """A file as a page has read or written it."""

    origin: Words
    stamp: Stamp


@request
class LookAtFiles:
    """The files of the open documents."""

    files: tuple[SeenFile, ...]


@request
class CompareFile:
    """A document, to be compared with its file."""

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
    """An earlier workspace, to be compared with what stands in the editors."""

    key: Words
    page: Page


@request
class Rename:
    """Another name for a file of the user's folder."""

    origin: Words
    name: Words


@request
class Forget:
    """A document that is wanted no more in the list of recent ones."""

    origin: Words


class Files(TypedDict):
    """Names of the documents in the user's folder; `folder` says whether there is one, `root` where it is."""

    folder: bool
    root: str
    files: list[str]


class Browsed(TypedDict):
    """The user's folder; `folder` is "" where there is none."""

    folder: str
    entries: list[Entry]


class FileSaved(TypedDict):
    """The name of the file that was written, and what else went wrong; or why it was not, and what to ask."""

    saved: NotRequired[str]
    origin: NotRequired[str]
    stamp: NotRequired[Annotated[Json, JsonOf(Stamp)]]
    files: NotRequired[list[str]]
    refused: NotRequired[Literal["elsewhere", "unknown", "gone", "changed"]]
    message: NotRequired[str]


class FileSeen(TypedDict):
    """What became of a file since it was read or written, and a sentence on it."""

    origin: str
    state: Literal["same", "changed", "gone"]
    message: str


class FilesSeen(TypedDict):
    """What became of files."""

    files: list[FileSeen]


class FileCompared(TypedDict):
    """A file beside the text in the editor; or why its text cannot be shown."""

    name: str
    difference: NotRequired[TextDifference]
    message: NotRequired[str]


class TextsCompared(TypedDict):
    """What is different in each of two documents."""

    schema: TextDifference
    prompt: TextDifference


class RecentEntry(TypedDict):
    """A document that was used; `file` or `sample` opens it, `missing` says why neither can."""

    origin: str
    name: str
    kind: str
    used: str
    file: NotRequired[str]
    sample: NotRequired[str]
    missing: NotRequired[str]


class RecentEntries(TypedDict):
    """Documents that were used, the latest first."""

    documents: list[RecentEntry]


class FileDesk(Endpoints):
    """The server side of the File menu."""

    def __init__(self, parts: Parts) -> None:
        self._drafts, self._library, self._folder = parts.drafts, parts.library, parts.library.folder
        self._desk, self._recent = parts.desk, parts.recent

    @endpoint
    def new_workspace(self, request: Shelve) -> Opened:
        """A small schema and a prompt of it to begin with; the open workspace goes to the shelf."""
        return self._desk.open(Workspace("Untitled", NEW_SCHEMA, NEW_PROMPT), request.page)

    @endpoint
    def list_files(self, _request: Nothing) -> Files:
        """The documents that are in the user's folder now."""
        path = self._folder.path
        root = "" if path is None else path.as_posix()
        return {"folder": path is not None, "root": root, "files": self._folder.names()}

    @endpoint
    def browse(self, _request: Nothing) -> Browsed:
        """The documents of the user's folder by what they are."""
        return {"folder": str(self._folder.path or ""), "entries": self._desk.catalogue.entries()}

    @endpoint
    def open_file(self, request: OpenFile) -> Opened:
        """A document of the user's folder instead of the open schema or prompt, or what to ask."""
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
        """A document that the browser has read, instead of the open schema or prompt."""
        name = request.name
        return self._desk.open_document(request.text, name, f"browser:{name}", request.stamp, request.page)

    @endpoint
    def open_sample_schema(self, request: OpenSample) -> Opened:
        """The schema of a sample instead of the open one; the prompt stays where it fits."""
        sample = self._library.sample(request.name)
        return self._desk.open_document(sample.schema, sample.name, sample.origin, Stamp(), request.page)

    @endpoint
    def save_file(self, request: SaveFile) -> FileSaved:
        """Writes a document back to the file of the user's folder that it came from."""
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
                answer["message"] = f"{name!r} is saved, but no version of it is kept. {error}"
        return answer

    @endpoint
    def save_as(self, request: SaveAs) -> FileSaved:
        """Writes a document to a new file of the user's folder."""
        stamp = self._folder.create(request.name, request.text, request.stamp)
        origin = self._folder.origin(request.name)
        kind = next(
            (one["kind"] for one in self._desk.catalogue.entries() if one["name"] == request.name), "other"
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
        """Gives the file of a document another name."""
        try:
            name = self._folder.name_of(request.origin)
        except ElsewhereError as other:
            return {"refused": "elsewhere" if other.known else "unknown", "message": str(other)}
        self._folder.rename(name, request.name)
        origin = self._folder.origin(request.name)
        known = {one.origin: one.kind for one in self._recent.documents()}
        self._recent.forget(request.origin)
        self._recent.note(origin, request.name, known.get(request.origin, "other"))
        return {"saved": request.name, "origin": origin, "files": self._folder.names()}

    @endpoint
    def look_at_files(self, request: LookAtFiles) -> FilesSeen:
        """Whether the files of open documents are what they were; those of other folders are left out."""
        seen: list[FileSeen] = []
        for one in request.files[:MOST_LOOKED_AT]:
            if not self._folder.owns(one.origin):
                continue
            name = self._folder.name_of(one.origin)
            state = self._folder.look(name, one.stamp)
            message = {
                "same": "",
                "changed": f"{name!r} was changed by another program since it was opened here.",
                "gone": f"{name!r} is not there any more. Your text is kept as a draft.",
            }[state]
            seen.append({"origin": one.origin, "state": state, "message": message})
        return {"files": seen}

    @endpoint
    def compare_file(self, request: CompareFile) -> FileCompared:
        """The file of a document, on the left, beside a page's text."""
        try:
            name = self._folder.name_of(request.origin)
        except ElsewhereError as other:
            raise PromptCacheError(str(other)) from None
        try:
            theirs, _ = self._folder.read(name)
        except NotUtf8Error as other:
            return {
                "name": name,
                "message": f"{name!r} is not UTF-8 any more, so it is not shown ({other.why}).",
            }
        return {"name": name, "difference": difference(theirs, request.text)}

    @endpoint
    def compare_texts(self, request: CompareTexts) -> TextsCompared:
        """What is different between two states of a workspace."""
        left, right = request.left, request.right
        return {
            "schema": difference(left.schema, right.schema),
            "prompt": difference(left.prompt, right.prompt),
        }

    @endpoint
    def compare_version(self, request: CompareVersion) -> TextsCompared:
        """An earlier workspace, on the left, beside a page's texts."""
        version, page = self._drafts.shelved(request.key), request.page
        return {
            "schema": difference(version.schema, page.schema),
            "prompt": difference(version.prompt, page.prompt),
        }

    @endpoint
    def recent(self, _request: Nothing) -> RecentEntries:
        """The documents that were used last, and which of them are gone."""
        return {"documents": [self._recent_entry(**asdict(one)) for one in self._recent.documents()]}

    @endpoint
    def forget_recent(self, request: Forget) -> RecentEntries:
        """The list without one document."""
        self._recent.forget(request.origin)
        return self.recent(Nothing())

    def _recent_entry(self, origin: str, name: str, kind: str, used: str) -> RecentEntry:
        entry: RecentEntry = {"origin": origin, "name": name, "kind": kind, "used": used}
        source, _, place = origin.partition(":")
        if source == "sample":
            if any(one["name"] == place for one in self._library.titles()):
                entry["sample"] = place
            else:
                entry["missing"] = "There is no such sample any more."
        elif not self._folder.owns(origin):
            above = place.rpartition("/")[0]
            entry["missing"] = f"In another folder: start the studio with --schemas {above}."
        else:
            file = self._folder.name_of(origin)
            if self._folder.has(file):
                entry["file"] = file
            else:
                entry["missing"] = "Not there any more."
        return entry
