"""Walks a document's elements and builds the trees of schemas and prompts."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, Literal, TypeVar

from engine.pml.diagnostics.diagnostic import Edit, Fix, Reporter, Span
from engine.pml.diagnostics.spelling import Speller
from engine.pml.whitespace.rules import Run, contents, preserves
from engine.pml.xml.elements import Element
from engine.pml.xml.names import HTML, RESERVED, ROLES
from engine.pml.xml.suggestions import MEANT_ELEMENTS, enclosed, html_as_text

_MODULES: Final = re.compile(r"<(?:module|union)\b")


@dataclass(slots=True)
class Frame:
    """An element whose children are being built.

    Attributes:
        element: the element.
        kind: how it is read.
        items: its unread content.
        preserve: whether white space is preserved.
        children: the nodes so far.
        builds: whether it becomes a node at its end.
    """

    element: Element
    kind: str
    items: Iterator[Run | Element]
    preserve: bool
    children: list[Any] = field(default_factory=list)
    builds: bool = True


AnyFrame = TypeVar("AnyFrame", bound=Frame)


class TreeBuilder(ABC, Generic[AnyFrame]):
    """Builds a tree from elements without recursion, and reports errors."""

    def __init__(self, text: str, report: Reporter) -> None:
        self._text = text
        self._report = report
        self._speller = Speller()

    @abstractmethod
    def _text_run(self, frame: AnyFrame, run: Run) -> None:
        """Adds a text run to a frame."""

    @abstractmethod
    def _element(self, frame: AnyFrame, element: Element) -> AnyFrame | None:
        """Adds an element to a frame; returns a new frame if its children must be read."""

    @abstractmethod
    def _finish(self, frame: AnyFrame) -> object | None:
        """Returns the node of a complete frame, or None."""

    def _fill(self, root: AnyFrame) -> None:
        stack = [root]
        while stack:
            frame = stack[-1]
            item = next(frame.items, None)
            if item is None:
                stack.pop()
                if stack and frame.builds and (node := self._finish(frame)) is not None:
                    stack[-1].children.append(node)
            elif isinstance(item, Run):
                self._text_run(frame, item)
            elif (inner := self._element(frame, item)) is not None:
                stack.append(inner)

    def _transparent(self, frame: AnyFrame, element: Element) -> AnyFrame:
        """Reads the children of an invalid element as children of the frame."""
        preserve = preserves(element, frame.preserve)
        items = iter(contents(element, self._text, preserve))
        return replace(frame, element=element, items=items, preserve=preserve, builds=False)

    def _is_root(self, root: Element, tag: Literal["schema", "prompt"], opening: str) -> bool:
        """Whether a root element can be read as a schema or prompt; reports any other tag."""
        if root.tag == tag:
            return True
        inner = [child.tag for child in root.children if isinstance(child, Element)]
        modules = _MODULES.search(self._text, root.span.start, root.span.end) is not None
        fits = modules if tag == "schema" else not modules and any(child not in RESERVED for child in inner)
        renamed = root.renamed(tag) if root.closed else ()
        if root.tag in ("schema", "prompt"):
            message = f"this is a {root.tag}; a {tag} begins with {opening}"
            second = self._text.find(f"<{tag}", root.span.end)
            if root.closed and second >= 0:
                rest = Fix(
                    f"Remove the {root.tag} before the {tag}", (Edit(Span(root.span.start, second), ""),)
                )
                self._report.add("E201", message, root.tag_span, choices=(rest,))
            else:
                self._report.add("E201", message, root.tag_span, tag if fits else "", renamed if fits else ())
            return False
        message = f"the root element is <{root.tag}>; a {tag} begins with {opening}"
        if self._speller.nearest(root.tag, (tag,)):
            self._report.add("E201", message, root.tag_span, tag, root.renamed(tag))
            return True
        begin, end = '<schema name="my-schema">' if tag == "schema" else "<prompt>", f"</{tag}>"
        message += f"; wrap the document in {begin}…{end}"
        foreign = tag == "prompt" and root.tag in RESERVED and root.tag not in ROLES
        fix = () if foreign or end in self._text else enclosed(self._text, begin, end)
        if tag == "prompt" and HTML.fullmatch(root.tag) and fix and (tags := html_as_text(self._text)):
            title = f"Write {begin}…{end} and &lt;{root.tag}: the tags are then read as text"
            imports = Fix(f"Write {begin}…{end} around <{root.tag}>: it is then an import", fix)
            choices = (Fix(title, (*tags, *fix)), imports)
            self._report.add("E201", message, root.tag_span, f"{begin}…{end}", choices=choices, of_tags=True)
            return True
        if not fits or root.tag in (*RESERVED, *MEANT_ELEMENTS) or not fix or not renamed:
            self._report.add("E201", message, root.tag_span, f"{begin}…</{tag}>", fix)
            return True
        wrap = Fix(f"Write {begin}…</{tag}> around <{root.tag}>", fix)
        if tag == "schema" and not root.attributes:
            renamed = (Edit(root.tag_span, f'schema name="{root.tag}"'), *renamed[1:])
        rename = Fix(f"Write <{tag}> instead of <{root.tag}>", renamed)
        sure = tag == "schema" or "schema" in root.attributes or any(child in ROLES for child in inner)
        choices = (rename, wrap) if sure else (wrap, rename)
        self._report.add("E201", message, root.tag_span, f"{begin}…</{tag}>", (), choices)
        return True
