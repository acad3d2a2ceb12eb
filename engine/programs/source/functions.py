"""Functions over constants, which a program may call if they only return one expression."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.programs.source.constants import Budget, Stream, UncomputableError
from engine.programs.source.expressions import Const, Expr, Fault
from engine.programs.source.objects import Finder
from engine.programs.source.scopes import Definition


@dataclass
class Work:
    """The state of compiling one program.

    Attributes:
        budget: the remaining cost.
        definitions: the functions with known source.
        builds: whether a call of a dataclass makes an instance, as at the top of a file that is not run.
    """

    budget: Budget = field(default_factory=Budget)
    definitions: dict[types.FunctionType, Definition] = field(default_factory=dict)
    builds: bool = False


@dataclass(frozen=True, eq=False)
class Function:
    """A function and its scope.

    Attributes:
        node: its syntax tree.
        names: the values of names in enclosing functions.
        look_up: the value of any other name; raises KeyError.
        fault: makes the error for a place in its file.
        waits: whether it is `async`.
    """

    node: ast.FunctionDef
    names: Mapping[str, Any]
    look_up: Finder
    fault: Fault
    waits: bool = False


def returned(function: Function) -> ast.expr:
    """Returns the expression that a function returns.

    Raises:
        UncomputableError: the function has other statements.
    """
    name, body = function.node.name, function.node.body
    if ast.get_docstring(function.node, clean=False) is not None:
        body = body[1:]
    match body:
        case [ast.Return(value=ast.expr() as value)] if not function.waits:
            return value
    if function.waits:
        raise UncomputableError(f"{name} is async, which cannot be compiled; write def")
    raise UncomputableError(
        f"{name} does more than return one expression, so it would have to run; make it one return, "
        "or compute its value above the function"
    )


def bind_function(
    function: Function,
    positional: list[Expr],
    named: Mapping[str, Expr],
    read_default: Callable[[ast.expr], Expr],
) -> dict[str, Expr]:
    """Returns the values of a function's parameters in a call; `read_default` reads a default in its file.

    Raises:
        UncomputableError: the arguments do not match.
    """
    arguments, name = function.node.args, function.node.name
    if arguments.vararg or arguments.kwarg:
        raise UncomputableError(f"{name} takes any arguments, which cannot be compiled; name each argument")
    places = [*arguments.posonlyargs, *arguments.args]
    known = [key.arg for key in (*places, *arguments.kwonlyargs)]
    bound = dict(zip((key.arg for key in places), positional, strict=False))
    wrong = [key for key in named if key not in known or key in bound]
    if len(positional) > len(places) or wrong:
        raise UncomputableError(f"{name} takes {', '.join(known) or 'nothing'}; pass each once")
    bound.update(named)
    defaults = dict(zip((key.arg for key in reversed(places)), reversed(arguments.defaults), strict=False))
    by_name = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    defaults.update({key.arg: value for key, value in by_name if value is not None})
    for key in known:
        if key not in bound:
            if key not in defaults:
                raise UncomputableError(f"{name} needs {key}; pass it")
            bound[key] = read_default(defaults[key])
        value = bound[key]
        if isinstance(value, Const) and isinstance(value.value, Stream):
            raise UncomputableError("this can be iterated only once; wrap it in list(…)")
    return bound
