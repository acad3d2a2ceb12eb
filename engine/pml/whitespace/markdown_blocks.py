"""Reports Markdown blocks that begin a line only while the module before them is imported.

The line break before a heading may belong to a module. Without the module, the heading follows the text
before it on the same line.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from engine.pml.diagnostics.diagnostic import Reporter, quote
from engine.pml.tree.tree import Module, Param, Role, Schema, Text, Union
from engine.pml.whitespace.joined_text import begins_block
from engine.pml.whitespace.joined_words import meet
from engine.pml.whitespace.schema_places import SchemaPlaces, branches, breaks, first_words, last_words

_Part: TypeAlias = Text | Param
# nearest part that may precede on the same line, by whether it ends with a space
_Open: TypeAlias = dict[bool, _Part]

_SPACED: Final = True


def check_blocks(schema: Schema, report: Reporter) -> None:
    """Reports blocks that lose their line in some prompts (W616), once for each text before them.

    Touching texts without white space are reported as W613.
    """
    _Checker(schema, report).check()


def remedy(left: _Part, right: _Part, places: SchemaPlaces, where: str = "") -> tuple[str, str]:
    """Returns the omitted module between a text of the schema and a block ("" if unknown), and the fix.

    `where` is the place of the fix in words, such as " in the schema".
    """
    gone = places.begins_line(right)[1]
    behind = f"a line break {places.behind(left, places.path(right))}"
    goes_with = places.goes_with(left, right) if isinstance(left, Text) else None
    alone = isinstance(left, Text) and ("\n" in left.text or places.begins_line(left)[0])
    if not alone or goes_with is None:
        return _called(gone), f"write {behind}{where}"
    each = "each module of " if isinstance(goes_with, Union) else ""
    text = quote(last_words(part_words(left)))
    into = f"write {text} into {each}{_called(goes_with)} too{where}"
    return _called(goes_with), f"{into}, or {behind}"


def part_words(part: _Part) -> str:
    """Returns the text of a part of a schema, or a parameter's default."""
    return part.text if isinstance(part, Text) else part.default or ""


def _called(node: Module | Union | None) -> str:
    if node is None:
        return ""
    if isinstance(node, Union):
        return f"the union of {quote(node.members[0].path)}"
    return f"module {quote(node.path)}"


class _Checker:
    """Walks a schema with the parts that may precede on the same line if modules are left out."""

    def __init__(self, schema: Schema, report: Reporter) -> None:
        self._schema = schema
        self._report = report
        self._places = SchemaPlaces(schema)
        self._told: set[int] = set()
        self._left: dict[int, _Open] = {}  # open line after a module and its separator, by identity

    def check(self) -> None:
        nodes = list(branches(self._schema))
        for node in reversed(nodes):
            if isinstance(node, Union):
                self._left[id(node)] = _nearest([self._left[id(member)] for member in node.members])
            else:
                self._left[id(node)] = self._leaves(node)
        before: dict[int, _Open] = {}
        for node in nodes:
            if isinstance(node, Union):
                before.update((id(member), before[id(node)]) for member in node.members)
            else:
                self._walk(node, before)

    def _walk(self, container: Any, before: dict[int, _Open]) -> None:
        """Checks the texts of a container, and records the parts that may precede its modules."""
        line = before.get(id(container), {})
        for child in container.children:
            if isinstance(child, Module | Union):
                before[id(child)] = line
                line = {} if _turns(child) else _nearest([self._left[id(child)], line])
                continue
            if isinstance(child, Role):
                line = {}
                continue
            if line and begins_block(part_words(child)):
                self._judge(line, child)
            line = _behind(child, line)

    def _leaves(self, node: Any) -> _Open:
        line: _Open = {}
        for child in node.children:
            if isinstance(child, Module | Union):
                line = _nearest([self._left[id(child)], line])
            elif isinstance(child, Text | Param) and not (isinstance(child, Text) and child.implied):
                line = _behind(child, line)
        return {} if isinstance(node, Role | Schema) or _turns(node) else line

    def _judge(self, line: _Open, right: _Part) -> None:
        left = line.get(_SPACED)
        if left is None:
            left = line[not _SPACED]
            argument = isinstance(left, Param) or isinstance(right, Param)
            text = part_words(left)
            if text and meet(text, part_words(right), argument=argument):
                return
        if id(left) in self._told or left.span == right.span or not self._places.begins_line(right)[0]:
            return
        self._told.add(id(left))
        gone, mended = remedy(left, right, self._places)
        front = f"parameter {quote(left.name)}" if isinstance(left, Param) else quote(last_words(left.text))
        message = (
            f"{quote(first_words(part_words(right)))} begins a line here, but not if "
            f"{gone or 'the text between'} is left out: it then follows {front}; {mended}"
        )
        self._report.add("W616", message, right.span)


def _behind(part: _Part, line: _Open) -> _Open:
    """Returns the parts that may precede on the line after `part`."""
    if isinstance(part, Param):
        return {not _SPACED: part} if part.default else {**line, not _SPACED: part}
    broken = breaks(part.text)
    if broken:
        return {}
    if broken is None:  # a space, or no text
        return {_SPACED: next(iter(line.values()))} if part.text and line else line
    return {part.text[-1].isspace(): part}


def _nearest(lines: list[_Open]) -> _Open:
    nearest: _Open = {}
    for line in lines:
        for spaced, part in line.items():
            nearest.setdefault(spaced, part)
    return nearest


def _turns(node: Any) -> bool:
    members = node.members if isinstance(node, Union) else (node,)
    return any(isinstance(member, Module) and bool(member.turns()) for member in members)
