"""Reads the parameters of a program from annotations and defaults in the source."""

from __future__ import annotations

import ast
import types
import typing
from enum import Enum
from typing import Any, Final, Literal, get_args, get_origin

from engine.pml import NAME
from engine.pml.xml.entities import forbidden_character
from engine.programs.source.constants import UncomputableError
from engine.programs.source.errors import ProgramError
from engine.programs.source.expression_reader import ExpressionReader
from engine.programs.source.expressions import Fault
from engine.programs.source.objects import Finder, ReadClass, Unknown, attribute_of
from engine.programs.source.parameters import (
    MAX_LENGTH,
    Arg,
    Flag,
    Kind,
    NewWords,
    Options,
    Parameter,
    accepts,
    expected,
    short,
)
from engine.programs.source.scopes import Definition

_NUMBERS: Final = (int, float)


class SignatureReader:
    """Reads the parameters of one function. Annotations are not run.

    Args:
        look_up: the value of a name outside the function; raises KeyError.
        fault: makes the error for a place.
        expressions: reads the defaults.
    """

    def __init__(self, look_up: Finder, fault: Fault, expressions: ExpressionReader) -> None:
        self._look_up = look_up
        self._fault = fault
        self._expressions = expressions

    def read(self, definition: Definition) -> tuple[str, tuple[Parameter, ...]]:
        """Returns the name of the recorder, and the parameters after it, without a method's receiver.

        Raises:
            ProgramError: the signature does not fit a schema.
        """
        node = definition.node
        arguments = node.args
        for star in (arguments.vararg, arguments.kwarg):
            if star is not None:
                raise self._fault(star, f"*{star.arg} cannot become parameters; name each of them")
        if arguments.posonlyargs:
            raise self._fault(arguments.posonlyargs[0], "'/' is not supported; remove it")
        self._check_decorators(definition)
        places = arguments.args[1:] if definition.takes_receiver else arguments.args
        if not places:
            own = f"{arguments.args[0].arg}, " if arguments.args else ""
            raise self._fault(
                node, f"{node.name} has no parameter to write with; begin with {node.name}({own}p, …)"
            )
        first, *rest = places
        padding: list[ast.expr | None] = [None] * (len(arguments.args) - len(arguments.defaults))
        defaults = [*padding, *arguments.defaults][len(arguments.args) - len(rest) :] + list(
            arguments.kw_defaults
        )
        if len(arguments.defaults) > len(rest):
            raise self._fault(first, f"{first.arg} writes the text, so it cannot have a default; remove it")
        named = rest + arguments.kwonlyargs
        return first.arg, tuple(
            self._parameter(argument, default) for argument, default in zip(named, defaults, strict=True)
        )

    def _check_decorators(self, definition: Definition) -> None:
        """Checks that `@schema` is above `@classmethod`, which binds the class."""
        if definition.kind == "class":
            first = definition.node.decorator_list[0]
            if isinstance(first, ast.Name) and first.id == "classmethod":
                raise self._fault(first, "the class is unknown here; write @schema above @classmethod")

    def _parameter(self, argument: ast.arg, default: ast.expr | None) -> Parameter:
        if argument.annotation is None:
            message = (
                f"{argument.arg} has no annotation; write {argument.arg}: bool, Arg[5], str, or Literal[…]"
            )
            raise self._fault(argument, message)
        kind = self._kind(argument.arg, argument.annotation)
        if default is None:
            return Parameter(argument.arg, kind, argument.lineno, True)
        value = self._expressions.constant(default, f"the default of {argument.arg}")
        unset = value is None and isinstance(kind, Arg)
        if not unset and not accepts(kind, value):
            message = f"the default of {argument.arg} is {short(value)}; it takes {expected(kind)}"
            raise self._fault(argument, message)
        self._check_characters(argument, value)
        return Parameter(argument.arg, kind, argument.lineno, False, value)

    def _check_characters(self, argument: ast.AST, text: Any) -> None:
        bad = forbidden_character(text) if isinstance(text, str) else None
        if bad is not None:
            raise self._fault(argument, f"documents cannot contain {bad!r}; remove it")

    def _kind(self, name: str, node: ast.expr) -> Kind:
        value = self.annotation(name, node)
        if value is Arg:
            raise self._fault(node, f"{name}: Arg has no length; write {name}: Arg[5]")
        if value is bool:
            return Flag()
        if value is str:
            return NewWords()
        if isinstance(value, Arg):
            return self._check_arg(node, name, value)
        options = _options(value)
        members = get_args(value)
        if options is None and get_origin(value) in (typing.Union, types.UnionType):
            literals = [_options(item) for item in members if item is not types.NoneType]
            if len(literals) == 1 and literals[0] is not None and len(members) == 2:
                options = (*literals[0], None)
        if options is None:
            raise self._unknown(name, node, value)
        for item in options:
            if item is not None and type(item) not in (str, int) and not isinstance(item, Enum):
                raise self._fault(node, f"{name} cannot be {item!r}; a Literal lists text, numbers, or None")
        return Options(tuple(dict.fromkeys(options)))

    def _unknown(self, name: str, node: ast.AST, value: Any = None) -> ProgramError:
        message = (
            f"the annotation of {name} must be bool, Arg[5], str, Literal[…], an Enum, "
            "or one of the last two with | None"
        )
        if value in _NUMBERS:
            message = (
                f"{name} is a number, but a prompt takes text; write {name}: Arg[5], or Literal[1, 2, 3]"
            )
        elif isinstance(value, (type, ReadClass)) and not issubclass(type(value), type(None)):
            kind = value.name if isinstance(value, ReadClass) else value.__name__
            message = f"{message}; instead of a {kind}, make each field a parameter"
        return self._fault(node, message)

    def _check_arg(self, node: ast.AST, name: str, arg: Arg) -> Arg:
        if type(arg.length) is not int or not 1 <= arg.length <= MAX_LENGTH:
            message = f"the length of {name} must be a whole number of tokens from 1 to {MAX_LENGTH}"
            raise self._fault(node, f"{message}; write {name}: Arg[5]")
        pml: Any = name if arg.name is None else arg.name
        if not isinstance(pml, str) or not NAME.fullmatch(pml):
            message = f'{pml!r} cannot name a parameter; write {name}: Arg({arg.length}, name="…")'
            raise self._fault(node, message)
        scaffold: Any = arg.scaffold
        if scaffold is not None and not isinstance(scaffold, str):
            raise self._fault(node, f'the scaffold of {name} must be text; write scaffold="…"')
        self._check_characters(node, arg.scaffold)
        return arg

    def annotation(self, name: str, node: ast.expr) -> Any:
        """Returns the meaning of a parameter's annotation: a type, a form of `typing`, or an `Arg`.

        Raises:
            ProgramError: the annotation is not supported.
        """
        match node:
            case ast.Constant(value=str(text)):
                try:
                    inner = ast.parse(text, mode="eval").body
                except (SyntaxError, ValueError):
                    raise self._unknown(name, node) from None
                for part in ast.walk(inner):
                    ast.copy_location(part, node)
                return self.annotation(name, inner)
            case ast.Constant(value=None):
                return None
            case ast.Name():
                return _aliased(self._named(name, node))
            case ast.Attribute(value=owner, attr=attribute):
                try:
                    return _aliased(attribute_of(self.annotation(name, owner), attribute))
                except UncomputableError as reason:
                    raise self._fault(node, f"the annotation of {name}: {reason}") from None
            case ast.Subscript(value=head, slice=index):
                return self._subscript(name, node, self.annotation(name, head), index)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                pair = [self.annotation(name, side) for side in (left, right)]
                chosen = next((member for member in pair if _options(member) is not None), None)
                if chosen is not None and None in pair:
                    return typing.Optional[chosen]  # noqa: UP045 - built from a value
            case ast.Call(func=head, args=[length], keywords=keywords):
                if self.annotation(name, head) is Arg:
                    return self._arg_call(name, length, keywords)
        raise self._unknown(name, node)

    def _named(self, name: str, node: ast.Name) -> Any:
        try:
            value = self._look_up(node.id)
        except KeyError:
            message = f"the annotation of {name} names {node.id}, which is not defined; import it"
            raise self._fault(node, message) from None
        if isinstance(value, Unknown):
            raise self._fault(node, f"the annotation of {name}: {node.id} {value.reason}")
        return value

    def _subscript(self, name: str, node: ast.expr, head: Any, index: ast.expr) -> Any:
        if head is Arg:
            return Arg(self._constant(name, index))
        if head is typing.Optional:
            return typing.Optional[self.annotation(name, index)]  # noqa: UP045 - built from a value
        if head is Literal:
            items = index.elts if isinstance(index, ast.Tuple) else [index]
            return Literal[tuple(self._constant(name, item) for item in items)]
        raise self._unknown(name, node)

    def _arg_call(self, name: str, length: ast.expr, keywords: list[ast.keyword]) -> Arg:
        values: dict[str, Any] = {}
        for keyword in keywords:
            if keyword.arg not in ("name", "scaffold"):
                raise self._fault(keyword, f"Arg has no option {keyword.arg}; use name or scaffold")
            values[keyword.arg] = self._constant(name, keyword.value)
        return Arg(self._constant(name, length), **values)

    def _constant(self, name: str, node: ast.expr) -> Any:
        return self._expressions.constant(node, f"the annotation of {name}")


def _options(value: Any) -> tuple[Any, ...] | None:
    """Returns the values of a `Literal`, or the members of an Enum; None for another annotation."""
    if get_origin(value) is Literal:
        return get_args(value)
    if isinstance(value, type) and issubclass(value, Enum):
        return tuple(value.__members__.values())
    return None


def _aliased(value: Any) -> Any:
    """Resolves a name from a `type` statement."""
    return value.__value__ if type(value).__name__ == "TypeAliasType" else value
