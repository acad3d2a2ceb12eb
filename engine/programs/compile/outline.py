"""A compiled program: the tree from which its schema and every prompt of it are built."""

from __future__ import annotations

from dataclasses import dataclass

from engine.pml.tree.tree import RoleName
from engine.programs.source.expressions import Expr
from engine.programs.source.parameters import Parameter


@dataclass(frozen=True)
class Say:
    """Text: constants and parameters one after another."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Seam:
    """White space that sets the text before it apart from what follows, where both are read."""

    text: str


@dataclass(frozen=True)
class ModuleNode:
    """A module.

    Attributes:
        name: its name, unique where it stands.
        condition: when a prompt imports it, provided that no earlier member of its union is imported.
        body: what it holds; for a module from a file, its text.
        cache: False where it is never stored.
        src: the file its text comes from.
        seam: what sets it apart from what follows; empty for nothing.
    """

    name: str
    condition: Expr
    body: tuple[Node, ...]
    cache: bool = True
    src: str | None = None
    seam: str = ""


@dataclass(frozen=True)
class UnionNode:
    """A union: a prompt imports the first member whose condition holds."""

    members: tuple[ModuleNode, ...]
    scaffold: str | None = None


@dataclass(frozen=True)
class Turn:
    """A turn of the conversation in the schema."""

    role: RoleName
    body: tuple[Node, ...]


Node = Say | Seam | ModuleNode | UnionNode | Turn


@dataclass(frozen=True)
class NewTurn:
    """Text that only the prompt holds: a turn of its own, or with no role the end of what is open."""

    role: RoleName | None
    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Compiled:
    """A program without its Python.

    Attributes:
        name: name of the schema.
        parameters: what a caller gives.
        body: what the schema holds.
        tail: the new text at the end of a prompt.
        scaffolds: modules that are encoded together, as paths.
        opened: the turn in which text stands that is in no turn; None where it stands in none.
        system: the text of the system turn that the docstring gives; None without one.
    """

    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Node, ...]
    tail: tuple[NewTurn, ...]
    scaffolds: tuple[tuple[str, ...], ...]
    opened: RoleName | None
    system: str | None
