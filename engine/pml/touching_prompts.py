"""Words that touch in a prompt: its own text, its arguments, and what its imports bring together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from engine.pml.diagnostics import NOWHERE, Edit, Reporter, Span, quote
from engine.pml.parts import ArgumentText, NewText, Part, RoleClose, RoleOpen, SchemaText, is_seam, part_text
from engine.pml.resolution import Resolution
from engine.pml.touching import beside, meet, words_of
from engine.pml.tree import Module, Prompt, Role, Schema, Text, Union

_ENDS_IMPORT: Final = re.compile(r"(?:\s|<!--.*?-->|<!\[CDATA\[\s*\]\]>)*</", re.DOTALL)
"""What stands behind a text that is the last in its import: white space is nothing there."""
_SHOWN: Final = 24


def check_prompt(
    parts: Sequence[Part], report: Reporter, prompt: Prompt, schema: Schema, found: Resolution
) -> None:
    """Reports where what a prompt reads touches (W613); what stands side by side in its schema is told there.

    Args:
        parts: as they are read.
        report: takes the faults.
        prompt: the prompt.
        schema: its schema.
        found: what the prompt imports from it.
    """
    checker = _Checker(report, prompt, schema, found)
    last: Part | None = None
    for part in parts:
        if isinstance(part, RoleOpen | RoleClose) or is_seam(part):
            last = None
        elif text := part_text(part):
            argument = isinstance(last, ArgumentText) or isinstance(part, ArgumentText)
            if last is not None and meet(part_text(last), text, argument=argument):
                checker.report(last, part)
            last = part


class _Checker:
    """Says what can be done about two parts that touch."""

    def __init__(self, report: Reporter, prompt: Prompt, schema: Schema, found: Resolution) -> None:
        self._report = report
        self._prompt = prompt
        self._schema = schema
        self._found = found

    def report(self, left: Part, right: Part) -> None:
        """Reports two parts that touch, at the one that the prompt can change."""
        if isinstance(left, NewText) and isinstance(right, NewText) and self._one_text(left, right):
            return
        texts = part_text(left), part_text(right)
        words = f"words touch, {words_of(*texts)} is read as one"
        if isinstance(right, NewText):
            self._add(words, right.span, beside(right.span.start, *texts))
        elif isinstance(left, NewText) and not _ENDS_IMPORT.match(self._prompt.source, left.span.end):
            self._add(words, left.span, beside(left.span.end, *texts))
        elif isinstance(left, NewText):
            self._report.add("W613", f"{words}; {self._behind_import(left, right)}", left.span)
        elif place := _given(right) or _given(left):
            self._report.add("W613", f"{words}; write a space in the schema or the argument", place)
        elif not self._neighbours(_node(left), _node(right)):
            meeting = self._meeting(left, right)
            remedy = f"write a space or a line break {self._behind(left, _path(right))} in the schema"
            self._report.add("W613", f"{words}: {meeting}; {remedy}", self._import_of(left, right))

    def _add(self, words: str, span: Span, mended: tuple[tuple[Edit, ...], str]) -> None:
        fix, hint = mended
        self._report.add("W613", f"{words}; put {hint}", span, hint, fix)

    # Text that ends an import

    def _behind_import(self, left: NewText, right: Part) -> str:
        """What to do where white space behind a text is nothing."""
        where, path = self._places_of_texts.get(left.span, ("in", ""))
        module = path if where == "in" else path.rpartition("/")[0]
        nothing = "white space at the end of an import is nothing"
        ended = _ended(module, _path(right))
        if ended:
            return f"{nothing}, so write a space or a line break {self._behind_module(ended)} in the schema"
        name = module.rpartition("/")[2]
        return f'{nothing}; write <{name} xml:space="preserve"> and a space behind the text'

    def _one_text(self, left: NewText, right: NewText) -> bool:
        """Whether no import stands between two texts, but a tag that is a fault."""
        return self._places_of_texts.get(left.span) == self._places_of_texts.get(right.span)

    @cached_property
    def _places_of_texts(self) -> dict[Span, tuple[str, str]]:
        """Where texts of the prompt are read, by their spans: in, before or behind a module, and its path.

        Those that are read at the end of the prompt are left out.
        """
        found = self._found
        places = (("in", found.ending), ("before", found.before), ("behind", found.after))
        return {
            text.span: (where, path)
            for where, texts_of in places
            for path, texts in texts_of.items()
            for text in texts
        }

    # What the schema brings

    def _import_of(self, left: Part, right: Part) -> Span:
        """The import that brings two parts of the schema together."""
        one, other = _path(left), _path(right)
        path = other if len(other.split("/")) >= len(one.split("/")) and other else one
        node = self._found.picks.get(path)
        return node.name_span if node is not None else self._prompt.schema_span

    def _meeting(self, left: Part, right: Part) -> str:
        """Which parts of the schema meet, each with its line."""
        one, other = _path(left), _path(right)
        begin, end = part_text(right)[:_SHOWN], part_text(left)[-_SHOWN:]
        names = [f"module {quote(one)}", f"module {quote(other)}"]
        if one == other or not one:
            names[0] = f"text {quote(end)}"
        if one == other or not other:
            names[1] = f"text {quote(begin)}"
        lines = [
            "" if node.span == NOWHERE else f" (line {self._schema.lines.line(node.span.start)})"
            for node in (_node(left), _node(right))
        ]
        return f"in this prompt {names[0]}{lines[0]} of the schema stands right before {names[1]}{lines[1]}"

    def _behind(self, left: Part, right: str) -> str:
        """Where in the schema white space belongs to a part, before what stands in the module `right`."""
        ended = _ended(_path(left), right)
        if ended:
            return self._behind_module(ended)
        if isinstance(left, ArgumentText):
            return f"behind the parameter {quote(left.param.name)}"
        return f"behind {quote(part_text(left)[-_SHOWN:])}"

    def _behind_module(self, path: str) -> str:
        """Where in the schema the seam of a module is written; that of the last one is the one before it."""
        module = self._schema.module(path)
        union = self._schema.union_of(path)
        container, index = self._places[id(union or module)]
        last = container.children[index] is _outermost(container, -1)
        if union is not None:
            return f"{'before' if last else 'behind'} the union of {quote(path)}"
        return f"before <module> of {quote(path)}" if last else f"behind </module> of {quote(path)}"

    @cached_property
    def _places(self) -> dict[int, tuple[Any, int]]:
        """The container of each part of the schema, by its identity, and its place there."""
        places: dict[int, tuple[Any, int]] = {}
        pending: list[Any] = [self._schema]
        while pending:
            node = pending.pop()
            for index, child in enumerate(node.children):
                places[id(child)] = node, index
                for inner in child.members if isinstance(child, Union) else (child,):
                    places[id(inner)] = node, index
                    if isinstance(inner, Module | Role):
                        pending.append(inner)
        return places

    def _neighbours(self, left: object, right: object) -> bool:
        """Whether two parts stand side by side in the schema, whatever is imported between the two."""
        places = {id(container): index for container, index in self._outward(left, -1)}
        return any(places.get(id(container)) == index - 1 for container, index in self._outward(right, 0))

    def _outward(self, node: object, end: int) -> list[tuple[Any, int]]:
        """The containers that a part is the first or last of, and the one round them; with its places."""
        found: list[tuple[Any, int]] = []
        while place := self._places.get(id(node)):
            container, index = place
            found.append(place)
            inside = container.children[index] is not _outermost(container, end)
            if inside or not isinstance(container, Module):
                break
            node = container
        return found


def _outermost(container: Any, end: int) -> object:
    """The first or last part of a container, seams left out."""
    children = container.children if end == 0 else reversed(container.children)
    return next(child for child in children if not (isinstance(child, Text) and child.seam))


def _given(part: Part) -> Span | None:
    """The place of an argument that the prompt gives."""
    return part.span if isinstance(part, ArgumentText) and part.given else None


def _node(part: Part) -> Any:
    return (
        part.param if isinstance(part, ArgumentText) else part.node if isinstance(part, SchemaText) else None
    )


def _path(part: Part) -> str:
    return part.module if isinstance(part, ArgumentText | SchemaText) else ""


def _ended(left: str, right: str) -> str:
    """The outermost module that ends between what two modules bring; "" where none ends."""
    one, other = left.split("/") if left else [], right.split("/") if right else []
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    return "/".join(one[: common + 1]) if common < len(one) else ""
