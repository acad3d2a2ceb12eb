"""Parses a prompt's source for editing: its elements, their modules, and edits that preserve its layout.

Every edit replaces the smallest possible range. Indentation, line ends and style (one line, or one line for
each import) follow the source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.base.errors import PromptCacheError
from engine.pml.diagnostics.diagnostic import Reporter, quote
from engine.pml.parse.prompt_parser import build_prompt
from engine.pml.tree.resolution import Resolver
from engine.pml.tree.tree import Schema
from engine.pml.whitespace.rules import SPACE, preserves
from engine.pml.xml.elements import Chars, Element
from engine.pml.xml.reader import read


class PromptEditError(PromptCacheError):
    """The prompt cannot be edited; the message gives the reason and the fix."""


@dataclass(frozen=True)
class Place:
    """An element of the source and the path of its module."""

    path: str
    element: Element


class Page:
    """One prompt source, parsed and resolved against a schema.

    Attributes:
        source: the text.
        schema: the schema.
        root: the `<prompt>` element.
        places: the elements that name modules, in document order.
        picks: paths of the imported modules.
        arguments: the arguments by path and name.

    Raises:
        PromptEditError: the source has no `<prompt>` element.
    """

    def __init__(self, source: str, schema: Schema) -> None:
        document = read(source)
        tree = build_prompt(document)
        if tree is None or document.root is None or document.root.tag != "prompt":
            diagnostics = document.report.finish()
            reason = f" (line {diagnostics[0].line}: {diagnostics[0].message})" if diagnostics else ""
            raise PromptEditError(
                f"The prompt has no <prompt> element to edit{reason}. Fix it in the editor first."
            )
        self.source = source
        self.schema = schema
        self.root = document.root
        self.report = document.report
        resolution = Resolver(schema, tree, Reporter(document.report.lines)).resolve()
        elements = {element.span.start: element for element in walk(document.root)}
        self.places = [Place(site.path, elements[site.node.span.start]) for site in resolution.sites]
        self.picks = resolution.picks.keys()
        self.arguments = {
            path: {name: argument.value for name, argument in arguments.items()}
            for path, arguments in resolution.arguments.items()
            if arguments
        }
        self._paths = {id(place.element): place.path for place in self.places}
        self._newline = "\r\n" if "\r\n" in source else "\n"

    def path_of(self, element: Element) -> str | None:
        """Returns the path of an element's module; empty for the root."""
        return "" if element is self.root else self._paths.get(id(element))

    def written(self, path: str) -> Element | None:
        """Returns the first element written for exactly this module."""
        return next((place.element for place in self.places if place.path == path), None)

    def under(self, path: str) -> list[Place]:
        """Returns the outermost elements that name this module or a nested one."""
        places: list[Place] = []
        end = -1
        for place in self.places:
            if place.element.span.start >= end and (place.path == path or place.path.startswith(path + "/")):
                places.append(place)
                end = place.element.span.end
        return places

    def replace(self, start: int, end: int, text: str) -> str:
        """Returns the source with one range replaced."""
        return self.source[:start] + text + self.source[end:]

    def sound(self, element: Element) -> Element:
        """Returns the element if its tags are complete.

        Raises:
            PromptEditError: a tag is unfinished, so the element's end is unknown.
        """
        finished = self.source.endswith(">", element.open_span.start, element.open_span.end)
        if not finished or not element.closed:
            line = self.report.lines.line(element.open_span.start)
            raise PromptEditError(f"<{element.tag}> at line {line} is not finished. Write its end first.")
        return element

    def insert(self, host: Element, order: int | None, write: Callable[[str | None], str]) -> str:
        """Inserts an element into `host`.

        `order` is the index of the new import in the schema; None puts an argument first. `write` returns the
        text for an indentation, or for None on one line.
        """
        before, after = self._neighbours(host, order)
        flat = self._preserved(host)
        if before is not None:
            indent = None if flat else self._indent(before.span.start)
            text = write(indent)
            if indent is not None:
                text += self._newline + indent
            elif not flat and self.source[before.span.start - 1] != ">":
                text += " "
            return self.replace(before.span.start, before.span.start, text)
        if after is not None:
            indent = None if flat else self._indent(after.span.start)
            text = write(indent)
            if indent is not None:
                text = self._newline + indent + text
            elif not flat and self.source[after.span.end : after.span.end + 1] != "<":
                text = " " + text
            return self.replace(after.span.end, after.span.end, text)
        return self._insert_first(host, flat, write)

    def _insert_first(self, host: Element, flat: bool, write: Callable[[str | None], str]) -> str:
        """Inserts after the start tag of an element without imports."""
        source = self.source
        inner = host.inner()
        own = self._indent(host.span.start)
        body = source[inner.start : inner.end]
        blank = not body.strip(SPACE)
        line_by_line = not flat and (own is not None if blank else "\n" in body)
        child = (own or "") + self.unit() if line_by_line else None
        lead = self._newline + child if child is not None else ""
        close = self._newline + (own or "") if child is not None else ""
        if host.empty_tag:
            self.sound(host)
            start = host.open_span.start + len(
                source[host.open_span.start : host.open_span.end - 2].rstrip(SPACE)
            )
            return self.replace(start, host.span.end, f">{lead}{write(child)}{close}</{host.tag}>")
        if not source.endswith(">", host.open_span.start, host.open_span.end):
            self.sound(host)
        if blank and "\n" not in body and not flat:
            return self.replace(inner.start, inner.end, f"{lead}{write(child)}{close}")
        return self.replace(inner.start, inner.start, f"{lead}{write(child)}")

    def remove(self, element: Element) -> str:
        """Removes an element and its empty line, but not the text and comments inside it."""
        self.sound(element)
        inside = self.remains(element)
        if inside:
            return self.replace(element.span.start, element.span.end, self._spaced(element, inside))
        parent = element.parent
        if parent is not None and parent is not self.root and self._collapses(parent, element):
            return self.replace(parent.open_span.end - 1, parent.span.end, "/>")
        start, end = self._with_line(element)
        if (start, end) == (element.span.start, element.span.end):
            before, after = self.source[start - 1 : start], self.source[end : end + 1]
            if not self._preserved(parent) and before in (" ", "\t") and after and after in SPACE:
                start -= 1
            elif before not in SPACE and before != ">" and after not in SPACE and after != "<":
                return self.replace(start, end, " ")
        return self.replace(start, end, "")

    def remains(self, element: Element) -> str:
        """Returns the free text and the comments inside an element, as written."""
        parts: list[str] = []
        pending: list[Element | Chars] = [element]
        while pending:
            node = pending.pop()
            if isinstance(node, Chars):
                raw = self.source[node.span.start : node.span.end]
                if node.kind == "comment" or node.text:
                    parts.append(raw)
            elif node.tag == "arg" and self._paths.get(id(node.parent)) is not None:
                pending.extend(child for child in reversed(node.children) if _is_comment(child))
            else:
                pending.extend(reversed(node.children))
        return "".join(parts).strip(SPACE)

    def _spaced(self, element: Element, text: str) -> str:
        before = self.source[element.span.start - 1 : element.span.start]
        after = self.source[element.span.end : element.span.end + 1]
        lead = "" if before in SPACE or before == ">" else " "
        tail = "" if after in SPACE or after == "<" else " "
        return lead + text + tail

    def _collapses(self, parent: Element, element: Element) -> bool:
        """Whether an element contains only `element`, so that it becomes `<a/>` without it."""
        if self._preserved(parent) or not parent.closed or parent.empty_tag:
            return False
        if not self.source.endswith(">", parent.open_span.start, parent.open_span.end):
            return False
        others = [child for child in parent.children if child is not element]
        return all(
            isinstance(child, Chars) and child.kind == "text" and not child.text.strip(SPACE)
            for child in others
        )

    def _with_line(self, element: Element) -> tuple[int, int]:
        """Returns the span of an element, with its line if it is alone there."""
        start, end = element.span.start, element.span.end
        indent = self._indent(start)
        rest = re.compile(r"[ \t]*(\r\n|\n|\r|\Z)").match(self.source, end)
        if indent is None or rest is None or self._preserved(element.parent):
            return start, end
        return start - len(indent), rest.end()

    def _neighbours(self, host: Element, order: int | None) -> tuple[Element | None, Element | None]:
        """Returns the import to insert before, or else the element to insert after."""
        last: Element | None = None
        for child in host.children:
            if not isinstance(child, Element):
                continue
            path = self._paths.get(id(child))
            if child.tag == "arg":
                last = child
            elif path is not None and order is not None:
                if self.schema.index.order[path] > order:
                    return child, None
                last = child
        return None, last

    def unit(self) -> str:
        """Returns one step of indentation of this prompt, by default two spaces."""
        for element in walk(self.root):
            if element.parent is None or element is self.root:
                continue
            outer, inner = self._indent(element.parent.span.start), self._indent(element.span.start)
            if (
                outer is not None
                and inner is not None
                and inner.startswith(outer)
                and len(inner) > len(outer)
            ):
                return inner[len(outer) :]
        return "  "

    def chain(self, names: list[str], indent: str | None, inside: str = "") -> str:
        """Returns nested elements, on lines of their own or on one line."""
        *outer, last = names
        text = f"<{last}>{inside}</{last}>" if inside else f"<{last}/>"
        for depth in range(len(outer) - 1, -1, -1):
            name = outer[depth]
            if indent is None:
                text = f"<{name}>{text}</{name}>"
            else:
                step = self._newline + indent + self.unit() * depth
                text = f"<{name}>{step}{self.unit()}{text}{step}</{name}>"
        return text

    def _indent(self, offset: int) -> str | None:
        """Returns the white space before an offset, or None if other text precedes it on its line."""
        start = max(self.source.rfind("\n", 0, offset), self.source.rfind("\r", 0, offset)) + 1
        before = self.source[start:offset]
        return None if before.strip(" \t") else before

    def indent_of(self, element: Element) -> str | None:
        """Returns the indentation for text that replaces an element; None if the element begins no line."""
        return None if self._preserved(element.parent) else self._indent(element.span.start)

    def _preserved(self, element: Element | None) -> bool:
        outward: list[Element] = []
        while element is not None:
            outward.append(element)
            element = element.parent
        preserve = False
        for ancestor in reversed(outward):
            preserve = preserves(ancestor, preserve)
        return preserve

    def preserved(self, element: Element) -> bool:
        """Whether white space inside an element is part of the text."""
        return self._preserved(element)


def walk(root: Element) -> Iterator[Element]:
    """Yields an element and all elements inside it, in document order."""
    pending = [root]
    while pending:
        element = pending.pop()
        yield element
        pending.extend(child for child in reversed(element.children) if isinstance(child, Element))


def _is_comment(node: Element | Chars) -> bool:
    return isinstance(node, Chars) and node.kind == "comment"


def require_module(schema: Schema, path: str) -> None:
    """Checks that the schema has a module.

    Raises:
        PromptEditError: it has no such module.
    """
    if schema.module(path) is None:
        raise PromptEditError(f"The schema has no module {quote(path)}. Pick one of its modules.")
