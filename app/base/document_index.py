"""Documents as they stand: what an editor holds first, then the files of a folder.

Tells which schema a prompt belongs to, and what is wrong with either. Knows no tokenizer, and nothing of how
it is asked. One thread at a time.
"""

from __future__ import annotations

import contextlib
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeVar, cast

from engine.files.text_files import TextFileError, read_text_file
from engine.pml import Diagnostic, Parsed, Prompt, Schema, bind, document_kind, parse_prompt, parse_schema

Kind = Literal["schema", "prompt"]
Key = tuple[str, Path | None, str]
Stamp = tuple[int, int, int]
Tree = TypeVar("Tree", Parsed[Schema], Parsed[Prompt])

ENDINGS: Final = (".pml", ".xml")
STALE: Final = " (checked against the last schema without errors)"
MOST_FILES: Final = 2000
"""Of a folder, this many documents are looked at."""

_TREES: Final = 64
_READS_FILES: Final = re.compile(r"\bsrc\s*=")


@dataclass(frozen=True)
class Document:
    """One text.

    Attributes:
        path: where it lies, or a name for it where it lies in no folder.
        text: all of it.
        kind: what it is; None where that cannot be told.
        name: the schema that it defines, or that it says it is written for; None where it says none.
    """

    path: Path
    text: str
    kind: Kind | None
    name: str | None


@dataclass(frozen=True)
class Basis:
    """The schema that a prompt goes by.

    Attributes:
        document: the schema as it stands.
        tree: what it says, or what it said last without errors; None where it never said anything.
        stale: whether the tree is an earlier one.
    """

    document: Document
    tree: Schema | None
    stale: bool


class Library:
    """Texts by path: those that an editor holds, and files, read again when they change."""

    def __init__(self) -> None:
        self._held: dict[Path, Document] = {}
        self._files: dict[Path, tuple[Stamp, Document]] = {}
        self._trees: OrderedDict[Key, Parsed[Schema] | Parsed[Prompt]] = OrderedDict()
        self._sound: dict[Path, Schema] = {}
        self._near: dict[Path, list[Document]] | None = None  # folders that were looked at once

    def hold(self, path: Path, text: str) -> Document:
        """Takes the text that an editor has for a path; it counts, and not the file."""
        self._held[path] = document = self.imagined(path, text)
        self._forget_folders()
        self._remember(document)
        return document

    def release(self, path: Path) -> None:
        """Forgets what an editor had for a path; the file counts again."""
        self._held.pop(path, None)
        self._forget_folders()

    @contextlib.contextmanager
    def looking_once(self) -> Iterator[None]:
        """Looks at each folder once while it lasts: many questions about one state of the files."""
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
        """What editors have open, in the order of opening."""
        return tuple(self._held.values())

    def document(self, path: Path) -> Document:
        """The text of a path.

        Raises:
            TextFileError: no editor has it, and the file cannot be read as text.
        """
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
        """The document that a text would be at a path; nothing is kept of it."""
        told: Kind | None = "schema" if path.suffix == ".pml" else None
        kind = document_kind(text) or told
        document = Document(path, text, kind, None)
        if kind == "schema":
            schema = self.schema(document).tree
            return replace(document, name=schema.name if schema else None)
        if kind == "prompt":
            prompt = self.prompt(document).tree
            return replace(document, name=prompt.schema if prompt else None)
        return document

    def schema(self, document: Document) -> Parsed[Schema]:
        """A document read as a schema."""
        if _READS_FILES.search(document.text):  # what other files say may have changed
            return parse_schema(document.text, base=folder_of(document.path))
        key = ("schema", folder_of(document.path), document.text)
        known = cast(Parsed[Schema] | None, self._trees.get(key))
        return self._keep(key, known or parse_schema(document.text, base=key[1]))

    def prompt(self, document: Document) -> Parsed[Prompt]:
        """A document read as a prompt."""
        key = ("prompt", None, document.text)
        known = cast(Parsed[Prompt] | None, self._trees.get(key))
        return self._keep(key, known or parse_prompt(document.text))

    def beside(self, path: Path) -> list[Document]:
        """The documents in the folder of a path, in the order of their names."""
        folder = folder_of(path)
        if folder is None:
            return []
        if self._near is None:
            return self._in(folder)
        if folder not in self._near:
            self._near[folder] = self._in(folder)
        return list(self._near[folder])

    def _in(self, folder: Path) -> list[Document]:
        paths = {held for held in self._held if folder_of(held) == folder}
        with contextlib.suppress(OSError):  # the folder of a text that was never saved may not be there
            paths |= {one for one in folder.iterdir() if one.suffix in ENDINGS and one.name[0] != "."}
        found: list[Document] = []
        for one in sorted(paths)[:MOST_FILES]:
            try:
                found.append(self.document(one))
            except TextFileError:
                continue
        return found

    def schemas(self, path: Path) -> list[Document]:
        """The schemas that a document at a path can go by: those of its folder, then others that are open."""
        near = [document for document in self.beside(path) if document.kind == "schema"]
        known = {document.path for document in near}
        return near + [one for one in self.held if one.kind == "schema" and one.path not in known]

    def basis(self, prompt: Document) -> Basis | None:
        """The schema that a prompt goes by: of the name that it says, else the one that it lies beside.

        Beside a prompt without a name is the schema whose file is called like it (`travel.pml` for
        `travel.prompt.1.pml`), else the only one of the folder.
        """
        stem = prompt.path.name.split(".")[0]
        near = self.schemas(prompt.path)
        if prompt.name is not None:
            near = [one for one in near if prompt.name in self._names(one)]
        else:
            near = [one for one in near if folder_of(one.path) == folder_of(prompt.path)]
            called = [one for one in near if one.path.stem == stem]
            near = called or (near if len(near) == 1 else [])
        if not near:
            return None
        called = [one for name in (stem, prompt.name) for one in near if one.path.stem == name]
        document = (called or near)[0]
        parsed = self.schema(document)
        sound = None if parsed.ok else self._sound.get(document.path)
        return Basis(document, sound or parsed.tree, sound is not None)

    def prompts(self, schema: Path) -> list[Document]:
        """The prompts that go by the schema at a path: of its folder, and open ones of others."""
        with self.looking_once():
            near = self.beside(schema)
            known = {document.path for document in near}
            near += [document for document in self.held if document.path not in known]
            bases = [(one, self.basis(one)) for one in near if one.kind == "prompt"]
        return [one for one, basis in bases if basis is not None and basis.document.path == schema]

    def diagnostics(self, document: Document) -> tuple[Diagnostic, ...]:
        """Every fault of a document, of a prompt also against its schema; each once."""
        if document.kind is None:
            return ()
        if document.kind == "schema":
            return tuple(dict.fromkeys(self.schema(document).diagnostics))
        prompt, basis = self.prompt(document), self.basis(document)
        if prompt.tree is None or basis is None or basis.tree is None:
            return tuple(dict.fromkeys(prompt.diagnostics))
        bound = bind(basis.tree, prompt.tree, self._earlier(document, basis.tree)).diagnostics
        if basis.stale:
            bound = tuple(replace(one, message=one.message + STALE) for one in bound)
        return tuple(dict.fromkeys((*prompt.diagnostics, *bound)))

    def _earlier(self, prompt: Document, schema: Schema) -> list[Schema]:
        """What a schema said before, as far as that is remembered, the latest first."""
        folder = folder_of(prompt.path)
        known = (parsed for key, parsed in reversed(self._trees.items()) if key[:2] == ("schema", folder))
        trees = (parsed.tree for parsed in known if parsed.ok)
        return [
            one for one in trees if isinstance(one, Schema) and one.name == schema.name and one is not schema
        ]

    def sources(self, document: Document) -> list[Path]:
        """The files that a schema reads, those that are missing too; none outside its folder."""
        folder = folder_of(document.path)
        tree = self.schema(document).tree if document.kind == "schema" else None
        if tree is None or folder is None:
            return []
        named = {module.src for module in tree.modules() if module.src} | {*tree.included}
        return [folder / src for src in sorted(named) if src[:1] != "/" and ".." not in src.split("/")]

    def _names(self, schema: Document) -> tuple[str | None, str | None]:
        """What a schema is called, and was called when it had no errors last."""
        sound = self._sound.get(schema.path)
        if sound is None or sound.name == schema.name or self.schema(schema).ok:
            return schema.name, None
        return schema.name, sound.name

    def _forget_folders(self) -> None:
        if self._near is not None:
            self._near = {}

    def _remember(self, document: Document) -> None:
        if document.kind == "schema":
            parsed = self.schema(document)
            if parsed.ok and parsed.tree is not None:
                self._sound[document.path] = parsed.tree

    def _keep(self, key: Key, parsed: Tree) -> Tree:
        self._trees[key] = parsed
        self._trees.move_to_end(key)
        while len(self._trees) > _TREES:
            self._trees.popitem(last=False)
        return parsed


def folder_of(path: Path) -> Path | None:
    """The folder that a document lies in; None where it was never saved."""
    return path.parent if path.is_absolute() else None


def stamp_of(path: Path) -> Stamp | None:
    """What changes when a file changes, also where it is replaced by another; None where there is none."""
    try:
        state = path.stat()
    except (OSError, ValueError):
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino
