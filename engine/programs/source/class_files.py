"""Reads classes in a file that is not run: Enums, dataclasses, and attributes of other classes."""

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
    """Returns the value of a dotted name, or None if it is unknown."""
    try:
        if isinstance(node, ast.Attribute):
            return attribute_of(found_by(node.value, look_up), node.attr)
        return look_up(node.id) if isinstance(node, ast.Name) else None
    except (KeyError, UncomputableError):
        return None


def member_kind(definition: Definition) -> str:
    """Returns the kind of a function in its class."""
    names = [decorator.id for decorator in definition.node.decorator_list if isinstance(decorator, ast.Name)]
    return "property" if "property" in names else definition.kind


def read_class(
    node: ast.ClassDef,
    reader: ExpressionReader,
    look_up: Finder,
    member: Callable[[Any, ReadClass], Any],
) -> Any:
    """Returns an Enum, a `ReadClass`, or an `Unknown`; `member` reads a function in the body."""
    bases = [found_by(base, look_up) for base in node.bases]
    if any(isinstance(base, type) and issubclass(base, Enum) for base in bases):
        return _enum(node, bases, reader, look_up)
    above = tuple(base for base in bases if isinstance(base, ReadClass))
    named = typing.NamedTuple in bases and not any(isinstance(item, ast.FunctionDef) for item in node.body)
    result = ReadClass(node.name, above, {}, _fields(node, bases, look_up), named)
    if result.fields is not None:
        for base in result.bases:
            result.fields.update(base.fields or {})
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                result.attributes[name] = member(statement, result)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                result.attributes[name] = _value(value, result, reader, look_up)
            case ast.AnnAssign(target=ast.Name(id=name), value=given):
                default = MISSING if given is None else _value(given, result, reader, look_up)
                if default is not MISSING:
                    result.attributes[name] = default
                if result.fields is not None and "ClassVar" not in ast.unparse(statement.annotation):
                    result.fields[name] = default
    return result


def _fields(node: ast.ClassDef, bases: list[Any], look_up: Finder) -> dict[str, Any] | None:
    """Returns an empty table for the fields of a dataclass or named tuple; None for other classes."""
    heads = [item.func if isinstance(item, ast.Call) else item for item in node.decorator_list]
    data = any(found_by(head, look_up) is dataclasses.dataclass for head in heads)
    own = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    if (data and len(heads) == 1) or (typing.NamedTuple in bases and not heads):
        return None if own & set(_RUNS) else {}
    return None


def _value(node: ast.expr, owner: ReadClass, reader: ExpressionReader, look_up: Finder) -> Any:
    if isinstance(node, ast.Call) and found_by(node.func, look_up) is dataclasses.field:
        options = {option.arg: option.value for option in node.keywords}
        if "default" in options:
            return _value(options["default"], owner, reader, look_up)
        factory = found_by(options["default_factory"], look_up) if "default_factory" in options else None
        made = next((make for kind, make in _EMPTY.items() if kind is factory), None)
        return MISSING if made is None else made()
    names = {name: Const(value) for name, value in owner.attributes.items() if not isinstance(value, Unknown)}
    try:
        result = reader.read(node, names)
    except ProgramError as error:
        return Unknown(f"of {owner.name} is unknown, because the file is not run: {error.reason}")
    return result.value if isinstance(result, Const) else MISSING


def _enum(node: ast.ClassDef, bases: list[Any], reader: ExpressionReader, look_up: Finder) -> Any:
    """Returns the Enum of a class body that only sets names; methods might change its members."""
    line = f"is an Enum (line {node.lineno}) that"
    base, mixed = bases[-1], bases[:-1]
    if not (isinstance(base, type) and issubclass(base, Enum)) or any(one not in (str, int) for one in mixed):
        return Unknown(f"{line} has an unknown base class; use Enum or StrEnum")
    members: dict[str, Any] = {}
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name) if name.startswith("_"):
                return Unknown(f"{line} defines {name}, which would have to run; remove {name}")
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not name.startswith("_"):
                if isinstance(value, ast.Call) and found_by(value.func, look_up) is enum.auto:
                    members[name] = enum.auto()
                    continue
                known = {key: Const(one) for key, one in members.items() if not isinstance(one, enum.auto)}
                try:
                    members[name] = reader.constant(value, f"the value of {name}", known)
                except ProgramError as error:
                    return Unknown(f"{line} would have to run: {error.reason}")
    try:
        make: Any = base
        return make(node.name, members, type=mixed[0]) if mixed else make(node.name, members)
    except (TypeError, ValueError, AttributeError) as error:
        return Unknown(f"{line} is invalid: {error}; check its members")
