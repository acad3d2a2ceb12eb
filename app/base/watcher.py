"""Documents checked again when they change: what is looked at, what has changed, and a line on each.

Files are looked at, not listened for: that works on every system and on network folders, and sees a file that
an editor replaces as well as one that it writes over.
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
"""From a schema, or one with a prompt, without errors, to what is wrong with it for a model."""

Encode = Callable[[Schema], str]
"""Has a schema without errors encoded, and says in a few words what that was."""


@dataclass
class Changes:
    """Which files have changed since they were told of.

    A file is told of once two looks in a row find it the same, so one that is being written waits.
    """

    _seen: dict[Path, Stamp | None] = field(default_factory=dict)
    _told: dict[Path, Stamp | None] = field(default_factory=dict)

    def know(self, path: Path) -> None:
        """Takes a file as it is now for told of, unless it was looked at before."""
        if path not in self._seen:
            self._seen[path] = self._told[path] = stamp_of(path)

    def look(self, paths: Iterable[Path]) -> set[Path]:
        """Looks at files; the answer is which of these, and of those told of before, have changed."""
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
    """Files and folders under watch.

    Args:
        given: what was named; of a folder, the documents that lie directly in it.
        deepen: what only a model can tell of documents without errors.
        encode: has schemas without errors encoded.

    Raises:
        NoFileError: something named is not there.
    """

    def __init__(
        self, given: Iterable[Path], deepen: Deepen | None = None, encode: Encode | None = None
    ) -> None:
        self._given = [(path.absolute(), is_folder(path)) for path in given]
        self._deepen, self._encode = deepen, encode
        self._library = Library()
        self._changes = Changes()
        self._lines: dict[Path, str] = {}
        self._bases: dict[Path, Path] = {}  # of prompts, their schemas
        self._sources: dict[Path, set[Path]] = {}  # of schemas, the files that they read

    def look(self) -> list[str]:
        """Looks once; the answer is a line on each document that has changed or is judged otherwise now."""
        listed = self._listed()
        below: set[Path] = set().union(*self._sources.values())
        changed = self._changes.look([*listed, *self._bases.values(), *below])
        if not changed:
            return []
        before = dict(self._bases)
        with self._library.looking_once():
            return self._told(listed, changed, before)

    def _told(self, listed: list[Path], changed: set[Path], before: dict[Path, Path]) -> list[str]:
        """The lines on what has changed, and on what is judged otherwise with it."""
        documents = self._ordered(listed)
        gone = [path for path in self._lines if path in changed and path not in documents]
        lines = [
            line for path in [*gone, *documents] if (line := self._news(path, changed, before)) is not None
        ]
        for path in gone:
            del self._lines[path]
        return lines

    def _listed(self) -> list[Path]:
        found: list[Path] = []
        for path, folder in self._given:
            if not folder:
                found.append(path)
                continue
            with contextlib.suppress(OSError):  # it may come back
                found += [one for one in path.iterdir() if one.suffix in ENDINGS and one.name[0] != "."]
        return found

    def _ordered(self, listed: Iterable[Path]) -> list[Path]:
        """The documents under watch, schemas before prompts: what a schema breaks is told behind it."""
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
            self._changes.know(path)  # what is read besides is told of when it changes
        return [*sorted(others), *sorted(prompts)]

    def _news(self, path: Path, changed: set[Path], before: dict[Path, Path]) -> str | None:
        """The line on a document, if it changed itself or is judged otherwise than before."""
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
        except PromptCacheError as error:  # of the model or the store; the next change may mend it
            return f"{path.name}: {error}"

    def _verdict(self, document: Document, encode: bool) -> str:
        if document.kind is None:
            return "neither a schema nor a prompt"
        found = self._library.diagnostics(document)
        sound = not any(one.severity == "error" for one in found)
        basis = self._library.basis(document) if document.kind == "prompt" else None
        schema = basis.tree if basis else self._library.schema(document).tree
        prompt = self._library.prompt(document).tree if document.kind == "prompt" else None
        by_itself = document.kind == "prompt" and basis is None
        if sound and schema is not None and self._deepen is not None and not by_itself:
            found = tuple(dict.fromkeys((*found, *self._deepen(schema, prompt))))
        words = f"{document.kind}, {judged(found)}"
        if by_itself:
            named = f"no schema {document.name!r} lies beside it" if document.name else "it names no schema"
            words += f"; {named}"
        errors = any(one.severity == "error" for one in found)
        if document.kind == "schema" and schema is not None and encode and self._encode and not errors:
            words += f"; {self._encode(schema)}"
        return words


def judged(found: Iterable[Diagnostic]) -> str:
    """Diagnostics in a few words: how many of which kind, and the first of the gravest."""
    grades = ("error", "warning")
    listed = {grade: [one for one in found if one.severity == grade] for grade in grades}
    counts = [f"{len(ones)} {grade}{'' if len(ones) == 1 else 's'}" for grade, ones in listed.items() if ones]
    if not counts:
        return "ok"
    first = next(ones for ones in listed.values() if ones)[0]
    where = f"{first.file}, " if first.file else ""
    return f"{', '.join(counts)}; {where}line {first.line}: {first.code}: {first.message}"
