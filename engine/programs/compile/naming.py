"""Names: of modules from Python, and of Python's variables from modules; legible, valid and unique."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from unicodedata import normalize

from engine.pml import NAME, RESERVED, ArgumentText, Bound, Module, Param, Schema, Union

_LONGEST: Final = 40


def legible(words: str) -> str:
    """A valid name from some words; a valid name stays as it is, in the form that keyboards write."""
    words = normalize("NFC", words)
    if NAME.fullmatch(words) and words not in RESERVED:
        return words
    kept = "".join(one if NAME.fullmatch(f"_{one}") else "-" for one in words)
    name = re.sub("-+", "-", kept).strip("-.")
    if len(name) > _LONGEST:
        name = name[:_LONGEST].rpartition("-")[0] or name[:_LONGEST]
    if not name:
        return "part"
    if not NAME.fullmatch(name):
        name = f"_{name}"
    return f"{name}-part" if name in RESERVED else name


def unique(name: str, taken: dict[str, int], line: int) -> str:
    """The name, numbered where another module has it already; it is then taken."""
    found = name
    if name in taken:
        last, free = 1, 2  # of numbers that are taken and free, without trying all between
        while f"{name}-{free}" in taken:
            last, free = free, 2 * free
        while free - last > 1:
            middle = (last + free) // 2
            last, free = (middle, free) if f"{name}-{middle}" in taken else (last, middle)
        found = f"{name}-{free}"
    taken[found] = line
    return found


class VariableNames:
    """The variables that stand for the modules, unions and parameters of a schema, each with its own name.

    Args:
        schema: the schema.
        taken: names that mean something else already.

    Attributes:
        substitutes: the variables that are spelled in another way than what they stand for, with its name.
    """

    def __init__(self, schema: Schema, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}  # the last one given to a name
        self.substitutes: dict[str, str] = {}
        self._nodes: dict[int, str] = {}
        firsts: dict[tuple[str, str], str] = {}
        pending: list[tuple[Any, str, str]] = [(schema, "", "")]
        while pending:
            node, above, path = pending.pop()
            children: tuple[Any, ...] = ()
            if isinstance(node, Module):
                if node.path not in schema.index.union_of:
                    self._nodes[id(node)] = self.named(node.name)
                above, path = variable(node.name), node.path
                children = node.children
            elif isinstance(node, Union):
                self._nodes[id(node)] = self.new(f"{above}_choice" if above else "choice")
                children = node.members
            elif isinstance(node, Param):
                first = firsts.get((path, node.name)) if node.repeats else None
                self._nodes[id(node)] = firsts[path, node.name] = first or self.named(node.name)
            else:
                children = getattr(node, "children", ())
            pending.extend((child, above, path) for child in reversed(children))

    def of(self, node: Module | Union | Param) -> str:
        """The variable of a node of the schema; a member of a union has none of its own."""
        return self._nodes[id(node)]

    def values(self, bound: Bound) -> dict[str, Any]:
        """What is imported, chosen and given in one prompt, by the names of the variables."""
        values: dict[str, Any] = {}
        for path in bound.imports:
            union, module = bound.schema.union_of(path), bound.schema.module(path)
            if union is not None:
                values[self.of(union)] = path.rpartition("/")[2]
            elif module is not None:
                values[self.of(module)] = True
        values.update(self._arguments(bound))
        return values

    def _arguments(self, bound: Bound) -> Iterator[tuple[str, str]]:
        """The arguments by their variables, and "" for what leaves a whole turn without text."""
        read = set()
        for part in bound.parts:
            if isinstance(part, ArgumentText):
                read.add(self.of(part.param))
                if part.given:
                    yield self.of(part.param), part.text
        for path in bound.imports:
            module = bound.schema.module(path)
            for param in module.params() if module else ():
                if param.default and self.of(param) not in read:
                    yield self.of(param), ""

    def named(self, name: str) -> str:
        """A variable for what has this name, noted where it is spelled in another way."""
        found = self.new(name)
        if found != name:
            self.substitutes[found] = name
        return found

    def new(self, name: str) -> str:
        """A variable like a name of PML, and unlike all others."""
        base = found = variable(name)
        number = self._numbers.get(base, 1)
        while found in self._taken:
            number += 1
            found = f"{base}_{number}"
        self._numbers[base] = number
        self._taken.add(found)
        return found


def variable(name: str) -> str:
    """A name of PML as a name of Python, which reads its own names in one form of Unicode."""
    plain = normalize("NFKC", name)
    found = "".join(one if f"_{one}".isidentifier() else "_" for one in plain)
    found = found if found.strip("_") or not plain.strip("_") else "name"
    found = found if found.isidentifier() else f"_{found}"
    own = found.startswith("__") and found.endswith("__")  # __name__ and its like mean something to Python
    return f"{found}_" if own or keyword.iskeyword(found) or keyword.issoftkeyword(found) else found


def quoted(text: str) -> str:
    """A Python literal, in double quotes where that needs no more escapes."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if literal.startswith("'") and '"' not in text else literal
