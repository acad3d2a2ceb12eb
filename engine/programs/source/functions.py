"""Functions over constants: a program may call them where all they do is to return one expression."""

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
    """What compiling one program has used.

    Attributes:
        budget: what it may still cost.
        definitions: the functions whose source was looked for.
        builds: whether a call of a dataclass makes an instance, as at the top of a file that is only read.
    """

    budget: Budget = field(default_factory=Budget)
    definitions: dict[types.FunctionType, Definition] = field(default_factory=dict)
    builds: bool = False


@dataclass(frozen=True, eq=False)
class Function:
    """A function and what it sees.

    Attributes:
        node: its syntax tree.
        names: what the names of the functions round it stand for.
        look_up: the value of a name outside of these; raises KeyError.
        fault: makes the error for a place in its file.
        waits: whether it is `async`.
    """

    node: ast.FunctionDef
    names: Mapping[str, Any]
    look_up: Finder
    fault: Fault
    waits: bool = False


def returned(function: Function) -> ast.expr:
    """The expression that a function returns.

    Raises:
        UncomputableError: it does more than that.
    """
    name, body = function.node.name, function.node.body
    if ast.get_docstring(function.node, clean=False) is not None:
        body = body[1:]
    match body:
        case [ast.Return(value=ast.expr() as value)] if not function.waits:
            return value
    if function.waits:
        raise UncomputableError(f"{name} is async, and nothing is waited for while compiling; write def")
    raise UncomputableError(
        f"{name} does more than to return one expression, so it would have to be run; let it be one return, "
        "or compute its value above the function"
    )


def bind_function(
    function: Function,
    positional: list[Expr],
    named: Mapping[str, Expr],
    read_default: Callable[[ast.expr], Expr],
) -> dict[str, Expr]:
    """What the parameters of a function stand for in a call.

    Args:
        function: the function.
        positional: what is given by place.
        named: what is given by name.
        read_default: reads a default in the function's file.

    Raises:
        UncomputableError: the function takes other arguments.
    """
    arguments, name = function.node.args, function.node.name
    if arguments.vararg or arguments.kwarg:
        raise UncomputableError(f"{name} takes any arguments, which cannot be compiled; name each of them")
    places = [*arguments.posonlyargs, *arguments.args]
    known = [one.arg for one in (*places, *arguments.kwonlyargs)]
    bound = dict(zip((one.arg for one in places), positional, strict=False))
    wrong = [one for one in named if one not in known or one in bound]
    if len(positional) > len(places) or wrong:
        raise UncomputableError(f"{name} takes {', '.join(known) or 'nothing'}; give each once")
    bound.update(named)
    defaults = dict(zip((one.arg for one in reversed(places)), reversed(arguments.defaults), strict=False))
    by_name = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    defaults.update({one.arg: value for one, value in by_name if value is not None})
    for one in known:
        if one not in bound:
            if one not in defaults:
                raise UncomputableError(f"{name} needs {one}; give it")
            bound[one] = read_default(defaults[one])
        value = bound[one]
        if isinstance(value, Const) and isinstance(value.value, Stream):
            raise UncomputableError("this can be gone through once only; write list(…) round it")
    return bound
