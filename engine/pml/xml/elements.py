"""Elements, attributes and characters of the source text, before interpretation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from weakref import ReferenceType, ref

from engine.pml.diagnostics.diagnostic import Edit, Span


@dataclass(slots=True)
class Attribute:
    """An attribute: `span` covers name and value, `value_span` the text between the quotes."""

    name: str
    value: str
    span: Span
    value_span: Span

    @property
    def name_span(self) -> Span:
        """The span of the attribute's name."""
        return Span(self.span.start, self.span.start + len(self.name))


@dataclass(slots=True)
class Chars:
    """Decoded characters between two tags; a comment or CDATA section is a separate piece."""

    text: str
    span: Span
    kind: Literal["text", "cdata", "comment"] = "text"


@dataclass(slots=True, eq=False, weakref_slot=True)
class Element:
    """An element: `open_span` covers its start tag, `tag_span` the name in it.

    `close_span` covers its end tag, even a misspelt one, and `end_name` is the name in that tag. They are
    None and empty without an end tag. `empty_tag` is True for `<a/>`; `closed` is False without an end tag.
    The reference to the parent is weak: without cycles, documents are freed at once, without the garbage
    collector.
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
        """The enclosing element; None for the root, or if the tree is freed."""
        return None if self._parent is None else self._parent()

    @parent.setter
    def parent(self, element: Element) -> None:
        self._parent = ref(element)

    def get(self, *names: str) -> Attribute | None:
        """Returns the first of these attributes that the element has."""
        for name in names:
            if name in self.attributes:
                return self.attributes[name]
        return None

    def renamed(self, tag: str) -> tuple[Edit, ...]:
        """Returns the edits that rename all its tags; empty if its end tag has a third name."""
        start = Edit(self.tag_span, tag)
        if self.close_span is None or self.end_name != self.tag:
            return (start,) if self.close_span is None or self.end_name == tag else ()
        name = self.close_span.start + len("</")
        return (start, Edit(Span(name, name + len(self.tag)), tag))

    def inner(self) -> Span:
        """Returns the span between the start tag and the end tag; empty for `<a/>`."""
        if not self.children:
            return Span(self.open_span.end, self.open_span.end)
        return Span(self.open_span.end, self.children[-1].span.end)
