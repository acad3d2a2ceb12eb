"""Where the parts of a schema stand: their containers, what is beside them, and whether they begin a line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

from engine.pml.diagnostics.diagnostic import quote
from engine.pml.tree.tree import Module, Param, Role, Schema, Text, Union
from engine.pml.whitespace.rules import SPACE

_SHOWN: Final = 24


class SchemaPlaces:
    """Finds what stands round and beside the parts of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def behind(self, node: Text | Param, right: str) -> str:
        """Where in the schema white space belongs to a part, before what stands in the module `right`."""
        ended = module_ended(self.path(node), right)
        if ended:
            return self.behind_module(ended)
        if isinstance(node, Param):
            return f"behind the parameter {quote(node.name)}"
        return f"behind {quote(last_words(node.text))}"

    def behind_module(self, path: str) -> str:
        """Where in the schema the seam of a module is written; that of the last one is the one before it."""
        module = self._schema.module(path)
        union = self._schema.union_of(path)
        container, index = self._places[id(union or module)]
        last = container.children[index] is _outermost(container, -1)
        if union is not None:
            return f"{'before' if last else 'behind'} the union of {quote(path)}"
        return f"before <module> of {quote(path)}" if last else f"behind </module> of {quote(path)}"

    def path(self, node: object) -> str:
        """The path of the module that a part stands in; empty where it stands in none."""
        while place := self._places.get(id(node)):
            node = place[0]
            if isinstance(node, Module):
                return node.path
        return ""

    def neighbours(self, left: object, right: object) -> bool:
        """Whether two parts stand side by side in the schema, whatever is imported between the two."""
        places = {id(container): index for container, index in self._outward(left, -1)}
        return any(places.get(id(container)) == index - 1 for container, index in self._outward(right, 0))

    def begins_line(self, node: object) -> tuple[bool, Module | Union | None]:
        """Whether a part begins a line where nothing is left out, or its turn, and what ends the line before.

        The latter is a module or union behind which a line break stands; None where it is something else.
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
        """The module or union in front of which a text stands, so that it may go with it.

        None where no such module stands behind the text, or none that does not hold `right` as well.
        """
        round_right: set[int] = set()
        node = right
        while place := self._places.get(id(node)):
            round_right.add(id(node))
            node = place[0]
        container, index = self._places[id(left)]
        following = container.children[index + 1 :]
        while True:
            child = next((one for one in following if not (isinstance(one, Text) and one.seam)), None)
            if not isinstance(child, Module | Union):
                return None
            inner = child.members if isinstance(child, Union) else (child,)
            holding = next((one for one in inner if id(one) in round_right), None)
            if holding is None:
                return child
            following = holding.children

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


def branches(schema: Schema) -> Iterator[Any]:
    """The schema and every module, union and turn in it, in the order of the document."""
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        yield node
        below = node.members if isinstance(node, Union) else node.children
        pending.extend(child for child in reversed(below) if isinstance(child, Module | Union | Role))


def module_ended(left: str, right: str) -> str:
    """The outermost module that ends between what two modules bring; "" where none ends."""
    one, other = left.split("/") if left else [], right.split("/") if right else []
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    return "/".join(one[: common + 1]) if common < len(one) else ""


def last_words(text: str) -> str:
    """The end of the last line of a text, as messages show it."""
    line = text.rstrip(SPACE).rpartition("\n")[2]
    return line if len(line) <= _SHOWN else f"…{line[-_SHOWN:].lstrip()}"


def first_words(text: str) -> str:
    """The beginning of the first line of a text, as messages show it."""
    line = text.strip(SPACE).partition("\n")[0]
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN].rstrip()}…"


def breaks(text: str) -> bool | None:
    """Whether a text ends with a line break; None where it is white space without one."""
    body = text.rstrip(SPACE)
    return True if "\n" in text[len(body) :] else False if body else None


def _ends_line(node: Any) -> bool | None:
    """Whether a part ends a line where nothing in it is left out; None where it has no text."""
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
    """The first or last part of a container, seams left out."""
    children = container.children if end == 0 else reversed(container.children)
    return next(child for child in children if not (isinstance(child, Text) and child.seam))
