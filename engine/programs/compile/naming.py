"""Creates valid, unique names for modules, and for Python variables of modules."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from unicodedata import normalize

from engine.pml import NAME, RESERVED, ArgumentText, Bound, Module, Param, Schema, Union

_LONGEST: Final = 40


def legible(words: str) -> str:
    """Returns a valid name made of some words; a valid name is only normalised to NFC."""
    words = normalize("NFC", words)
    if NAME.fullmatch(words) and words not in RESERVED:
        return words
    cleaned = "".join(char if NAME.fullmatch(f"_{char}") else "-" for char in words)
    name = re.sub("-+", "-", cleaned).strip("-.")
    if len(name) > _LONGEST:
        name = name[:_LONGEST].rpartition("-")[0] or name[:_LONGEST]
    if not name:
        return "part"
    if not NAME.fullmatch(name):
        name = f"_{name}"
    return f"{name}-part" if name in RESERVED else name


def unique(name: str, taken: dict[str, int], line: int) -> str:
    """Returns the name, with a number if it is already used, and marks it as used."""
    result = name
    if name in taken:
        last, free = 1, 2  # bisects the used numbers
        while f"{name}-{free}" in taken:
            last, free = free, 2 * free
        while free - last > 1:
            middle = (last + free) // 2
            last, free = (middle, free) if f"{name}-{middle}" in taken else (last, middle)
        result = f"{name}-{free}"
    taken[result] = line
    return result


class VariableNames:
    """Assigns a variable to each module, union and parameter of a schema.

    Args:
        schema: the schema.
        taken: names with another meaning.

    Attributes:
        substitutes: the original names of variables with a different spelling.
    """

    def __init__(self, schema: Schema, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._numbers: dict[str, int] = {}  # the last number of each name
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
        """Returns the variable of a node; members of a union have none."""
        return self._nodes[id(node)]

    def values(self, bound: Bound) -> dict[str, Any]:
        """Returns the imports, choices and arguments of one prompt by variable."""
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
        """Yields the arguments by variable, and "" for parameters of whole turns without text."""
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
        """Returns a variable for a name, and records a different spelling."""
        result = self.new(name)
        if result != name:
            self.substitutes[result] = name
        return result

    def new(self, name: str) -> str:
        """Returns a new variable similar to a PML name."""
        base = result = variable(name)
        number = self._numbers.get(base, 1)
        while result in self._taken:
            number += 1
            result = f"{base}_{number}"
        self._numbers[base] = number
        self._taken.add(result)
        return result


def variable(name: str) -> str:
    """Converts a PML name to a Python name, in Python's Unicode normal form."""
    plain = normalize("NFKC", name)
    result = "".join(char if f"_{char}".isidentifier() else "_" for char in plain)
    result = result if result.strip("_") or not plain.strip("_") else "name"
    result = result if result.isidentifier() else f"_{result}"
    own = result.startswith("__") and result.endswith("__")  # such as __name__, which Python uses
    return f"{result}_" if own or keyword.iskeyword(result) or keyword.issoftkeyword(result) else result


def quoted(text: str) -> str:
    """Returns a Python literal, in double quotes if that needs no more escapes."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if literal.startswith("'") and '"' not in text else literal
