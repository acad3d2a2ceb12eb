"""Reports words that touch in a schema: modules, defaults and included text without white space between."""

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

_Key: TypeAlias = tuple[Any, bool]  # end or beginning of a text, and whether it is a default
# possible first or last texts of a part of a schema; the nearest for each key
_Edge: TypeAlias = dict[_Key, str]

_SHOWN: Final = 12
_INCLUDE: Final = "<include"


def check_schema(schema: Schema, report: Reporter, source: str) -> None:
    """Reports texts that may touch in some prompts (W613), once for each place to fix."""
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
            for place, other, left_text, right in _meetings(node.children, first, last, source):
                _report(node.children, place, other, (left_text, right), report)


def meet(left: str, right: str, *, argument: bool) -> bool:
    """Whether two non-empty texts touch; `argument` if one is a parameter's value."""
    return (joined if argument else touch)(end_of(left), begin_of(right))


def words_of(left: str, right: str) -> str:
    """Returns the touching words for a message."""
    return quote(f"{left[-_SHOWN:]}{right[:_SHOWN]}".replace("\n", " "))


def _edges(children: Iterable[Any], known: dict[int, _Edge], judge: Callable[[str], Flag]) -> Iterator[_Edge]:
    """Yields the possible first texts of children, or the last ones if the children are reversed."""
    for child in children:
        if isinstance(child, Module | Union):
            yield known[id(child)]
        elif not (isinstance(child, Text) and child.implied):
            yield _own(child, judge)
            return


def _own(node: object, judge: Callable[[str], Flag]) -> _Edge:
    """Returns the edge of a text or a parameter's default; empty for separators."""
    if isinstance(node, Text):
        return {(judge(node.text), False): node.text} if node.text and not node.seam else {}
    return {(judge(node.default), True): node.default} if isinstance(node, Param) and node.default else {}


def _nearest(edges: Iterable[_Edge]) -> _Edge:
    nearest: _Edge = {}
    for edge in edges:
        for key, text in edge.items():
            nearest.setdefault(key, text)
    return nearest


def _meetings(
    children: tuple[Any, ...], first: dict[int, _Edge], last: dict[int, _Edge], source: str
) -> list[tuple[int, int, str, str]]:
    """Returns which children touch a later one, as two indexes and the texts: the nearest for each child.

    Only modules lie between the two, which a prompt may leave out.
    """
    meetings: list[tuple[int, int, str, str]] = []
    behind: dict[_Key, tuple[int, str]] = {}
    for place in range(len(children) - 1, -1, -1):
        child, identity = children[place], id(children[place])
        ends = {} if not behind else last[identity] if identity in last else _own(child, end_of)
        near = ends and [
            (place, other, left, right)
            for key, left in ends.items()
            for other_key, (other, right) in behind.items()
            if _keys_meet(key, other_key) and _apart(children, place, other, source)
        ]
        if near:
            meetings.append(min(near, key=operator.itemgetter(1)))
        optional = isinstance(child, Module | Union)
        begins = first[identity] if identity in first else _own(child, begin_of)
        own = {key: (place, text) for key, text in begins.items()}
        behind = {**behind, **own} if optional else own
    return meetings[::-1]


@cache
def _keys_meet(one: _Key, two: _Key) -> bool:
    end, begin = one[0], two[0]
    assert isinstance(end, End)
    assert isinstance(begin, Begin)
    return joined(end, begin) if one[1] or two[1] else touch(end, begin)


def _apart(children: tuple[Any, ...], place: int, other: int, source: str) -> bool:
    """Whether two children are not a single text of one file.

    Included texts of one file share one place and are reported in that file. Adjacent texts are one text of
    the author unless one of them is included.
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
            f"words run together: {words}, if the modules between them are left out; put a space "
            "or a line break before these modules"
        )
        report.add("W613", message, span)
        return
    fix, hint = beside(right.span.start, *texts)
    report.add("W613", f"words run together: {words}; put {hint}", span, hint, fix)


def beside(place: int, left: str, right: str) -> tuple[tuple[Edit, ...], str]:
    """Returns the fix that separates two texts at a place, and its hint."""
    space = space_between(left, right)
    hint = "a space between them" if space == " " else "a line break between them"
    return (Edit(Span(place, place), space),), hint
