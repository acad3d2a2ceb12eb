"""Documents of an editor and of folders, and the relations between prompts and schemas.

Editor texts override files. It uses no tokenizer. Not thread-safe.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from engine.files.text_files import TextFileError, read_text_file
from engine.pml import (
    Diagnostic,
    EarlierSchemas,
    Parsed,
    Prompt,
    Schema,
    bind,
    document_kind,
    parse_prompt,
    parse_schema,
)

Kind = Literal["schema", "prompt"]
Stamp = tuple[int, int, int]

ENDINGS: Final = (".pml", ".xml")
STALE: Final = " (checked against the last schema without errors)"
MOST_FILES: Final = 2000  # maximum number of documents read from a folder


@dataclass(frozen=True)
class Document:
    """A document."""

    path: Path  # its path, or a name if it is not in a folder
    text: str
    kind: Kind | None  # schema or prompt; None if unknown
    name: str | None  # the name of the schema, or the schema name in a prompt; None without one


@dataclass(frozen=True)
class Basis:
    """The schema of a prompt."""

    document: Document  # the current document
    tree: Schema | None  # its tree, or the last one without errors; None if there is none
    stale: bool  # whether the tree is from an earlier version


class Library:
    """Documents by path, from an editor or from files, which are read again after changes.

    Args:
        alone: whether only the documents of the editor are related, not those in their folders.
    """

    def __init__(self, alone: bool = False) -> None:
        self._alone = alone
        self._held: dict[Path, Document] = {}
        self._files: dict[Path, tuple[Stamp, Document]] = {}
        self._earlier = EarlierSchemas()
        self._sound: dict[Path, Schema] = {}
        self._near: dict[Path, list[Document]] | None = None  # folders scanned in `looking_once`

    def hold(self, path: Path, text: str) -> Document:
        """Stores an editor's text for a path, which overrides the file."""
        self._held[path] = document = self.imagined(path, text)
        self._forget_folders()
        self._remember(document)
        return document

    def release(self, path: Path) -> None:
        """Removes an editor's text; the file is used again."""
        self._held.pop(path, None)
        self._forget_folders()

    @contextlib.contextmanager
    def looking_once(self) -> Iterator[None]:
        """Scans each folder only once during the context."""
        if self._near is not None:
            yield
            return
        self._near = {}
        try:
            yield
        finally:
            self._near = None

    @property
    def held(self) -> tuple[Document, ...]:
        """Returns the open documents, in the order of opening."""
        return tuple(self._held.values())

    def document(self, path: Path) -> Document:
        """Returns the document of a path; raises TextFileError without editor text or readable file."""
        if path in self._held:
            return self._held[path]
        stamp = stamp_of(path)
        known = self._files.get(path)
        if known is not None and stamp is not None and known[0] == stamp:
            return known[1]
        document = self.imagined(path, read_text_file(path))
        if stamp is not None:
            self._files[path] = (stamp, document)
        self._remember(document)
        return document

    def imagined(self, path: Path, text: str) -> Document:
        """Returns a document with this text, without storing it."""
        by_name: Kind | None = "schema" if path.suffix == ".pml" else None
        kind = document_kind(text) or by_name
        document = Document(path, text, kind, None)
        if kind == "schema":
            schema = self.schema(document).tree
            return replace(document, name=schema.name if schema else None)
        if kind == "prompt":
            prompt = self.prompt(document).tree
            return replace(document, name=prompt.schema if prompt else None)
        return document

    def schema(self, document: Document) -> Parsed[Schema]:
        """Parses a document as a schema."""
        folder = folder_of(document.path)
        parsed = parse_schema(document.text, base=folder)
        self._earlier.add(parsed, folder)
        return parsed

    def prompt(self, document: Document) -> Parsed[Prompt]:
        """Parses a document as a prompt."""
        return parse_prompt(document.text, base=folder_of(document.path))

    def beside(self, path: Path) -> list[Document]:
        """Returns the documents in the folder of a path, sorted by name."""
        folder = folder_of(path)
        if folder is None:
            return []
        if self._near is None:
            return self._in(folder)
        if folder not in self._near:
            self._near[folder] = self._in(folder)
        return list(self._near[folder])

    def _in(self, folder: Path) -> list[Document]:
        paths = {path for path in self._held if folder_of(path) == folder}
        with contextlib.suppress(OSError):  # the folder may be missing
            paths |= (
                set()
                if self._alone
                else {file for file in folder.iterdir() if file.suffix in ENDINGS and file.name[0] != "."}
            )
        documents: list[Document] = []
        for file in sorted(paths)[:MOST_FILES]:
            try:
                documents.append(self.document(file))
            except TextFileError:
                continue
        return documents

    def schemas(self, path: Path) -> list[Document]:
        """Returns candidate schemas for a path: those of its folder, then other open ones."""
        near = [document for document in self.beside(path) if document.kind == "schema"]
        known = {document.path for document in near}
        return near + [schema for schema in self.held if schema.kind == "schema" and schema.path not in known]

    def basis(self, prompt: Document) -> Basis | None:
        """Returns the schema of a prompt: by name, or by file.

        For a prompt without a schema name, the schema file with the same stem (`travel.pml` for
        `travel.prompt.1.pml`), else the only schema of the folder.
        """
        stem = prompt.path.name.split(".")[0]
        near = self.schemas(prompt.path)
        if prompt.name is not None:
            near = [file for file in near if prompt.name in self._names(file)]
        else:
            near = [file for file in near if folder_of(file.path) == folder_of(prompt.path)]
            called = [file for file in near if file.path.stem == stem]
            near = called or (near if len(near) == 1 else [])
        if not near:
            return None
        called = [file for name in (stem, prompt.name) for file in near if file.path.stem == name]
        document = (called or near)[0]
        parsed = self.schema(document)
        valid = None if parsed.ok else self._sound.get(document.path)
        return Basis(document, valid or parsed.tree, valid is not None)

    def prompts(self, schema: Path) -> list[Document]:
        """Returns the prompts of the schema at a path: those in its folder, and open ones elsewhere."""
        with self.looking_once():
            near = self.beside(schema)
            known = {document.path for document in near}
            near += [document for document in self.held if document.path not in known]
            bases = [(file, self.basis(file)) for file in near if file.kind == "prompt"]
        return [file for file, basis in bases if basis is not None and basis.document.path == schema]

    def diagnostics(self, document: Document) -> tuple[Diagnostic, ...]:
        """Returns the diagnostics of a document without duplicates, for a prompt also against its schema."""
        if document.kind is None:
            return ()
        if document.kind == "schema":
            return tuple(dict.fromkeys(self.schema(document).diagnostics))
        prompt, basis = self.prompt(document), self.basis(document)
        if prompt.tree is None or basis is None or basis.tree is None:
            return tuple(dict.fromkeys(prompt.diagnostics))
        earlier = self._earlier.of(basis.tree, folder_of(document.path))
        bound = bind(basis.tree, prompt.tree, earlier).diagnostics
        if basis.stale:
            bound = tuple(replace(fault, message=fault.message + STALE) for fault in bound)
        return tuple(dict.fromkeys((*prompt.diagnostics, *bound)))

    def sources(self, document: Document) -> list[Path]:
        """Returns the files that a document reads, including missing ones; none outside its folder."""
        folder, named = folder_of(document.path), set[str]()
        if document.kind == "schema" and (tree := self.schema(document).tree):
            named = {module.src for module in tree.modules() if module.src} | {*tree.included}
        elif document.kind == "prompt" and (prompt := self.prompt(document).tree):
            named = set(prompt.sources)
        if folder is None:
            return []
        return [folder / src for src in sorted(named) if src[:1] != "/" and ".." not in src.split("/")]

    def _names(self, schema: Document) -> tuple[str | None, str | None]:
        """The current name of a schema, and its name in the last version without errors."""
        valid = self._sound.get(schema.path)
        if valid is None or valid.name == schema.name or self.schema(schema).ok:
            return schema.name, None
        return schema.name, valid.name

    def _forget_folders(self) -> None:
        if self._near is not None:
            self._near = {}

    def _remember(self, document: Document) -> None:
        if document.kind == "schema":
            parsed = self.schema(document)
            if parsed.ok and parsed.tree is not None:
                self._sound[document.path] = parsed.tree


def folder_of(path: Path) -> Path | None:
    """Returns the folder of a document; None if it was never saved."""
    return path.parent if path.is_absolute() else None


def stamp_of(path: Path) -> Stamp | None:
    """Returns a stamp that changes with a file, even if it is replaced; None without a file."""
    try:
        state = path.stat()
    except (OSError, ValueError):
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino
