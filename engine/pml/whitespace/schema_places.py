"""Locates the parts of a schema: their containers, their neighbours, and whether they begin a line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from engine.pml.diagnostics.diagnostic import quote
from engine.pml.tree.tree import Module, Param, Role, Schema, Text, Union
from engine.pml.whitespace.rules import SPACE

_SHOWN: Final = 24


class SchemaPlaces:
    """Finds the containers and neighbours of the parts of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def behind(self, node: Text | Param, right: str) -> str:
        """Describes the place for white space after a part and before text of the module `right`."""
        ended = module_ended(self.path(node), right)
        if ended:
            return self.behind_module(ended)
        if isinstance(node, Param):
            return f"after the parameter {quote(node.name)}"
        return f"after {quote(last_words(node.text))}"

    def behind_module(self, path: str) -> str:
        """Describes the place of a module's separator; the last module uses the one before it."""
        module = self._schema.module(path)
        union = self._schema.union_of(path)
        container, index = self._places[id(union or module)]
        last = container.children[index] is _outermost(container, -1)
        if union is not None:
            return f"{'before' if last else 'after'} the union of {quote(path)}"
        return f"before <module> of {quote(path)}" if last else f"after </module> of {quote(path)}"

    def path(self, node: object) -> str:
        """Returns the path of a part's module, or ""."""
        while place := self._places.get(id(node)):
            node = place[0]
            if isinstance(node, Module):
                return node.path
        return ""

    def neighbours(self, left: object, right: object) -> bool:
        """Whether two parts are adjacent in the schema without any import between them."""
        places = {id(container): index for container, index in self._outward(left, -1)}
        return any(places.get(id(container)) == index - 1 for container, index in self._outward(right, 0))

    def begins_line(self, node: object) -> tuple[bool, Module | Union | None]:
        """Whether a part begins a line or turn if no module is left out, and what ends the line before.

        The second value is the module or union with the line break; None for anything else.
        """
        while place := self._places.get(id(node)):
            container, index = place
            for before in reversed(container.children[:index]):
                broken = _ends_line(before)
                if broken is not None:
                    return broken, before if broken and isinstance(before, Module | Union) else None
            if not isinstance(container, Module):
                break
            node = container
        return True, None

    def goes_with(self, left: object, right: object) -> Module | Union | None:
        """Returns the module or union that directly follows a text, so that the text may move into it.

        None if no module follows, or if each one also contains `right`.
        """
        round_right: set[int] = set()
        node = right
        while place := self._places.get(id(node)):
            round_right.add(id(node))
            node = place[0]
        container, index = self._places[id(left)]
        following = container.children[index + 1 :]
        while True:
            child = next((item for item in following if not (isinstance(item, Text) and item.seam)), None)
            if not isinstance(child, Module | Union):
                return None
            inner = child.members if isinstance(child, Union) else (child,)
            holding = next((item for item in inner if id(item) in round_right), None)
            if holding is None:
                return child
            following = holding.children

    @cached_property
    def _places(self) -> dict[int, tuple[Any, int]]:
        """The container and index of each part of the schema, by identity."""
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

    def _outward(self, node: object, end: int) -> list[tuple[Any, int]]:
        """Returns the containers that a part begins or ends, and the next outer one, with its indexes."""
        containers: list[tuple[Any, int]] = []
        while place := self._places.get(id(node)):
            container, index = place
            containers.append(place)
            inside = container.children[index] is not _outermost(container, end)
            if inside or not isinstance(container, Module):
                break
            node = container
        return containers


def branches(schema: Schema) -> Iterator[Any]:
    """Yields the schema and every module, union and turn in it, in document order."""
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        yield node
        below = node.members if isinstance(node, Union) else node.children
        pending.extend(child for child in reversed(below) if isinstance(child, Module | Union | Role))


def module_ended(left: str, right: str) -> str:
    """Returns the outermost module that ends between the texts of two modules, or ""."""
    first, other = left.split("/") if left else [], right.split("/") if right else []
    common = 0
    while common < min(len(first), len(other)) and first[common] == other[common]:
        common += 1
    return "/".join(first[: common + 1]) if common < len(first) else ""


def last_words(text: str) -> str:
    """Returns the end of a text's last line, for messages."""
    line = text.rstrip(SPACE).rpartition("\n")[2]
    return line if len(line) <= _SHOWN else f"…{line[-_SHOWN:].lstrip()}"


def first_words(text: str) -> str:
    """Returns the beginning of a text's first line, for messages."""
    line = text.strip(SPACE).partition("\n")[0]
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN].rstrip()}…"


def breaks(text: str) -> bool | None:
    """Whether a text ends with a line break; None for white space without one."""
    body = text.rstrip(SPACE)
    return True if "\n" in text[len(body) :] else False if body else None


def _ends_line(node: Any) -> bool | None:
    """Whether a part with all its modules ends a line; None without text."""
    if isinstance(node, Text):
        ended = breaks(node.text)
        return False if ended is None and node.seam else ended
    if isinstance(node, Union):
        ends = [ended for ended in map(_ends_line, node.members) if ended is not None]
        return any(ends) if ends else None
    if isinstance(node, Role):
        return True
    if not isinstance(node, Module) or not node.children:
        return None if isinstance(node, Module) else False
    last = next((child for child in reversed(node.children) if not getattr(child, "implied", False)), None)
    return _ends_line(last) if isinstance(last, Text | Role) else False


def _outermost(container: Any, end: int) -> object:
    """Returns the first or last part of a container, without separators."""
    children = container.children if end == 0 else reversed(container.children)
    return next(child for child in children if not (isinstance(child, Text) and child.seam))
