"""Reads calls in expressions: methods of texts, pure functions, and functions over constants."""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Protocol

from engine.programs.source.constants import UncomputableError, call_method, has_methods
from engine.programs.source.expressions import Const, Expr, Fault, first_parameter
from engine.programs.source.functions import Function, Work, bind_function, returned
from engine.programs.source.objects import Bindable, Finder, Method, ReadClass, attribute_of, build_record
from engine.programs.source.pure_functions import call_function, is_pure
from engine.programs.source.scopes import Definition, definition_of

MAX_CALLS: Final = 40  # depth of calls between functions over constants


class Reader(Protocol):
    """Reads expressions in the arguments of a call."""

    work: Work
    depth: int

    def read(self, node: ast.expr, names: Mapping[str, Any]) -> Expr:
        """Returns the expression for a syntax tree."""

    def known(self, node: ast.expr, what: str, names: Mapping[str, Any]) -> Any:
        """Returns the value of an expression without parameters."""

    def items(self, node: ast.expr, names: Mapping[str, Any]) -> list[Any]:
        """Returns the items of a constant."""

    def deeper(self, look_up: Finder, fault: Fault) -> Reader:
        """Returns a reader for a called function."""


def read_call(reader: Reader, node: ast.Call, names: Mapping[str, Any]) -> Expr:
    """Returns the result of a call in an expression.

    Raises:
        UncomputableError: the call would have to run.
        ProgramError: an argument cannot be compiled.
    """
    words = ast.unparse(node.func)[:60]
    if not isinstance(node.func, ast.Attribute):
        target = reader.known(node.func, "the called value", names)
        return _called(reader, node, target, words, names)
    owner = reader.read(node.func.value, names)
    if not isinstance(owner, Const):
        raise UncomputableError(
            f"{first_parameter(owner)} is known only in a prompt, so {words}(…) is unknown here; "
            "compute it before calling the program"
        )
    if has_methods(owner.value):
        arguments, options = _arguments(reader, node, words, names)
        reader.work.budget.spend(owner.value)
        result = call_method(owner.value, node.func.attr, arguments, options)
        return Const(reader.work.budget.computed(result))
    return _called(reader, node, attribute_of(owner.value, node.func.attr), words, names)


def read_property(reader: Reader, found: Method) -> Expr:
    """Returns the value of a property.

    Raises:
        UncomputableError: it does more than return one expression.
        ProgramError: that expression cannot be compiled.
    """
    return _returned(reader, found, [], {})


def _called(reader: Reader, node: ast.Call, target: Any, words: str, names: Mapping[str, Any]) -> Expr:
    if is_pure(target):
        arguments, options = _arguments(reader, node, words, names)
        return Const(reader.work.budget.computed(call_function(target, arguments, options)))
    match target:
        case Function() | types.FunctionType() | Definition() | Method():
            positional: list[Expr] = []
            for argument in node.args:
                if isinstance(argument, ast.Starred):
                    positional.extend(Const(item) for item in reader.items(argument.value, names))
                else:
                    positional.append(reader.read(argument, names))
            _check_keywords(node)
            named = {str(argument.arg): reader.read(argument.value, names) for argument in node.keywords}
            return _returned(reader, target, positional, named)
        case Bindable():
            message = f"{words} is a program, which writes text and returns nothing"
            raise UncomputableError(f"{message}; call it on a separate line, with p first")
        case ReadClass() if reader.work.builds:
            return Const(build_record(target, *_arguments(reader, node, words, names)))
        case type() if issubclass(target, Enum):
            arguments, _ = _arguments(reader, node, words, names)
            for member in target.__members__.values():
                if arguments and member._value_ == arguments[0]:
                    return Const(member)
    if target is print:
        raise UncomputableError("print writes to the terminal; write the text with p.text(…)")
    raise UncomputableError(
        f"{words}(…) would have to run, but compiling runs nothing; "
        "compute it above the function and use the name"
    )


def _arguments(
    reader: Reader, node: ast.Call, words: str, names: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    label = f"an argument of {words}(…)"
    _check_keywords(node)
    named = {str(argument.arg): reader.known(argument.value, label, names) for argument in node.keywords}
    positional: list[Any] = []
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            positional.extend(reader.items(argument.value, names))
        else:
            positional.append(reader.known(argument, label, names))
    reader.work.budget.spend(*positional, *named.values())
    return positional, named


def _check_keywords(node: ast.Call) -> None:
    if any(keyword.arg is None for keyword in node.keywords):
        raise UncomputableError("** cannot be compiled; write each argument")


def _returned(reader: Reader, target: Any, positional: list[Expr], named: dict[str, Expr]) -> Expr:
    """Returns the result of a function with a single `return`."""
    if isinstance(target, Method):
        positional = [Const(target.receiver), *positional]
        target = target.function
    function = target if isinstance(target, Function) else _function(reader.work, target)
    if reader.depth >= MAX_CALLS:
        raise UncomputableError(
            f"functions call one another more than {MAX_CALLS} deep here; write the value"
        )
    value = returned(function)
    inner = reader.deeper(function.look_up, function.fault)
    bound = bind_function(function, positional, named, lambda default: inner.read(default, function.names))
    return inner.read(value, {**function.names, **bound})


def _function(work: Work, target: Any) -> Function:
    definition = target if isinstance(target, Definition) else work.definitions.get(target)
    if definition is None:
        definition = work.definitions[target] = definition_of(target)
    return Function(definition.node, {}, definition.look_up, definition.fault, definition.waits)
