"""What a name of Python stands for where it is no plain value: classes, their instances, their methods.

Attributes are looked up where they are stored; no property, no `__getattr__` and no constructor is run.
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

MISSING: Final = object()
"""Stands for an attribute that is not there, and for a default that is not given."""


@dataclass(frozen=True)
class Unknown:
    """A name whose value is not known, as its file is read and not run.

    Attributes:
        reason: why, and what to do; the end of a sentence that begins with the name.
    """

    reason: str


@dataclass(frozen=True)
class Unset:
    """A name of a function that has no value where it is used.

    Attributes:
        reason: why, and what to do; the end of a sentence that begins with the name.
    """

    reason: str


@dataclass(frozen=True)
class Method:
    """A function found in a class, with the object that is its first argument.

    Attributes:
        function: the function, or its definition where its file is only read.
        receiver: the object.
        computed: whether it is a property, which is called by being named.
    """

    function: Any
    receiver: Any
    computed: bool = False


class Bindable:
    """What can be a method: a program in a class.

    Attributes:
        definition: where its function is.
    """

    definition: Any

    def of(self, receiver: Any) -> Any:
        """The same as a method of this object."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class ReadClass:
    """A class in a file that is only read.

    Attributes:
        name: its name.
        bases: the classes it is derived from that were read too.
        attributes: what its body sets, by name.
        fields: the fields of a dataclass in order, with their defaults or MISSING; None for another class.
        named: whether its instances are tuples with names.
    """

    name: str
    bases: tuple[ReadClass, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] | None = None
    named: bool = False

    def find(self, name: str) -> Any:
        """What its body or that of a base sets, else MISSING."""
        for one in (self, *self.bases):
            found = one.attributes.get(name, MISSING) if one is self else one.find(name)
            if found is not MISSING:
                return found
        return MISSING


@dataclass(frozen=True, eq=False)
class Defaults:
    """Any object of a class: of it is known what the class sets.

    Attributes:
        kind: the class.
    """

    kind: type | ReadClass


@dataclass(frozen=True, eq=False)
class Record:
    """An instance of a dataclass in a file that is only read.

    Attributes:
        kind: its class.
        values: its fields.
    """

    kind: ReadClass
    values: Mapping[str, Any]


def build_record(kind: ReadClass, arguments: list[Any], options: Mapping[str, Any]) -> Any:
    """The instance that a call of a dataclass or named tuple gives.

    Raises:
        UncomputableError: the class is none, or takes other arguments.
    """
    fields = kind.fields
    if fields is None:
        raise UncomputableError(f"{kind.name}(…) would have to be run; make {kind.name} a dataclass")
    values = dict(zip(fields, arguments, strict=False)) | dict(options)
    for name, default in fields.items():
        values.setdefault(name, default)
    wrong = [name for name in values if name not in fields]
    missing = [name for name, value in values.items() if value is MISSING]
    if len(arguments) > len(fields) or wrong or missing:
        raise UncomputableError(f"{kind.name} takes {', '.join(fields)}; give each once")
    if kind.named:
        return namedtuple(kind.name, list(fields), module="__main__")(**values)
    return Record(kind, values)


def attribute_of(owner: Any, name: str) -> Any:
    """What `owner.name` stands for.

    Raises:
        UncomputableError: it is not there, or would have to be run.
    """
    found: Any = MISSING
    match owner:
        case types.ModuleType():
            found = vars(owner).get(name, MISSING)
        case Record():
            found = owner.values.get(name, MISSING)
            if found is MISSING:
                found = _bound(owner.kind.find(name), owner, owner.kind)
        case ReadClass():
            found = _bound(owner.find(name), MISSING, owner)
        case Defaults(kind):
            held = (
                kind.find(name)
                if isinstance(kind, ReadClass)
                else inspect.getattr_static(kind, name, MISSING)
            )
            slot = isinstance(held, types.MemberDescriptorType)
            found = MISSING if slot else _bound(held, owner, kind)
        case Enum() if name in ("name", "value"):
            found = owner._name_ if name == "name" else owner._value_
        case type() if issubclass(owner, Enum) and name in owner.__members__:
            found = owner.__members__[name]
        case type():
            found = _bound(inspect.getattr_static(owner, name, MISSING), MISSING, owner)
        case _ if type(owner).__module__.startswith("engine.programs."):
            raise UncomputableError(f"a function has no .{name} here; call it, or write the value")
        case _:
            found = _of_instance(owner, name)
    if isinstance(found, Unknown):
        raise UncomputableError(f"{name} {found.reason}")
    if found is MISSING:
        raise UncomputableError(_missing(owner, name))
    return found


def _missing(owner: Any, name: str) -> str:
    if isinstance(owner, types.ModuleType):
        return f"{owner.__name__} has no {name}; look at its spelling"
    if isinstance(owner, Defaults):
        message = f"{class_name(owner.kind)} has no value for {name}, which each of its objects has"
        return f"{message}; give it a default in the class, or take the program of an object"
    if isinstance(owner, (type, ReadClass)):
        return f"{class_name(owner)} sets no {name}; set it in the class, or look at its spelling"
    kind = owner.kind.name if isinstance(owner, Record) else type(owner).__name__
    return f"{name} is no constant of this {kind}; set it in its class, or look at its spelling"


def _of_instance(owner: Any, name: str) -> Any:
    kind = type(owner)
    held = inspect.getattr_static(kind, name, MISSING)
    if isinstance(held, property):
        return _bound(held, owner, kind)
    if isinstance(held, types.MemberDescriptorType):
        try:
            return held.__get__(owner, kind)
        except AttributeError:
            return MISSING
    if isinstance(owner, tuple) and name in getattr(kind, "_fields", ()):
        return tuple.__getitem__(owner, kind._fields.index(name))
    try:
        own = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        own = {}
    return own[name] if name in own else _bound(held, owner, kind)


def _bound(found: Any, instance: Any, kind: Any) -> Any:
    """What is stored in a class, as it is found through an instance (MISSING for none) or the class."""
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
        return Unknown("would have to be run to be known; write its value into the class")
    return found


@dataclass(frozen=True)
class ReadFunction:
    """A function in the body of a class that is only read.

    Attributes:
        definition: where it is.
        kind: `method`, `class`, `static`, or `property`.
    """

    definition: Any
    kind: str


def class_name(kind: type | ReadClass) -> str:
    """The name of a class."""
    return kind.name if isinstance(kind, ReadClass) else kind.__name__


def assigned_names(statements: list[Any]) -> dict[str, int]:
    """The names that statements set, and the line of the first place; inner functions set their own."""
    found: dict[str, int] = {}
    pending: list[Any] = list(reversed(statements))
    inner = (ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)
    while pending:
        node = pending.pop()
        name, below = _sets(node)
        if name:
            found.setdefault(name, getattr(node, "lineno", 0))
        if below and not isinstance(node, inner):
            pending.extend(reversed(list(ast.iter_child_nodes(node))))
    return found


def _sets(node: Any) -> tuple[str, bool]:
    """The name that a node itself sets, and whether nodes below it may set more."""
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


Finder = Callable[[str], Any]
"""The value of a name outside of a function; raises KeyError."""
