"""Elements, attributes and characters as they stand in the source text, before they mean anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from weakref import ReferenceType, ref

from engine.pml.diagnostics.diagnostic import Edit, Span


@dataclass(slots=True)
class Attribute:
    """An attribute: `span` covers name and value, `value_span` what is between the quotes."""

    name: str
    value: str
    span: Span
    value_span: Span

    @property
    def name_span(self) -> Span:
        """The name of the element, as it is written."""
        return Span(self.span.start, self.span.start + len(self.name))


@dataclass(slots=True)
class Chars:
    """Characters between two tags, decoded; a comment or CDATA section is a piece of its own."""

    text: str
    span: Span
    kind: Literal["text", "cdata", "comment"] = "text"


@dataclass(slots=True, eq=False, weakref_slot=True)
class Element:
    """An element: `open_span` covers its start tag, `tag_span` the tag's name in it.

    `close_span` covers its end tag, a misspelled one too, and `end_name` is the name in that; None and empty
    where there is none. `empty_tag` is True
    for `<a/>`, `closed` is False where the end tag is missing. An element does not keep its parent
    alive: without cycles, a document goes as soon as it is let go, and the collector has no work with the
    documents that an editor makes at every key.
    """

    tag: str
    tag_span: Span
    open_span: Span
    span: Span
    attributes: dict[str, Attribute] = field(default_factory=dict)
    children: list[Element | Chars] = field(default_factory=list)
    empty_tag: bool = False
    closed: bool = True
    close_span: Span | None = None
    end_name: str = ""
    _parent: ReferenceType[Element] | None = None

    @property
    def parent(self) -> Element | None:
        """The element round it; None for the root, and where the tree is gone."""
        return None if self._parent is None else self._parent()

    @parent.setter
    def parent(self, element: Element) -> None:
        self._parent = ref(element)

    def get(self, *names: str) -> Attribute | None:
        """The first of these attributes that is there."""
        for name in names:
            if name in self.attributes:
                return self.attributes[name]
        return None

    def renamed(self, tag: str) -> tuple[Edit, ...]:
        """The edits that give all its tags another name; none where its end has a third."""
        start = Edit(self.tag_span, tag)
        if self.close_span is None or self.end_name != self.tag:
            return (start,) if self.close_span is None or self.end_name == tag else ()
        name = self.close_span.start + len("</")
        return (start, Edit(Span(name, name + len(self.tag)), tag))

    def inner(self) -> Span:
        """What is between the start tag and the end tag; empty for `<a/>`."""
        if not self.children:
            return Span(self.open_span.end, self.open_span.end)
        return Span(self.open_span.end, self.children[-1].span.end)
