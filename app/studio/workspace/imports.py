"""Imports other formats as a schema and a prompt, with a preview.

Files are written to a temporary folder, imported as by `pml import`, and deleted.
"""

from __future__ import annotations

import base64
import binascii
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, NotRequired

from typing_extensions import TypedDict

from app.base.importing import DEFAULT_LENGTH, KINDS, LEAST_TOKENS, MOST_TOKENS, as_texts, options_of
from app.studio.documents.drafts import Workspace
from app.studio.documents.fitting import prompt_of
from app.studio.documents.folder import Encoding, NotUtf8Error, decoded
from app.studio.documents.requests import Count, Flag, Shelve, Words, request
from app.studio.documents.workspace_opener import Opened
from app.studio.web.endpoints import Endpoints, endpoint
from app.studio.web.jobs import Job, StoppedError
from app.studio.web.json_answers import JobState, Json, JsonOf
from app.studio.workspace.page_state import Parts
from engine.base.errors import PromptCacheError
from engine.exchange import FolderOptions, import_from
from engine.exchange.folder.sections import Split
from engine.pml import parse_schema

MOST_BYTES = 20 * 1024 * 1024
MOST_FILES = 10_000
_IN_PAGE_WORDS = (
    (r"(?:add|and|give) --from (\w+)(?:, or --from (\w+))?", r"choose another kind here (\1 \2)"),
    (r"--from (\w+)", r"the kind \1"),
    (r"choose with --include and --exclude", "choose fewer files"),
    (r"save the schema in the folder or above it \(-o\), so that its modules can refer to the files, ", ""),
    (r"; --row gives another", "; another can be chosen here"),
    (r"give --row (\d+) to", r"choose \1 to"),
    (r"--row", "the number"),
    (r"--name", "the name"),
)


@request
class ImportFile:
    """A file: its path in the chosen folder, with `/`, and its bytes in base64."""

    path: Words
    data: Words


@request
class ImportFiles:
    """Files to import, and options.

    Attributes:
        key: the key of the new job.
        kind: their format; "" to detect it.
        name: the schema's name; "" for the source's.
        row: the conversation or prompt in a file with several, from 1.
        param_length: tokens of a template's parameters.
        split: how to split long texts.
        tokens: the size of a part if split by tokens.
        titles: whether each text of a folder starts with its document's name.
        encoding: the encoding of a single file.
    """

    key: Words
    files: tuple[ImportFile, ...]
    kind: Words = ""
    name: Words = ""
    row: Count = 1
    param_length: Count = DEFAULT_LENGTH
    split: Literal["whole", "headings", "tokens"] = "whole"
    tokens: Count = 512
    titles: Flag = True
    encoding: Encoding = "utf-8"


@request
class OpenImported(Shelve):
    """An imported workspace to open."""

    name: Words
    schema: Words
    prompt: Words


class ImportPreview(TypedDict):
    """The result of an import, or a question about a file in another encoding.

    `options` are those that affect this kind. A source without a prompt gets a new one.
    """

    name: NotRequired[str]
    kind: NotRequired[str]
    schema: NotRequired[str]
    prompt: NotRequired[str]
    modules: NotRequired[int]
    notes: NotRequired[list[str]]
    options: NotRequired[list[str]]
    encoding: NotRequired[Encoding]
    message: NotRequired[str]


@dataclass(frozen=True)
class _Looked:
    """The result of reading files."""

    preview: ImportPreview

    def to_json(self) -> Json:
        return {**self.preview}


class Importing(Endpoints):
    """The endpoints of the import dialog."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._desk = parts, parts.desk

    @endpoint
    def preview_import(self, request: ImportFiles) -> JobState[Annotated[Json, JsonOf(ImportPreview)]]:
        """Starts to import files for a preview; opens nothing and deletes the files afterwards."""
        _require_sound(request)

        def work(job: Job) -> _Looked:
            return _Looked(self._preview(job, request))

        return self._parts.jobs.start(Job(request.key, work, "import", "beginning")).state()

    def _preview(self, job: Job, request: ImportFiles) -> ImportPreview:
        def progress(done: int, total: int, what: str) -> None:
            job.progress(done, total, _step(what))

        with tempfile.TemporaryDirectory(prefix="pml-import-") as place:
            folder = Path(place)
            try:
                source = _laid_out(job, request, folder)
                imported = import_from(
                    source,
                    request.kind or None,
                    name=request.name or None,
                    length=request.param_length,
                    row=request.row,
                    folder=FolderOptions(titles=request.titles, split=self._split(job, request)),
                    progress=progress,
                )
                texts = as_texts(imported, progress)
            except NotUtf8Error as other:
                return {"encoding": other.encoding, "message": str(other)}
            except PromptCacheError as error:
                raise PromptCacheError(_in_page_words(str(error), folder)) from None
            notes = [_in_page_words(note, folder) for note in texts.found.notes]
        job.progress(1, 1, "checking the schema")
        tree = parse_schema(texts.schema).tree if texts.prompt is None else None
        prompt = (
            texts.prompt if texts.prompt is not None or tree is None else prompt_of(tree, texts.found.always)
        )
        return {
            "name": texts.found.schema.name,
            "kind": texts.found.kind,
            "schema": texts.schema,
            "prompt": prompt or "",
            "modules": texts.modules,
            "notes": [f"{note[:1].upper()}{note[1:]}." for note in notes],
            "options": options_of(texts.found.kind),
        }

    @endpoint
    def open_imported(self, request: OpenImported) -> Opened:
        """Opens an imported workspace; the open one becomes a version."""
        return self._desk.open(Workspace(request.name, request.schema, request.prompt), request.page)

    def _split(self, job: Job, request: ImportFiles) -> Split | None:
        if request.split == "whole":
            return None

        def count(text: str) -> int:
            if job.stopping:
                raise StoppedError
            return self._count(text)

        return Split() if request.split == "headings" else Split(request.tokens, count)

    def _count(self, text: str) -> int:
        with self._parts.tokenizing:
            return self._parts.engine.count_tokens(text)


def _require_sound(request: ImportFiles) -> None:
    if not request.files:
        raise PromptCacheError("There is no file to import. Choose one, or a folder with documents.")
    if request.kind and request.kind not in KINDS:
        raise PromptCacheError(f"There is no kind {request.kind!r}. Choose one from the list.")
    if not request.row or not request.param_length:
        raise PromptCacheError("Numbers of conversations, and lengths of parameters, begin at 1.")
    if request.split == "tokens" and not LEAST_TOKENS <= request.tokens <= MOST_TOKENS:
        raise PromptCacheError(f"A part has {LEAST_TOKENS} to {MOST_TOKENS:,} tokens. Choose another number.")
    size = sum(len(file.data) for file in request.files) * 3 // 4
    if size > MOST_BYTES or len(request.files) > MOST_FILES:
        raise PromptCacheError(
            f"These files exceed the limits of this page ({MOST_BYTES >> 20} MB, {MOST_FILES:,} "
            "files). Choose fewer, or use pml import on the command line."
        )


def _step(what: str) -> str:
    """Returns an import step in words; files are shown by path."""
    return what if what.startswith("writing the ") else "reading the texts"


def _laid_out(job: Job, request: ImportFiles, place: Path) -> Path:
    """Writes the files into a folder; returns the file or folder to import."""
    single = len(request.files) == 1 and "/" not in request.files[0].path
    for number, part in enumerate(request.files):
        job.progress(number, len(request.files), "receiving the files")
        path = PurePosixPath(part.path)
        odd = (
            path.is_absolute()
            or ".." in path.parts
            or "\\" in part.path
            or not path.name
            or "\0" in part.path
        )
        try:
            if odd or not part.path.isprintable():
                raise ValueError
            data = base64.b64decode(part.data, validate=True)
            if single:
                data = decoded(data, path.name, request.encoding).encode("utf-8")
            target = place / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        except (ValueError, binascii.Error, OSError) as error:
            why = getattr(error, "strerror", None)
            because = f": {why}" if why else ""
            raise PromptCacheError(f"{part.path!r} cannot be imported{because}. Leave it out.") from None
    if single:
        return place / request.files[0].path
    tops = {PurePosixPath(part.path).parts[0] for part in request.files}
    top = place / tops.pop()
    if not tops and top.is_dir():
        return top
    gathered = place.rename(place.with_name(f"{place.name}-files"))
    place.mkdir()
    return gathered.rename(place / "documents")


def _in_page_words(sentence: str, place: Path) -> str:
    """Returns a message of `pml import` without the temporary folder and options."""
    for words in (f"{place.resolve()}/", f"{place}/", f"{place}"):
        sentence = sentence.replace(words, "")
    for pattern, instead in _IN_PAGE_WORDS:
        sentence = re.sub(pattern, instead, sentence)
    return sentence.replace(" )", ")")
