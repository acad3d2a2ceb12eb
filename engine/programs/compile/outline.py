"""The tree of a compiled program, from which its schema and prompts are built."""

from __future__ import annotations

from dataclasses import dataclass

from engine.pml.tree.tree import RoleName
from engine.programs.source.expressions import Expr
from engine.programs.source.parameters import Parameter


@dataclass(frozen=True)
class Say:
    """Text: a sequence of constants and parameters."""

    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Seam:
    """White space between the text before it and the next text, read only if both are."""

    text: str


@dataclass(frozen=True)
class ModuleNode:
    """A module.

    Attributes:
        name: its name, unique among its siblings.
        condition: whether a prompt imports it, unless it imports an earlier member of its union.
        body: its content; for a module with `src`, the file's text.
        cache: False if it is never stored.
        src: the file of its text.
        seam: the separator after it; may be empty.
    """

    name: str
    condition: Expr
    body: tuple[Node, ...]
    cache: bool = True
    src: str | None = None
    seam: str = ""


@dataclass(frozen=True)
class UnionNode:
    """A union: a prompt imports the first member with a true condition."""

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
    """Text that only the prompt has: a separate turn, or without a role the end of the open one."""

    role: RoleName | None
    parts: tuple[Expr, ...]


@dataclass(frozen=True)
class Compiled:
    """A program, independent of Python.

    Attributes:
        name: name of the schema.
        parameters: the arguments of a call.
        body: the content of the schema.
        tail: the new text at the end of a prompt.
        scaffolds: modules that are encoded together, as paths.
        opened: the default turn of text, or None.
        system: the text of the system turn (the docstring), or None.
    """

    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Node, ...]
    tail: tuple[NewTurn, ...]
    scaffolds: tuple[tuple[str, ...], ...]
    opened: RoleName | None
    system: str | None
