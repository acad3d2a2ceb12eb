"""What a bound prompt consists of, in the order in which a model reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from engine.pml.diagnostics.diagnostic import Span
from engine.pml.tree.tree import Param, Role, Text


@dataclass(frozen=True)
class SchemaText:
    """Text of the schema; `module` is the path of the module it stands in, empty for anonymous text."""

    node: Text
    module: str


@dataclass(frozen=True)
class ArgumentText:
    """The place of a parameter: the argument if one is given, else the default, else nothing."""

    param: Param
    module: str
    text: str
    given: bool
    span: Span | None


@dataclass(frozen=True)
class NewText:
    """Text of the prompt; `seam` where it sets a text apart from what is beside it, `implied` if by rule."""

    text: str
    span: Span
    seam: bool = False
    implied: bool = False


@dataclass(frozen=True)
class RoleOpen:
    """The start of a turn; `new` where the prompt adds the turn, `module` the path of what brings it."""

    role: str
    node: Role
    new: bool
    module: str = ""


@dataclass(frozen=True)
class RoleClose:
    """The end of a turn, told like its start."""

    role: str
    node: Role
    new: bool
    module: str = ""


Part: TypeAlias = SchemaText | ArgumentText | NewText | RoleOpen | RoleClose


@dataclass(frozen=True)
class ModuleStart:
    """Where an imported module begins, while it is not settled yet which seams are read."""

    path: str


@dataclass(frozen=True)
class ModuleSeam:
    """The own seam of an imported module, while it is not settled yet whether it is read."""

    path: str
    part: SchemaText


@dataclass(frozen=True)
class ModuleEnd:
    """Where an imported module ends, before its own seam."""

    path: str


def part_text(part: Part) -> str:
    """The text of one part; the borders of turns have none."""
    match part:
        case SchemaText(node):
            return node.text
        case RoleOpen() | RoleClose():
            return ""
    return part.text


def is_seam(part: Part) -> bool:
    """Whether a part is white space that sets others apart."""
    return part.node.seam if isinstance(part, SchemaText) else isinstance(part, NewText) and part.seam


def node_of(part: Part) -> Text | Param | None:
    """The text or parameter of the schema that a part comes from; None of a part of the prompt."""
    if isinstance(part, ArgumentText):
        return part.param
    return part.node if isinstance(part, SchemaText) else None
