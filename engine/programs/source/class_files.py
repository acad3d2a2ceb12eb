"""Classes in a Python file that is only read: Enums, dataclasses, and what others set in their bodies."""

from __future__ import annotations

import ast
import dataclasses
import enum
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from engine.programs.source.constants import UncomputableError
from engine.programs.source.errors import ProgramError
from engine.programs.source.expression_reader import ExpressionReader
from engine.programs.source.expressions import Const
from engine.programs.source.objects import MISSING, Finder, ReadClass, Unknown, attribute_of
from engine.programs.source.scopes import Definition

_EMPTY: Final[dict[Any, Callable[[], Any]]] = {list: list, dict: dict, set: set, tuple: tuple, str: str}
_RUNS: Final = ("__init__", "__new__", "__post_init__", "__getattr__", "__getattribute__")


def found_by(node: ast.expr, look_up: Finder) -> Any:
    """What a name, or a name with attributes, stands for; None where it is not known."""
    try:
        if isinstance(node, ast.Attribute):
            return attribute_of(found_by(node.value, look_up), node.attr)
        return look_up(node.id) if isinstance(node, ast.Name) else None
    except (KeyError, UncomputableError):
        return None


def member_kind(definition: Definition) -> str:
    """What a function is of its class."""
    names = [one.id for one in definition.node.decorator_list if isinstance(one, ast.Name)]
    return "property" if "property" in names else definition.kind


def read_class(
    node: ast.ClassDef,
    reader: ExpressionReader,
    look_up: Finder,
    member: Callable[[Any, ReadClass], Any],
) -> Any:
    """What a class stands for: a real Enum, a `ReadClass`, or why it is not known.

    Args:
        node: its syntax tree.
        reader: reads what its body sets.
        look_up: the value of a name of the file; raises KeyError.
        member: what a function in its body is.
    """
    bases = [found_by(base, look_up) for base in node.bases]
    if any(isinstance(base, type) and issubclass(base, Enum) for base in bases):
        return _enum(node, bases, reader, look_up)
    above = tuple(base for base in bases if isinstance(base, ReadClass))
    named = typing.NamedTuple in bases and not any(isinstance(one, ast.FunctionDef) for one in node.body)
    found = ReadClass(node.name, above, {}, _fields(node, bases, look_up), named)
    if found.fields is not None:
        for base in found.bases:
            found.fields.update(base.fields or {})
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.attributes[name] = member(statement, found)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.attributes[name] = _value(value, found, reader, look_up)
            case ast.AnnAssign(target=ast.Name(id=name), value=given):
                default = MISSING if given is None else _value(given, found, reader, look_up)
                if default is not MISSING:
                    found.attributes[name] = default
                if found.fields is not None and "ClassVar" not in ast.unparse(statement.annotation):
                    found.fields[name] = default
    return found


def _fields(node: ast.ClassDef, bases: list[Any], look_up: Finder) -> dict[str, Any] | None:
    """An empty table for the fields of a dataclass or named tuple; None for other classes."""
    heads = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
    data = any(found_by(head, look_up) is dataclasses.dataclass for head in heads)
    own = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
    if (data and len(heads) == 1) or (typing.NamedTuple in bases and not heads):
        return None if own & set(_RUNS) else {}
    return None


def _value(node: ast.expr, owner: ReadClass, reader: ExpressionReader, look_up: Finder) -> Any:
    """What the body of a class sets a name to."""
    if isinstance(node, ast.Call) and found_by(node.func, look_up) is dataclasses.field:
        options = {one.arg: one.value for one in node.keywords}
        if "default" in options:
            return _value(options["default"], owner, reader, look_up)
        factory = found_by(options["default_factory"], look_up) if "default_factory" in options else None
        made = next((make for kind, make in _EMPTY.items() if kind is factory), None)
        return MISSING if made is None else made()
    names = {name: Const(value) for name, value in owner.attributes.items() if not isinstance(value, Unknown)}
    try:
        found = reader.read(node, names)
    except ProgramError as error:
        return Unknown(f"of {owner.name} is not known, as the file is read and not run: {error.reason}")
    return found.value if isinstance(found, Const) else MISSING


def _enum(node: ast.ClassDef, bases: list[Any], reader: ExpressionReader, look_up: Finder) -> Any:
    """The Enum of a class body that sets names only; a method may change what its members are."""
    line = f"is an Enum (line {node.lineno}) that"
    base, mixed = bases[-1], bases[:-1]
    if not (isinstance(base, type) and issubclass(base, Enum)) or any(one not in (str, int) for one in mixed):
        return Unknown(
            f"{line} is derived from a class that is not known here; derive it from Enum or StrEnum"
        )
    members: dict[str, Any] = {}
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name) if name.startswith("_"):
                return Unknown(f"{line} defines {name}, which would have to be run; leave {name} out")
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not name.startswith("_"):
                if isinstance(value, ast.Call) and found_by(value.func, look_up) is enum.auto:
                    members[name] = enum.auto()
                    continue
                known = {key: Const(one) for key, one in members.items() if not isinstance(one, enum.auto)}
                try:
                    members[name] = reader.constant(value, f"the value of {name}", known)
                except ProgramError as error:
                    return Unknown(f"{line} would have to be run: {error.reason}")
    try:
        make: Any = base
        return make(node.name, members, type=mixed[0]) if mixed else make(node.name, members)
    except (TypeError, ValueError, AttributeError) as error:
        return Unknown(f"{line} cannot be made: {error}; look at its members")
