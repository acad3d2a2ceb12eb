"""Words that touch in a schema: modules, defaults and included text that meet without white space."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from enum import Flag
from functools import cache
from typing import Any, Final, TypeAlias

from engine.pml.diagnostics.diagnostic import Edit, Reporter, Span, quote
from engine.pml.tree.tree import Module, Param, Role, Schema, Text, Union
from engine.pml.whitespace.joined_text import Begin, End, begin_of, end_of, joined, space_between, touch
from engine.pml.whitespace.schema_places import branches

_Key: TypeAlias = tuple[Any, bool]
"""What a text begins or ends with, and whether it is the default of a parameter."""
_Edge: TypeAlias = dict[_Key, str]
"""What may be read first, or last, of a part of a schema: a text for each key, the nearest."""

_SHOWN: Final = 12
_INCLUDE: Final = "<include"


def check_schema(schema: Schema, report: Reporter, source: str) -> None:
    """Reports where what some prompts read side by side touches (W613), once for each place to mend it.

    Args:
        schema: the schema, or what is included in one.
        report: takes the faults.
        source: the text that the spans count in.
    """
    nodes = list(branches(schema))
    first: dict[int, _Edge] = {}
    last: dict[int, _Edge] = {}
    for node in reversed(nodes):
        first[id(node)], last[id(node)] = {}, {}
        if isinstance(node, Union):
            first[id(node)] = _nearest(first[id(member)] for member in node.members)
            last[id(node)] = _nearest(last[id(member)] for member in node.members)
        elif not isinstance(node, Role):
            first[id(node)] = _nearest(_edges(node.children, first, begin_of))
            last[id(node)] = _nearest(_edges(node.children[::-1], last, end_of))
    for node in nodes:
        if not isinstance(node, Union):
            for place, other, left, right in _meetings(node.children, first, last, source):
                _report(node.children, place, other, (left, right), report)


def meet(left: str, right: str, *, argument: bool) -> bool:
    """Whether two texts, none of them empty, touch; `argument` where one stands for a parameter."""
    return (joined if argument else touch)(end_of(left), begin_of(right))


def words_of(left: str, right: str) -> str:
    """The words that touch, as a message shows them."""
    return quote(f"{left[-_SHOWN:]}{right[:_SHOWN]}".replace("\n", " "))


def _edges(children: Iterable[Any], known: dict[int, _Edge], judge: Callable[[str], Flag]) -> Iterator[_Edge]:
    """What may be read first of children; what they end with, if they are turned round."""
    for child in children:
        if isinstance(child, Module | Union):
            yield known[id(child)]
        elif not (isinstance(child, Text) and child.implied):
            yield _own(child, judge)
            return


def _own(node: object, judge: Callable[[str], Flag]) -> _Edge:
    """The edge of a text or a parameter; none of what only a prompt decides, or sets apart."""
    if isinstance(node, Param) and node.default:
        return {(judge(node.default), True): node.default}
    return {(judge(node.text), False): node.text} if isinstance(node, Text) and _says(node) else {}


def _says(text: Text) -> bool:
    return bool(text.text) and not text.seam


def _nearest(edges: Iterable[_Edge]) -> _Edge:
    found: _Edge = {}
    for edge in edges:
        for key, text in edge.items():
            found.setdefault(key, text)
    return found


def _meetings(
    children: tuple[Any, ...], first: dict[int, _Edge], last: dict[int, _Edge], source: str
) -> list[tuple[int, int, str, str]]:
    """Which children touch a later one, as two places among them and the texts: for each child the nearest.

    Between the two stand modules only, which a prompt may leave out.
    """
    found: list[tuple[int, int, str, str]] = []
    behind: dict[_Key, tuple[int, str]] = {}
    for place in range(len(children) - 1, -1, -1):
        child = children[place]
        ends = last[id(child)] if id(child) in last else _own(child, end_of)
        near = behind and [
            (place, other, left, right)
            for one, left in ends.items()
            for two, (other, right) in behind.items()
            if _keys_meet(one, two) and _apart(children, place, other, source)
        ]
        if near:
            found.append(min(near, key=operator.itemgetter(1)))
        optional = isinstance(child, Module | Union)
        begins = first[id(child)] if id(child) in first else _own(child, begin_of)
        here = {key: (place, text) for key, text in begins.items()}
        behind = {**behind, **here} if optional else here
    return found[::-1]


@cache
def _keys_meet(one: _Key, two: _Key) -> bool:
    end, begin = one[0], two[0]
    assert isinstance(end, End)
    assert isinstance(begin, Begin)
    return joined(end, begin) if one[1] or two[1] else touch(end, begin)


def _apart(children: tuple[Any, ...], place: int, other: int, source: str) -> bool:
    """Whether two children are no single text of one file.

    What one file includes has one place here, and is reported with that file. Texts beside each other are one
    text that its author wrote, unless one of them is included.
    """
    left, right = children[place], children[other]
    if left.span == right.span:
        return False
    if other > place + 1 or not (isinstance(left, Text) and isinstance(right, Text)):
        return True
    return any(source.startswith(_INCLUDE, text.span.start) for text in (left, right))


def _report(
    children: tuple[Any, ...], place: int, other: int, texts: tuple[str, str], report: Reporter
) -> None:
    right, words = children[other], words_of(*texts)
    span = right.name_span if isinstance(right, Module) else right.span
    if other > place + 1:
        message = (
            f"words touch, {words} is read as one where what stands between them is left out; put a space "
            "or a line break before what may be left out"
        )
        report.add("W613", message, span)
        return
    fix, hint = beside(right.span.start, *texts)
    report.add("W613", f"words touch, {words} is read as one; put {hint}", span, hint, fix)


def beside(place: int, left: str, right: str) -> tuple[tuple[Edit, ...], str]:
    """The fix that sets two texts apart at a place, and its hint."""
    space = space_between(left, right)
    hint = "a space between them" if space == " " else "a line break between them"
    return (Edit(Span(place, place), space),), hint
