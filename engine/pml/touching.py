"""Words that touch where modules, arguments and new text meet without white space between them.

Nothing is said of scripts that put no spaces between words.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from engine.pml.diagnostics import Edit, Reporter, Span, quote
from engine.pml.parts import ArgumentText, NewText, Part, RoleClose, RoleOpen, is_seam, part_text
from engine.pml.tree import Module, Role, Schema, Text, Union

_ENDS: Final = frozenset(".,;:!?)]…”»\"'")
_BEGINS: Final = frozenset("#([“„«\"'")
_UNSPACED: Final = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF))
"""Thai and Lao, Burmese, Khmer."""
_SHOWN: Final = 12


def check_schema(schema: Schema, report: Reporter) -> None:
    """Reports where what always or sometimes stands side by side in a schema touches (W613)."""
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        if isinstance(node, Union):
            pending.extend(node.members)
            continue
        pending.extend(child for child in node.children if isinstance(child, Module | Union | Role))
        for left, right in pairwise(node.children):
            if (isinstance(left, Text) and isinstance(right, Text)) or left.span == right.span:
                continue  # what one file includes has one place here, and is reported with that file
            found = next(_met(left, right), None)
            if found is not None:
                place = right.name_span if isinstance(right, Module) else right.span
                _report(report, *found, place, _between(right.span.start))


def check_prompt(parts: Sequence[Part], report: Reporter, source: str) -> None:
    """Reports where text of a prompt, or an argument, touches what is beside it (W613).

    Args:
        parts: as they are read.
        report: takes the faults.
        source: the text of the prompt; empty where it has none.
    """
    last: Part | None = None
    for part in parts:
        if isinstance(part, RoleOpen | RoleClose) or is_seam(part):
            last = None
        elif part_text(part):
            if last is not None:
                _check_pair(last, part, report, source)
            last = part


def _check_pair(left: Part, right: Part, report: Reporter, source: str) -> None:
    one, other = part_text(left), part_text(right)
    if isinstance(left, NewText) and isinstance(right, NewText):
        return
    for argument in (right, left):
        if isinstance(argument, ArgumentText):
            if argument.given and argument.span is not None and _same_kind(one[-1], other[0]):
                _report(report, one, other, argument.span, ())
            return
    if isinstance(right, NewText) and _touch(one, other):
        _report(report, one, other, right.span, _between(right.span.start))
    elif isinstance(left, NewText) and _touch(one, other):
        ends = source[left.span.end :].lstrip().startswith("</")  # there white space is nothing
        _report(report, one, other, left.span, () if ends else _between(left.span.end))


def _met(left: object, right: object) -> Iterator[tuple[str, str]]:
    """The texts that meet between two neighbours of a schema and touch."""
    for one in _edges(left, -1):
        for other in _edges(right, 0):
            if _touch(one, other):
                yield one, other


def _edges(node: object, end: int) -> Iterator[str]:
    """The texts at one end of a node, which no seam follows; what only a prompt decides is left out."""
    nodes = node.members if isinstance(node, Union) else (node,)
    for one in nodes:
        edge = one.children[end] if isinstance(one, Module) and one.children else one
        if isinstance(edge, Text) and not edge.seam and edge.text:
            yield edge.text


def _touch(left: str, right: str) -> bool:
    """Whether two words touch where these texts meet, or a sentence and what begins the next."""
    end, begin = left[-1], right[0]
    if any(map(_unspaced, (end, begin))):
        return False
    return (
        _same_kind(end, begin)
        or (end in _ENDS and begin.isalpha())
        or (begin in _BEGINS and (end.isalnum() or end in _ENDS))
    )


def _same_kind(end: str, begin: str) -> bool:
    """Whether two characters join to one word or one number."""
    if any(map(_unspaced, (end, begin))):
        return False
    return (end.isalpha() and begin.isalpha()) or (end.isdigit() and begin.isdigit())


def _unspaced(character: str) -> bool:
    """Whether a script has no spaces between its words."""
    wide = unicodedata.east_asian_width(character) in "WF"
    return wide or any(first <= ord(character) <= last for first, last in _UNSPACED)


def _between(place: int) -> tuple[Edit, ...]:
    return (Edit(Span(place, place), "\n"),)


def _report(report: Reporter, left: str, right: str, span: Span, fix: tuple[Edit, ...]) -> None:
    words = f"{left[-_SHOWN:]}{right[:_SHOWN]}".replace("\n", " ")
    remedy = (
        "put a space or a line break between them" if fix else "write a space in the schema or the argument"
    )
    message = f"words touch, {quote(words)} is read as one; {remedy}"
    report.add("W613", message, span, "a line break between them" if fix else "", fix)
