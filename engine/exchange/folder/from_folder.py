"""Converts a folder of documents to a schema: each text is a module, nested in the modules of its folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.imported import BLANK_LINE, Imported, apart, role, text
from engine.exchange.base.notes import Notes
from engine.exchange.folder.folder_files import Choice, Document, Progress, documents
from engine.exchange.folder.sections import Section, Split
from engine.files.text_files import MAX_BYTES
from engine.pml import Import, Module, Prompt, Schema, Text
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.parse.sources import MAX_TOTAL
from engine.pml.whitespace.separators import ended, with_seam
from engine.pml.xml.escaping import escaped_text
from engine.programs.compile.naming import legible

MAX_MODULES: Final = 8000  # maximum per folder; a document allows five times as many elements and attributes
_DEEPEST: Final = 24  # deeper folders are merged into one module with a joined name
_ROOM: Final = MAX_BYTES - (MAX_BYTES >> 4)  # bytes of texts in a document; the rest is for tags
_LONGEST_NAME: Final = 60  # limits the length of module paths
_CHOOSE: Final = "choose with --include and --exclude, or import folders inside it one by one"
_MOST_MODULES: Final = f"and a schema of a folder holds {MAX_MODULES:,} modules; {_CHOOSE}"
_MOST_TEXT: Final = f"and a schema reads at most {MAX_TOTAL >> 20} MB; {_CHOOSE}"
_ENDINGS: Final = (".md", ".markdown", ".mdx", ".rst", ".txt")


@dataclass(frozen=True)
class FolderOptions:
    """Options for the conversion of a folder.

    Attributes:
        choice: the selection of files.
        refer: whether modules refer to their files with `src` instead of copies.
        beside: the folder of the saved schema, for modules that refer to files; None if it is not saved.
        titles: whether each copied text begins with a line that names its document.
        split: how long texts are cut; None for whole texts.
    """

    choice: Choice = field(default_factory=Choice)
    refer: bool = False
    beside: Path | None = None
    titles: bool = True
    split: Split | None = None


@dataclass
class _Page:
    """A document before it becomes a module: its parts, and whether the module refers to the file."""

    path: str
    sections: tuple[Section, ...]
    src: str | None = None

    @property
    def size(self) -> int:
        """The size of its text in a schema in bytes, with an allowance for names, tags and a title."""
        texts = sum(len(escaped_text(section.text).encode("utf-8")) + 200 for section in self.sections)
        return texts + 2 * len(self.path.encode("utf-8"))

    @property
    def weight(self) -> int:
        """The size of its text in the file in bytes."""
        return sum(len(section.text.encode("utf-8")) for section in self.sections)


def from_folder(
    folder: Path, name: str, options: FolderOptions | None = None, progress: Progress | None = None
) -> Imported:
    """Makes modules of the documents in a folder, in the order of their paths.

    If the texts exceed a document, the longest ones are referred to by `src`. A blank line separates two
    documents, and a title from its text, regardless of omitted modules.

    Raises:
        ExchangeError: the folder has no text, or too much for one schema, or a file to refer to is outside
            the schema's folder.
    """
    options = options or FolderOptions()
    notes = Notes()
    below = _Below(folder, options.beside) if options.refer else None
    pages = [_page(doc, options, below) for doc in _bounded(folder, options.choice, notes, progress)]
    if not pages:
        nothing = f"{folder} has no text for a module"
        raise ExchangeError("; ".join([nothing, *notes.told()[:3]]))
    _require_few(folder, pages)
    _fit(folder, pages, options, notes)
    shelf = _Shelf()
    for page in pages:
        *folders, last = PurePosixPath(page.path).parts
        if len(folders) > _DEEPEST:
            folders = [*folders[:_DEEPEST], "-".join(folders[_DEEPEST:])]
        inner = shelf
        for folder_name in folders:
            inner = inner.shelf(folder_name)
        inner.items.append((inner.name(_stem(last)), page))
    modules = tuple(shelf.modules("", titles=options.titles))
    schema = Schema(name, (role("user", apart(modules)),), (), NOWHERE)
    prompt = Prompt(name, _imports(modules), NOWHERE)
    return Imported(schema, prompt, notes.told())


class _Below:
    """Paths of files relative to the schema's folder; raises an ExchangeError for a folder outside it."""

    def __init__(self, folder: Path, above: Path | None) -> None:
        try:
            if above is None:
                raise ValueError
            self._prefix = PurePosixPath(folder.resolve().relative_to(above.resolve()).as_posix())
        except ValueError:
            message = (
                f"{folder} is outside the folder of the schema, which cannot refer to its files; save "
                "the schema next to the folder, or copy the texts"
            )
            raise ExchangeError(message) from None

    def src(self, path: str) -> str | None:
        """The `src` of a file; None if no document can express it."""
        joined = str(self._prefix / path)
        return None if "\\" in joined or joined[1:2] == ":" or joined.startswith("~") else joined


def _page(found: Document, options: FolderOptions, below: _Below | None) -> _Page:
    src = below.src(found.path) if below else None
    prose = options.split is not None and (
        options.split.most is not None or found.path.lower().endswith(_ENDINGS) or "." not in found.path
    )
    content = found.text.replace("\r\n", "\n")
    if src is None and options.split is not None and prose:
        return _Page(found.path, options.split(content))
    return _Page(found.path, (Section("", content),), src)


def _bounded(folder: Path, choice: Choice, notes: Notes, progress: Progress | None) -> Iterator[Document]:
    """Yields the documents of a folder, up to the limit of one schema; stores none of them.

    Raises:
        ExchangeError: there are too many documents, or they are too large.
    """
    number = size = 0
    for document in documents(folder, choice, notes, progress):
        number, size = number + 1, size + len(document.text)
        if number > MAX_MODULES:
            raise ExchangeError(f"{folder} has more than {MAX_MODULES:,} documents, {_MOST_MODULES}")
        if size > MAX_TOTAL + MAX_BYTES:
            raise ExchangeError(
                f"{folder} has more than {(MAX_TOTAL + MAX_BYTES) >> 20} MB of text, {_MOST_TEXT}"
            )
        yield document


def _require_few(folder: Path, pages: Sequence[_Page]) -> None:
    folders = {parent for page in pages for parent in PurePosixPath(page.path).parents[:-1]}
    modules = sum(1 + (len(page.sections) if len(page.sections) > 1 else 0) for page in pages) + len(folders)
    if modules > MAX_MODULES:
        raise ExchangeError(f"{folder} would give {modules:,} modules, {_MOST_MODULES}")


def _fit(folder: Path, pages: list[_Page], options: FolderOptions, notes: Notes) -> None:
    """Makes modules refer to the longest texts until the others fit into a document.

    Raises:
        ExchangeError: they do not fit and files cannot be referred to, or references are too large too.
    """
    left = sum(page.size for page in pages if page.src is None) - _ROOM
    whole = sum(page.weight for page in pages)
    if left > 0:
        much = f"{folder} has {whole / (1 << 20):.1f} MB of text, and a document holds {MAX_BYTES >> 20} MB"
        choose = "or choose with --include and --exclude"
        try:
            below = _Below(folder, options.beside)
        except ExchangeError:
            message = (
                f"{much}; save the schema in the folder or above it (-o), so that its modules can refer to "
                f"the files, {choose}"
            )
            raise ExchangeError(message) from None
        waiting = sorted(pages, key=lambda page: -page.size)
        for page in waiting:
            src = below.src(page.path)
            if left <= 0 or page.src is not None or src is None:
                continue
            left -= page.size
            if len(page.sections) > 1:
                notes.count("text", "not cut (referred to by src)", page.path)
            page.sections = (Section("", "".join(section.text for section in page.sections)),)
            page.src = src
            notes.count(
                "text", f"referred to by src, because a document holds {MAX_BYTES >> 20} MB", page.path
            )
    referred = sum(page.weight for page in pages if page.src is not None)
    if left > 0 or referred > MAX_TOTAL:
        raise ExchangeError(f"{folder} has {whole / (1 << 20):.1f} MB of text, {_MOST_TEXT}")
    if referred and options.titles:
        notes.say("referenced texts have no title line")


class _Shelf:
    """A folder before it becomes a module: its ordered content and the used names."""

    def __init__(self) -> None:
        self.items: list[tuple[str, _Page | _Shelf]] = []
        self._shelves: dict[str, _Shelf] = {}
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}

    def shelf(self, folder: str) -> _Shelf:
        child = self._shelves.get(folder)
        if child is None:
            child = self._shelves[folder] = _Shelf()
            self.items.append((self.name(folder), child))
        return child

    def name(self, words: str) -> str:
        """A unique name here, derived from these words."""
        base = candidate = legible(words)[:_LONGEST_NAME]
        number = self._numbers.get(base, 1)
        while candidate in self._taken:
            number += 1
            candidate = f"{base}-{number}"
        self._numbers[base] = number
        self._taken.add(candidate)
        return candidate

    def modules(self, above: str, *, titles: bool) -> list[Module]:
        made = []
        for name, item in self.items:
            path = f"{above}/{name}" if above else name
            if isinstance(item, _Shelf):
                children: tuple[Any, ...] = apart(item.modules(path, titles=titles))
                made.append(Module(name, path, children, True, None, NOWHERE, NOWHERE))
            else:
                made.append(_module(name, path, item, titles=titles))
        return made


def _module(name: str, path: str, page: _Page, *, titles: bool) -> Module:
    title = f"Document: {_one_line(page.path)}" if titles and page.src is None else ""
    if len(page.sections) > 1:
        children = _parts(page, path, title)
    elif page.src is not None:
        children = text(page.sections[0].text)
    else:
        body = page.sections[0].text.rstrip("\n")
        children = text(f"{title}{BLANK_LINE}{body}" if title and body else title or body)
    return Module(name, path, children, True, page.src, NOWHERE, NOWHERE)


def _parts(page: _Page, path: str, title: str) -> tuple[Any, ...]:
    """A document's parts as modules under its title; a part cut inside a line has no separator."""
    names = _Shelf()
    nodes: list[Any] = [*text(title), Text(BLANK_LINE, NOWHERE, seam=True)] if title else []
    sections = [s for s in page.sections if s.text.strip()]  # a separator follows each part anyway
    for section in sections:
        part_name = names.name(section.title or "part")
        last, ends = section is sections[-1], section.text.endswith("\n")
        words = section.text.rstrip("\n") if ends or last else section.text
        part = Module(part_name, f"{path}/{part_name}", text(words), True, None, NOWHERE, NOWHERE)
        nodes.append(with_seam(part, BLANK_LINE, NOWHERE) if ends and not last else part)
    return ended(nodes)


def _one_line(path: str) -> str:
    return " ".join(path.split())


def _stem(name: str) -> str:
    ending = next((suffix for suffix in _ENDINGS if name.lower().endswith(suffix)), "")
    return (name[: -len(ending)] if ending else name) or name


def _imports(modules: Sequence[Module]) -> tuple[Import, ...]:
    return tuple(
        Import(
            parent.name,
            (),
            _imports([child for child in parent.children if isinstance(child, Module)]),
            NOWHERE,
            NOWHERE,
        )
        for parent in modules
    )
