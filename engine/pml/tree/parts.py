"""Defines the parts of a bound prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from engine.pml.diagnostics.diagnostic import Span
from engine.pml.tree.tree import Param, Role, Text


@dataclass(frozen=True)
class SchemaText:
    """Text of the schema; `module` is the path of its module, or empty for anonymous text."""

    node: Text
    module: str


@dataclass(frozen=True)
class ArgumentText:
    """The value of a parameter: its argument, else its default, else an empty text."""

    param: Param
    module: str
    text: str
    given: bool
    span: Span | None


@dataclass(frozen=True)
class NewText:
    """Text of the prompt; `seam` if it separates texts, `implied` if a rule adds it."""

    text: str
    span: Span
    seam: bool = False
    implied: bool = False


@dataclass(frozen=True)
class RoleOpen:
    """The start of a turn; `new` if the prompt adds it, else `module` is the path of its module."""

    role: str
    node: Role
    new: bool
    module: str = ""


@dataclass(frozen=True)
class RoleClose:
    """The end of a turn; fields as in `RoleOpen`."""

    role: str
    node: Role
    new: bool
    module: str = ""


Part: TypeAlias = SchemaText | ArgumentText | NewText | RoleOpen | RoleClose


@dataclass(frozen=True)
class ModuleStart:
    """The start of an imported module; used until `binding` chooses the separators."""

    path: str


@dataclass(frozen=True)
class ModuleSeam:
    """The separator after an imported module; used until `binding` chooses the separators."""

    path: str
    part: SchemaText


@dataclass(frozen=True)
class ModuleEnd:
    """The end of an imported module, before its separator."""

    path: str


def part_text(part: Part) -> str:
    """Returns the text of one part; turn boundaries have none."""
    match part:
        case SchemaText(node):
            return node.text
        case RoleOpen() | RoleClose():
            return ""
    return part.text


def is_seam(part: Part) -> bool:
    """Whether a part is white space that separates others."""
    return part.node.seam if isinstance(part, SchemaText) else isinstance(part, NewText) and part.seam


def node_of(part: Part) -> Text | Param | None:
    """Returns the schema's text or parameter behind a part, or None for text of the prompt."""
    if isinstance(part, ArgumentText):
        return part.param
    return part.node if isinstance(part, SchemaText) else None
