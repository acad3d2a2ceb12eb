"""Resolves `<include>`: finds the file, checks that it fits, and returns its nodes.

The included content replaces the `<include>` in the tree, and its nodes have the span of the `<include>`. A
`src` in an included file is relative to that file.
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

MAX_INCLUDES: Final = 256  # `<include>` elements of a schema, including those of included files

MAX_CHAIN: Final = 16  # files that include one another in a row


@dataclass
class _Reading:
    """State that all files of one schema share.

    Attributes:
        base: the folder of the schema, or None.
        sources: reads the files.
        included: every path of an `<include>`, relative to the schema, in reading order.
        size: bytes of the included text so far.
    """

    base: Path | None
    sources: Sources = field(default_factory=Sources)
    included: list[str] = field(default_factory=list)
    size: int = 0

    def real(self, path: str) -> str:
        """Resolves links in a path, for comparison only: links may change before the file is read."""
        return os.path.realpath(self.base / path) if path and self.base else path


@dataclass(frozen=True)
class SchemaFile:
    """A document of a schema: the schema itself, or an included one.

    Attributes:
        text: its text.
        path: its path relative to the schema; empty for the schema itself.
        depth: the nesting depth of its elements.
        above: the file that includes it.
    """

    text: str
    reading: _Reading
    path: str = ""
    depth: int = 0
    above: SchemaFile | None = None

    @classmethod
    def of(cls, text: str, base: Path | None) -> SchemaFile:
        """Returns the file of a schema with its folder."""
        return cls(text, _Reading(base))

    @property
    def included(self) -> tuple[str, ...]:
        """The paths of all includes so far, even missing files, without repeats."""
        return tuple(dict.fromkeys(self.reading.included))

    def beside(self, src: str) -> str:
        """Returns a path of this file relative to the schema's folder."""
        return posixpath.join(posixpath.dirname(self.path), src)

    def read(self, src: str) -> str:
        """Reads a file that this file names.

        Raises:
            SourceError: the path leaves the folder, or the file is not readable text.
        """
        require_inside(src)
        return self.reading.sources.read(self.beside(src), self.reading.base)

    def where(self, file: str, line: int) -> str:
        """Describes a line of a file of this schema, for a message about this file."""
        if file == self.path:
            return f"at line {line}"
        return f"at line {line} of {quote(file) if file else 'the schema that includes it'}"

    def include(self, src: str, element: Element, turns: bool) -> tuple[SchemaFile, Document, Element]:
        """Reads an included schema; returns the file, the document with its errors, and its root.

        Raises:
            SourceError: the file is not readable or not allowed there, such as one with turns unless `turns`.
        """
        require_inside(src)
        path = posixpath.normpath(self.beside(src))
        reading = self.reading
        reading.included.append(path)
        chain = list(self._chain())
        if reading.real(path) in (reading.real(item.path) for item in chain):
            raise _circle(chain, path)
        if len(chain) > MAX_CHAIN:
            raise _refusal(
                path, f"more than {MAX_CHAIN} files include one another; include it at a higher level"
            )
        if len(reading.included) > MAX_INCLUDES:
            raise _refusal(path, f"a schema includes at most {MAX_INCLUDES} files; put some of them into one")
        text = reading.sources.read(path, reading.base)
        if chain[-1].text == text and "/" not in path:  # the schema itself, whose name is unknown
            raise _circle(chain, path)
        reading.size += len(text.encode("utf-8", "surrogatepass"))
        if reading.size > MAX_BYTES:
            raise _refusal(
                path, "the included files of a schema have at most 5 MB in total; split the schema"
            )
        document = read(text)
        depth = self.depth + _depth_of(element)
        root = _root_of(document, path, src)
        if depth + _height_of(root) > MAX_DEPTH:
            raise _refusal(
                path, f"elements would nest more than {MAX_DEPTH} deep; include it at a higher level"
            )
        role = next((item for item in _elements(root) if item.tag in ROLES), None)
        if role is not None and not turns:
            line = document.report.lines.line(role.span.start)
            where = element.parent.tag if element.parent is not None else "it"
            reason = (
                f"its turn <{role.tag}> at line {line} is not allowed in <{where}>; include it directly in "
                "the schema, or remove the tags of its turns"
            )
            raise _refusal(path, reason)
        return SchemaFile(text, reading, path, depth, self), document, root

    def _chain(self) -> Iterator[SchemaFile]:
        """Yields this file, the file that includes it, and so on."""
        file: SchemaFile | None = self
        while file is not None:
            yield file
            file = file.above


def placed(nodes: Sequence[Any], span: Span) -> list[Any]:
    """Copies nodes of an included schema to the place of its `<include>`."""
    inner: list[Any] = []
    pending = list(nodes)
    while pending:
        node = pending.pop()
        inner.append(node)
        pending.extend(_below(node))
    done: dict[int, Any] = {}
    for node in reversed(inner):
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
    """Moves scaffolds of an included schema to the module that includes it."""
    above = f"{path}/" if path else ""
    return [Scaffold(tuple(above + module for module in scaffold.modules), span) for scaffold in scaffolds]


def _below(node: Any) -> tuple[Any, ...]:
    if isinstance(node, Union):
        return node.members
    return () if isinstance(node, Text | Param) else node.children


def _root_of(document: Document, path: str, src: str) -> Element:
    """Returns the root of an included document; `src` is its path as written.

    Raises:
        SourceError: it is not a schema.
    """
    foreign = next((error for error in document.report.errors if error.code == "E121"), None)
    if foreign is not None:
        kind = foreign.message.partition(";")[0]
        raise _refusal(path, f'{kind}; to include its text, write <module name="…" src="{src}"/>')
    root = document.root
    if root is None:
        reason = document.report.errors[0].message if document.report.errors else "the document is empty"
        raise _refusal(path, reason)
    if root.tag != "schema":
        shown = quote(root.tag)[1:-1]
        raise _refusal(path, f'its root is <{shown}>; name a document that starts with <schema name="…">')
    return root


def _refusal(path: str, reason: str) -> SourceError:
    return SourceError("E211", f"{quote(path)} cannot be included: {reason}")


def _circle(chain: list[SchemaFile], path: str) -> SourceError:
    """Returns the error for a circular include; the chain starts with the innermost file."""
    files = [*(file.path or "this schema" for file in reversed(chain)), path]
    return _refusal(path, f"it would include itself, {' → '.join(files)}; remove one of these includes")


def _elements(element: Element) -> Iterator[Element]:
    return (child for child in element.children if isinstance(child, Element))


def _depth_of(element: Element) -> int:
    depth = 0
    while element.parent is not None:
        element, depth = element.parent, depth + 1
    return depth


def _height_of(root: Element) -> int:
    """Returns the nesting depth below an element."""
    height, level = 0, list(_elements(root))
    while level:
        height += 1
        level = [child for element in level for child in _elements(element)]
    return height
