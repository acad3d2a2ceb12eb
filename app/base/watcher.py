"""Checks documents again when they change, and reports a line for each.

It polls the files. Polling works on every system and on network folders, and also detects replaced files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from app.base.document_index import ENDINGS, Document, Library, Stamp, stamp_of
from engine.base.errors import PromptCacheError
from engine.files.text_files import MissingFileError, TextFileError, is_folder
from engine.pml import Diagnostic, Prompt, Schema

Deepen = Callable[[Schema, Prompt | None], tuple[Diagnostic, ...]]
"""Returns more diagnostics, which need a model, for a schema, or a schema and a prompt, without errors."""

Encode = Callable[[Schema], str]  # encodes a schema without errors, and describes the result in a few words


@dataclass
class Changes:
    """Detects changed files.

    A change is reported if two polls in a row find the same state, so a file that is being written waits.
    """

    _seen: dict[Path, Stamp | None] = field(default_factory=dict)
    _told: dict[Path, Stamp | None] = field(default_factory=dict)

    def know(self, path: Path) -> None:
        """Marks a new file as reported in its current state."""
        if path not in self._seen:
            self._seen[path] = self._told[path] = stamp_of(path)

    def look(self, paths: Iterable[Path]) -> set[Path]:
        """Polls files, and returns those of them, and of earlier reported ones, that changed."""
        changed: set[Path] = set()
        for path in {*paths, *self._told}:
            stamp = stamp_of(path)
            settled = path in self._seen and self._seen[path] == stamp
            self._seen[path] = stamp
            if settled and self._told.get(path) != stamp:
                self._told[path] = stamp
                changed.add(path)
        return changed


class Watch:
    """Watched files and folders.

    Args:
        given: files and folders; of a folder, the documents directly in it.
        deepen: adds diagnostics that need a model.
        encode: encodes schemas without errors.

    Raises:
        NoFileError: a path does not exist.
    """

    def __init__(
        self, given: Iterable[Path], deepen: Deepen | None = None, encode: Encode | None = None
    ) -> None:
        self._given = [(path.absolute(), is_folder(path)) for path in given]
        self._deepen, self._encode = deepen, encode
        self._library = Library()
        self._changes = Changes()
        self._lines: dict[Path, str] = {}
        self._bases: dict[Path, Path] = {}  # schemas of prompts
        self._sources: dict[Path, set[Path]] = {}  # files that schemas read

    def look(self) -> list[str]:
        """Polls once, and returns a line for each document with a change or a new verdict."""
        listed = self._listed()
        below: set[Path] = set().union(*self._sources.values())
        changed = self._changes.look([*listed, *self._bases.values(), *below])
        if not changed:
            return []
        before = dict(self._bases)
        with self._library.looking_once():
            return self._told(listed, changed, before)

    def _told(self, listed: list[Path], changed: set[Path], before: dict[Path, Path]) -> list[str]:
        documents = self._ordered(listed)
        gone = [path for path in self._lines if path in changed and path not in documents]
        lines = [
            line for path in [*gone, *documents] if (line := self._news(path, changed, before)) is not None
        ]
        for path in gone:
            del self._lines[path]
        return lines

    def _listed(self) -> list[Path]:
        paths: list[Path] = []
        for path, folder in self._given:
            if not folder:
                paths.append(path)
                continue
            with contextlib.suppress(OSError):  # the folder may come back
                paths += [file for file in path.iterdir() if file.suffix in ENDINGS and file.name[0] != "."]
        return paths

    def _ordered(self, listed: Iterable[Path]) -> list[Path]:
        """The watched documents, schemas before prompts, so that a schema's errors precede their effects."""
        prompts: set[Path] = set()
        others: set[Path] = set()
        self._bases.clear()
        self._sources.clear()
        for path in listed:
            try:
                document = self._library.document(path)
            except TextFileError:
                others.add(path)
                continue
            if document.kind != "prompt":
                others.add(path)
                self._sources[path] = set(self._library.sources(document))
                continue
            prompts.add(path)
            basis = self._library.basis(document)
            if basis is not None:
                others.add(basis.document.path)
                self._bases[path] = basis.document.path
                self._sources[basis.document.path] = set(self._library.sources(basis.document))
        for path in {*others}.union(*self._sources.values()):
            self._changes.know(path)  # later changes of included files are reported
        return [*sorted(others), *sorted(prompts)]

    def _news(self, path: Path, changed: set[Path], before: dict[Path, Path]) -> str | None:
        """The line of a document if it changed or has a new verdict."""
        own = {path, *self._sources.get(path, ())}
        bases = {known[path] for known in (before, self._bases) if path in known}
        above = bases.union(*(self._sources.get(basis, ()) for basis in bases))
        if not (own | above) & changed:
            return None
        line = self._line(path, encode=bool(own & changed))
        news = path in changed or line != self._lines.get(path)
        self._lines[path] = line
        return line if news else None

    def _line(self, path: Path, *, encode: bool) -> str:
        try:
            document = self._library.document(path)
        except MissingFileError:
            return f"{path.name}: gone"
        except TextFileError as error:
            return f"{path.name}: {error}"
        try:
            return f"{path.name}: {self._verdict(document, encode)}"
        except PromptCacheError as error:  # of the model or store; the next change may fix it
            return f"{path.name}: {error}"

    def _verdict(self, document: Document, encode: bool) -> str:
        if document.kind is None:
            return "neither a schema nor a prompt"
        diagnostics = self._library.diagnostics(document)
        valid = not any(fault.severity == "error" for fault in diagnostics)
        basis = self._library.basis(document) if document.kind == "prompt" else None
        schema = basis.tree if basis else self._library.schema(document).tree
        prompt = self._library.prompt(document).tree if document.kind == "prompt" else None
        by_itself = document.kind == "prompt" and basis is None
        if valid and schema is not None and self._deepen is not None and not by_itself:
            diagnostics = tuple(dict.fromkeys((*diagnostics, *self._deepen(schema, prompt))))
        words = f"{document.kind}, {judged(diagnostics)}"
        if by_itself:
            named = f"no schema {document.name!r} is in its folder" if document.name else "it names no schema"
            words += f"; {named}"
        errors = any(fault.severity == "error" for fault in diagnostics)
        if document.kind == "schema" and schema is not None and encode and self._encode and not errors:
            words += f"; {self._encode(schema)}"
        return words


def judged(found: Iterable[Diagnostic]) -> str:
    """Summarizes diagnostics: counts by severity, and the first of the most severe."""
    grades = ("error", "warning")
    listed = {grade: [fault for fault in found if fault.severity == grade] for grade in grades}
    counts = [f"{len(ones)} {grade}{'' if len(ones) == 1 else 's'}" for grade, ones in listed.items() if ones]
    if not counts:
        return "ok"
    first = next(ones for ones in listed.values() if ones)[0]
    where = f"{first.file}, " if first.file else ""
    return f"{', '.join(counts)}; {where}line {first.line}: {first.code}: {first.message}"
