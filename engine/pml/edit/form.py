"""Reads a document as the cards of a form: turns, modules, unions and texts, in document order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from engine.pml.diagnostics.diagnostic import Span
from engine.pml.edit.form_text import FormText, form_texts
from engine.pml.whitespace.rules import INLINE, SPACE, preserves
from engine.pml.xml.elements import Element
from engine.pml.xml.names import ROLES
from engine.pml.xml.reader import read

Kind = Literal["schema", "prompt", "turn", "module", "union", "import", "text", "locked"]
Sketch = list[tuple[int, str, str]]

HOLDS_TEXT: Final = ("turn", "module")
_ONLY_SOURCE: Final = {
    "include": "It includes another file.",
    "scaffold": "It lists modules to encode together.",
    "decide": "Question for decisions.",
    "answer-format": "Format of the answer.",
}


@dataclass(frozen=True)
class Card:
    """One card of a form.

    Attributes:
        kind: what it shows; `locked` is a part that only the source can edit.
        depth: how deep it is nested.
        host: the index of the enclosing card, or -1.
        span: its place in the source.
        name: the name of a module, schema or import, or the role of a turn.
        path: the path of a module.
        element: its element; a text has none.
        text: its text, if it has one.
        preserve: whether white space inside it is preserved.
        why: why only the source can edit it, or "".
    """

    kind: Kind
    depth: int
    host: int
    span: Span
    name: str = ""
    path: str = ""
    element: Element | None = None
    text: FormText | None = None
    preserve: bool = False
    why: str = ""


class Form:
    """The cards of a document, each before those inside it.

    Attributes:
        source: the document.
        cards: its cards; none without a root element.
    """

    def __init__(self, source: str) -> None:
        document = read(source)
        self.source = document.text
        self._root = document.root  # elements refer to their parents weakly
        self.cards: list[Card] = []
        if self._root is not None:
            self._fill(self._root)

    def _fill(self, root: Element) -> None:
        kind: Kind = "prompt" if root.tag == "prompt" else "schema"
        name = root.get("schema" if kind == "prompt" else "name")
        first = Card(
            kind, 0, -1, root.span, name.value if name else "", "", root, None, preserves(root, False)
        )
        pending = [first]
        while pending:
            card = pending.pop()
            self.cards.append(card)
            if card.element is not None and card.kind != "locked":
                inside = [*self._inside(card, card.element, len(self.cards) - 1)]
                pending.extend(sorted(inside, key=lambda one: one.span.start, reverse=True))

    def _inside(self, card: Card, element: Element, host: int) -> Iterator[Card]:
        """Yields the cards directly inside a card."""
        depth, filled = card.depth + 1, False
        source = element.get("src")
        if card.kind == "module" and source is not None:
            why = f"Its text is in the file {source.value}."
            yield Card("locked", depth, host, source.span, path=card.path, why=why)
            return
        slots = bool(card.path) and card.kind != "prompt"
        for text in form_texts(element, self.source, card.preserve, slots):
            filled = True
            yield Card(
                "locked" if text.why else "text",
                depth,
                host,
                text.span,
                "",
                card.path,
                None,
                text,
                card.preserve,
                text.why,
            )
        for child in element.children:
            if isinstance(child, Element) and child.tag not in INLINE and child.tag != "arg":
                filled = True
                yield self._card(child, card, depth, host)
        if not filled and card.kind in HOLDS_TEXT:
            place = element.open_span.end
            empty = FormText((), Span(place, place), "", card.preserve, slots)
            yield Card("text", depth, host, empty.span, "", card.path, None, empty, card.preserve)

    def _card(self, element: Element, outer: Card, depth: int, host: int) -> Card:
        tag, preserve = element.tag, preserves(element, outer.preserve)
        if tag in ROLES:
            return Card("turn", depth, host, element.span, tag, outer.path, element, None, preserve)
        if self.cards[0].kind == "prompt" and tag not in ("decide", "answer-format"):
            return Card("import", depth, host, element.span, tag, "", element, None, preserve)
        if tag == "module":
            name = element.get("name")
            title = name.value if name else ""
            path = f"{outer.path}/{title}" if outer.path else title
            return Card("module", depth, host, element.span, title, path, element, None, preserve)
        if tag == "union":
            return Card("union", depth, host, element.span, "", outer.path, element, None, preserve)
        return Card(
            "locked",
            depth,
            host,
            element.span,
            tag,
            element=element,
            why=_ONLY_SOURCE.get(tag, "The form cannot show it."),
        )

    def inside(self, index: int) -> list[int]:
        """Returns the indexes of the cards directly inside a card."""
        return [at for at, card in enumerate(self.cards) if card.host == index]

    def under(self, index: int) -> range:
        """Returns the indexes of a card and all cards inside it."""
        depth = self.cards[index].depth
        rest = range(index + 1, len(self.cards))
        return range(index, next((at for at in rest if self.cards[at].depth <= depth), len(self.cards)))

    def home(self, index: int) -> Card | None:
        """Returns the innermost module that contains a card or is the card."""
        while index >= 0:
            card = self.cards[index]
            if card.kind == "module":
                return card
            index = card.host
        return None

    def params(self, module: Card) -> list[Element]:
        """Returns the parameters of a module and of its turns in document order."""
        found: list[Element] = []
        for child in module.element.children if module.element is not None else ():
            if isinstance(child, Element):
                inner = child.children if child.tag in ROLES else (child,)
                found += [one for one in inner if isinstance(one, Element) and one.tag in INLINE]
        return found

    def indent(self, place: int) -> str | None:
        """Returns the white space before a place; None if other text precedes it on its line."""
        before = self.source[line_start(self.source, place) : place]
        return None if before.strip(" \t") else before

    def unit(self) -> str:
        """Returns one step of indentation, by default two spaces."""
        for card in self.cards:
            if card.host >= 0 and card.element is not None:
                outer, inner = self.indent(self.cards[card.host].span.start), self.indent(card.span.start)
                if outer is not None and inner is not None and inner != outer and inner.startswith(outer):
                    return inner[len(outer) :]
        return "  "

    def with_line(self, span: Span) -> Span:
        """Returns a span, with its lines if nothing else is on them."""
        indent, rest = self.indent(span.start), self.source[span.end :]
        after = rest[: len(rest) - len(rest.lstrip(" \t"))]
        end = span.end + len(after)
        breaks = next(
            (size for mark, size in (("\r\n", 2), ("\n", 1), ("\r", 1)) if self.source.startswith(mark, end)),
            0,
        )
        return Span(span.start - len(indent), end + breaks) if indent is not None and breaks else span

    def sketch(self) -> Sketch:
        """Returns what the cards show, to compare two forms."""
        return [
            (card.depth, "scaffold" if card.name == "scaffold" else card.kind, self._label(card))
            for card in self.cards
        ]

    def _label(self, card: Card) -> str:
        if card.kind == "locked":
            return self.source[card.span.start : card.span.end]
        return card.text.text if card.text is not None else card.name


@lru_cache(maxsize=4)
def form_of(source: str) -> Form:
    """Returns the cards of a document, from a small cache."""
    return Form(source)


def line_start(source: str, place: int) -> int:
    """Returns the start of the line of a place."""
    return max(source.rfind("\n", 0, place), source.rfind("\r", 0, place)) + 1


def agrees(wanted: Sequence[tuple[int, str, str]], found: Sequence[tuple[int, str, str]]) -> bool:
    """Whether two sketches agree without scaffolds; texts that have met may have become one."""
    left, right = ([one for one in sketch if one[1] != "scaffold"] for sketch in (wanted, found))
    return left == right or (len(left) != len(right) and _merged(left) == _merged(right))


def _merged(sketch: Sequence[tuple[int, str, str]]) -> Sketch:
    merged: Sketch = []
    for depth, kind, label in sketch:
        words = " ".join(label.split()) if kind == "text" else label
        if kind == "text" and merged and merged[-1][:2] == (depth, kind):
            words = f"{merged.pop()[2]} {words}"
        merged.append((depth, kind, words.strip(SPACE)))
    return merged
