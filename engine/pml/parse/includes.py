"""Schemas that a schema includes: which file an `<include>` means, whether it can stand there, and its nodes.

What is included stands in the tree as if it were written in the place of the `<include>`, and its nodes have
the span of that. A module of an included file with `src` has its text from beside that file.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from engine.files.text_files import MAX_BYTES
from engine.pml.diagnostics.diagnostic import Span, quote
from engine.pml.parse.sources import SourceError, Sources, require_inside
from engine.pml.tree.tree import Module, Param, Scaffold, Text, Union
from engine.pml.xml.elements import Element
from engine.pml.xml.names import ROLES
from engine.pml.xml.reader import Document, read
from engine.pml.xml.scanner import MAX_DEPTH

MAX_INCLUDES: Final = 256
"""The most `<include>` that a schema may have, those of included files counted too."""

MAX_CHAIN: Final = 16
"""The most files that may include one another in a row."""


@dataclass
class _Reading:
    """What all files of one schema share.

    Attributes:
        base: the folder of the schema; None where it lies in none.
        sources: reads the files.
        included: every path that an `<include>` names, in the order of reading, from the schema's folder.
        size: bytes of what was included so far.
    """

    base: Path | None
    sources: Sources = field(default_factory=Sources)
    included: list[str] = field(default_factory=list)
    size: int = 0

    def real(self, path: str) -> str:
        """What a path means, links followed; only to be compared, as links can change before it is read."""
        return os.path.realpath(self.base / path) if path and self.base else path


@dataclass(frozen=True)
class SchemaFile:
    """A document that is read for a schema: the schema itself, or one that it includes.

    Attributes:
        text: its text.
        path: where it lies, from the schema's folder; empty for the schema itself.
        depth: how many elements its own elements are nested in.
        above: the file that includes it.
    """

    text: str
    reading: _Reading
    path: str = ""
    depth: int = 0
    above: SchemaFile | None = None

    @classmethod
    def of(cls, text: str, base: Path | None) -> SchemaFile:
        """The file of a schema itself, whose other files lie in a folder."""
        return cls(text, _Reading(base))

    @property
    def included(self) -> tuple[str, ...]:
        """The paths of all that was included so far, missing files too, each once."""
        return tuple(dict.fromkeys(self.reading.included))

    def beside(self, src: str) -> str:
        """A path that this file names, from the schema's folder."""
        return posixpath.join(posixpath.dirname(self.path), src)

    def read(self, src: str) -> str:
        """The text of a file that this one names.

        Raises:
            SourceError: it leads out of the folder, or cannot be read as text.
        """
        require_inside(src)
        return self.reading.sources.read(self.beside(src), self.reading.base)

    def where(self, file: str, line: int) -> str:
        """A line of a file of this schema, as a message on this file names it."""
        if file == self.path:
            return f"at line {line}"
        return f"at line {line} of {quote(file) if file else 'the schema that includes it'}"

    def include(self, src: str, element: Element, turns: bool) -> tuple[SchemaFile, Document, Element]:
        """A schema that this file includes, read as far as its elements.

        Args:
            src: its path, as this file writes it.
            element: the `<include>`.
            turns: whether turns may stand there.

        Returns:
            The file, the document with its faults, and its root.

        Raises:
            SourceError: it cannot be read, or cannot be included there.
        """
        require_inside(src)
        path = posixpath.normpath(self.beside(src))
        reading = self.reading
        reading.included.append(path)
        chain = list(self._chain())
        if reading.real(path) in (reading.real(one.path) for one in chain):
            raise _circle(chain, path)
        if len(chain) > MAX_CHAIN:
            raise _refusal(path, f"more than {MAX_CHAIN} files include one another; include it further up")
        if len(reading.included) > MAX_INCLUDES:
            raise _refusal(path, f"a schema includes at most {MAX_INCLUDES} files; put some of them into one")
        text = reading.sources.read(path, reading.base)
        if chain[-1].text == text and "/" not in path:  # the schema itself, whose name nobody knows
            raise _circle(chain, path)
        reading.size += len(text.encode("utf-8", "surrogatepass"))
        if reading.size > MAX_BYTES:
            raise _refusal(path, "what a schema includes has at most 5 MB together; split the schema")
        document = read(text)
        depth = self.depth + _depth_of(element)
        root = _root_of(document, path, src)
        if depth + _height_of(root) > MAX_DEPTH:
            raise _refusal(path, f"elements would nest more than {MAX_DEPTH} deep; include it further out")
        role = next((one for one in _elements(root) if one.tag in ROLES), None)
        if role is not None and not turns:
            line = document.report.lines.line(role.span.start)
            where = element.parent.tag if element.parent is not None else "it"
            reason = (
                f"its turn <{role.tag}> at line {line} may not stand in <{where}>; include it directly in "
                "the schema, or take the tags of its turns away"
            )
            raise _refusal(path, reason)
        return SchemaFile(text, reading, path, depth, self), document, root

    def _chain(self) -> Iterator[SchemaFile]:
        """This file, the one that includes it, and so on."""
        file: SchemaFile | None = self
        while file is not None:
            yield file
            file = file.above


def placed(nodes: Sequence[Any], span: Span) -> list[Any]:
    """Nodes of an included schema as nodes of the one that includes it, at the place of its `<include>`."""
    found: list[Any] = []
    pending = list(nodes)
    while pending:
        node = pending.pop()
        found.append(node)
        pending.extend(_below(node))
    done: dict[int, Any] = {}
    for node in reversed(found):
        below = tuple(done[id(child)] for child in _below(node))
        if isinstance(node, Text):
            new: Any = replace(node, span=span)
        elif isinstance(node, Param):
            new = replace(node, span=span, length_span=None, name_span=None)
        elif isinstance(node, Union):
            new = replace(node, members=below, span=span)
        elif isinstance(node, Module):
            new = replace(node, children=below, span=span, name_span=span)
        else:
            new = replace(node, children=below, span=span)
        done[id(node)] = new
    return [done[id(node)] for node in nodes]


def placed_scaffolds(scaffolds: Iterable[Scaffold], path: str, span: Span) -> list[Scaffold]:
    """Scaffolds of a schema that is included in the module with a path, or directly in the schema."""
    above = f"{path}/" if path else ""
    return [Scaffold(tuple(above + module for module in one.modules), span) for one in scaffolds]


def _below(node: Any) -> tuple[Any, ...]:
    if isinstance(node, Union):
        return node.members
    return () if isinstance(node, Text | Param) else node.children


def _root_of(document: Document, path: str, src: str) -> Element:
    """The root of a document that is to be included; `src` is how its path is written.

    Raises:
        SourceError: it is no schema.
    """
    foreign = next((one for one in document.report.errors if one.code == "E121"), None)
    if foreign is not None:
        what = foreign.message.partition(";")[0]
        raise _refusal(path, f'{what}; to have its text, write <module name="…" src="{src}"/>')
    root = document.root
    if root is None:
        found = document.report.errors[0].message if document.report.errors else "the document is empty"
        raise _refusal(path, found)
    if root.tag != "schema":
        shown = quote(root.tag)[1:-1]
        raise _refusal(path, f'its root is <{shown}>; name a document that begins with <schema name="…">')
    return root


def _refusal(path: str, reason: str) -> SourceError:
    return SourceError("E211", f"{quote(path)} cannot be included: {reason}")


def _circle(chain: list[SchemaFile], path: str) -> SourceError:
    """What is said of files that include one another in a circle, the innermost first in the chain."""
    files = [*(one.path or "this schema" for one in reversed(chain)), path]
    return _refusal(path, f"it would include itself, {' → '.join(files)}; take one of these includes away")


def _elements(element: Element) -> Iterator[Element]:
    return (child for child in element.children if isinstance(child, Element))


def _depth_of(element: Element) -> int:
    """How many elements an element is nested in."""
    depth = 0
    while element.parent is not None:
        element, depth = element.parent, depth + 1
    return depth


def _height_of(root: Element) -> int:
    """How deep elements are nested in an element, itself not counted."""
    height, level = 0, list(_elements(root))
    while level:
        height += 1
        level = [child for element in level for child in _elements(element)]
    return height
