"""Python values that are not plain: classes, their instances, and their methods.

Attributes are read from storage; properties, `__getattr__` and constructors are never run.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from engine.programs.source.constants import UncomputableError

MISSING: Final = object()  # a missing attribute, or a missing default


@dataclass(frozen=True)
class Unknown:
    """A name with an unknown value, because its file is not run.

    Attributes:
        reason: the reason and the fix, as the end of a sentence that begins with the name.
    """

    reason: str


@dataclass(frozen=True)
class Unset:
    """A local name without a value.

    Attributes:
        reason: the reason and the fix, as the end of a sentence that begins with the name.
    """

    reason: str


@dataclass(frozen=True)
class Method:
    """A function of a class, with the object for its first argument.

    Attributes:
        function: the function, or its definition if its file is not run.
        receiver: the object.
        computed: whether it is a property.
    """

    function: Any
    receiver: Any
    computed: bool = False


class Bindable:
    """A program in a class, which can become a method.

    Attributes:
        definition: the source of its function.
    """

    definition: Any

    def of(self, receiver: Any) -> Any:
        """Returns this program as a method of an object."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class ReadClass:
    """A class in a file that is not run.

    Attributes:
        name: its name.
        bases: its base classes in such files.
        attributes: the values set in its body, by name.
        fields: the fields of a dataclass in order, with their defaults or MISSING; None for another class.
        named: whether its instances are named tuples.
    """

    name: str
    bases: tuple[ReadClass, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] | None = None
    named: bool = False

    def find(self, name: str) -> Any:
        """Returns the value set in its body or that of a base, else MISSING."""
        for kind in (self, *self.bases):
            value = kind.attributes.get(name, MISSING) if kind is self else kind.find(name)
            if value is not MISSING:
                return value
        return MISSING


@dataclass(frozen=True, eq=False)
class Defaults:
    """Any object of a class; only values set in the class are known.

    Attributes:
        kind: the class.
    """

    kind: type | ReadClass


@dataclass(frozen=True, eq=False)
class Record:
    """An instance of a dataclass in a file that is not run.

    Attributes:
        kind: its class.
        values: its fields.
    """

    kind: ReadClass
    values: Mapping[str, Any]


def build_record(kind: ReadClass, arguments: list[Any], options: Mapping[str, Any]) -> Any:
    """Returns the instance from a call of a dataclass or named tuple.

    Raises:
        UncomputableError: the class is of another kind, or the arguments do not match.
    """
    fields = kind.fields
    if fields is None:
        raise UncomputableError(f"{kind.name}(…) would have to run; make {kind.name} a dataclass")
    values = dict(zip(fields, arguments, strict=False)) | dict(options)
    for name, default in fields.items():
        values.setdefault(name, default)
    wrong = [name for name in values if name not in fields]
    missing = [name for name, value in values.items() if value is MISSING]
    if len(arguments) > len(fields) or wrong or missing:
        raise UncomputableError(f"{kind.name} takes {', '.join(fields)}; pass each once")
    if kind.named:
        return namedtuple(kind.name, list(fields), module="__main__")(**values)
    return Record(kind, values)


def attribute_of(owner: Any, name: str) -> Any:
    """Returns the value of `owner.name`.

    Raises:
        UncomputableError: there is no such attribute, or it would have to run.
    """
    value: Any = MISSING
    match owner:
        case types.ModuleType():
            value = vars(owner).get(name, MISSING)
        case Record():
            value = owner.values.get(name, MISSING)
            if value is MISSING:
                value = _bound(owner.kind.find(name), owner, owner.kind)
        case ReadClass():
            value = _bound(owner.find(name), MISSING, owner)
        case Defaults(kind):
            stored = (
                kind.find(name)
                if isinstance(kind, ReadClass)
                else inspect.getattr_static(kind, name, MISSING)
            )
            slot = isinstance(stored, types.MemberDescriptorType)
            value = MISSING if slot else _bound(stored, owner, kind)
        case Enum() if name in ("name", "value"):
            value = owner._name_ if name == "name" else owner._value_
        case type() if issubclass(owner, Enum) and name in owner.__members__:
            value = owner.__members__[name]
        case type():
            value = _bound(inspect.getattr_static(owner, name, MISSING), MISSING, owner)
        case _ if type(owner).__module__.startswith("engine.programs."):
            raise UncomputableError(f"a function has no .{name} here; call it, or write the value")
        case _:
            value = _of_instance(owner, name)
    if isinstance(value, Unknown):
        raise UncomputableError(f"{name} {value.reason}")
    if value is MISSING:
        raise UncomputableError(_missing(owner, name))
    return value


def _missing(owner: Any, name: str) -> str:
    if isinstance(owner, types.ModuleType):
        return f"{owner.__name__} has no {name}; check the spelling"
    if isinstance(owner, Defaults):
        message = f"{class_name(owner.kind)} sets no value for {name}, only its objects do"
        return f"{message}; add a default to the class, or use the program of an object"
    if isinstance(owner, (type, ReadClass)):
        return f"{class_name(owner)} sets no {name}; set it in the class, or check the spelling"
    kind = owner.kind.name if isinstance(owner, Record) else type(owner).__name__
    return f"{name} is not a constant of this {kind}; set it in its class, or check the spelling"


def _of_instance(owner: Any, name: str) -> Any:
    kind = type(owner)
    stored = inspect.getattr_static(kind, name, MISSING)
    if isinstance(stored, property):
        return _bound(stored, owner, kind)
    if isinstance(stored, types.MemberDescriptorType):
        try:
            return stored.__get__(owner, kind)
        except AttributeError:
            return MISSING
    if isinstance(owner, tuple) and name in getattr(kind, "_fields", ()):
        return tuple.__getitem__(owner, kind._fields.index(name))
    try:
        own = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        own = {}
    return own[name] if name in own else _bound(stored, owner, kind)


def _bound(found: Any, instance: Any, kind: Any) -> Any:
    """Returns a class attribute as seen from an instance, or from the class if `instance` is MISSING."""
    match found:
        case staticmethod():
            return found.__func__
        case classmethod():
            return Method(found.__func__, kind)
        case types.FunctionType():
            return found if instance is MISSING else Method(found, instance)
        case property() if instance is not MISSING and found.fget is not None:
            return Method(found.fget, instance, True)
        case Bindable():
            return found.of(kind if instance is MISSING else instance)
        case ReadFunction(definition, "class"):
            return Method(definition, kind)
        case ReadFunction(definition, "property") if instance is not MISSING:
            return Method(definition, instance, True)
        case ReadFunction(definition, place) if place != "property":
            return definition if instance is MISSING or place == "static" else Method(definition, instance)
    if found is MISSING or isinstance(found, (Unknown, type, ReadClass, Enum)):
        return found
    if isinstance(found, (property, ReadFunction)) or hasattr(type(found), "__get__"):
        return Unknown("would have to run; write its value into the class")
    return found


@dataclass(frozen=True)
class ReadFunction:
    """A function of a class that is not run.

    Attributes:
        definition: its source.
        kind: `method`, `class`, `static`, or `property`.
    """

    definition: Any
    kind: str


def class_name(kind: type | ReadClass) -> str:
    """Returns the name of a class."""
    return kind.name if isinstance(kind, ReadClass) else kind.__name__


def assigned_names(statements: list[Any]) -> dict[str, int]:
    """Returns the names that statements set, with the first line; inner functions are ignored."""
    lines: dict[str, int] = {}
    pending: list[Any] = list(reversed(statements))
    inner = (ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)
    while pending:
        node = pending.pop()
        name, below = _sets(node)
        if name:
            lines.setdefault(name, getattr(node, "lineno", 0))
        if below and not isinstance(node, inner):
            pending.extend(reversed(list(ast.iter_child_nodes(node))))
    return lines


def _sets(node: Any) -> tuple[str, bool]:
    """Returns the name that a node sets, and whether its children may set more."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name, False
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return name, False
        case ast.alias(name=name, asname=other):
            return other or name.partition(".")[0], False
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return name, True
        case ast.ExceptHandler(name=str(name)):
            return name, True
    return "", True


Finder = Callable[[str], Any]  # returns the value of a name outside a function; raises KeyError
