"""Resolves a call of another program: the callee, and the expression for each of its parameters."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.pml import ROLES
from engine.programs.compile.statements import Frame, LocalFunction
from engine.programs.source.constants import UncomputableError, has_methods, measure
from engine.programs.source.expression_reader import ExpressionReader
from engine.programs.source.expressions import Const, Expr, Fault, Ref
from engine.programs.source.objects import Bindable, attribute_of
from engine.programs.source.parameters import Arg, NewWords, Parameter, accepts, expected, short
from engine.programs.source.refusals import refused_statement
from engine.programs.source.scopes import Definition


def callee_of(call: ast.Call, frame: Frame) -> LocalFunction | Definition:
    """Returns the program that a statement calls.

    Raises:
        ProgramError: the callee is not a program.
    """
    head, p = ast.unparse(call.func)[:60], frame.recorder
    target: Any = None
    match call.func:
        case ast.Attribute(value=ast.Name(id=name)) if name == p:
            message = f"{head}(…) is not a statement of a program; use {p}.text(…) or with {p}.module(…):"
            if call.func.attr in ("module", "union", *ROLES):
                message = f"{head}(…) encloses its content; write with {head}(…):, and its text below"
            raise frame.fault(call, message)
        case ast.Attribute(value=owner, attr=attribute):
            value = frame.reader.read(owner, frame.names)
            if not isinstance(value, Const) or has_methods(value.value):
                statement = ast.copy_location(ast.Expr(call), call)
                raise frame.fault(call, refused_statement(statement, p))
            try:
                target = attribute_of(value.value, attribute)
            except UncomputableError as reason:
                raise frame.fault(call, str(reason)) from None
        case _:
            target = frame.reader.known(call.func, "the called value", frame.names)
    if isinstance(target, LocalFunction):
        return target
    definition = target.definition if isinstance(target, Bindable) else None
    if isinstance(definition, Definition):
        return definition
    message = f"{head} is not a program, so this call cannot be compiled; add the decorator @schema"
    if target is print:
        message = f"print writes to the terminal; write {p}.text(…)"
    raise frame.fault(call, message)


def bind_call(
    call: ast.Call,
    parameters: tuple[Parameter, ...],
    reader: ExpressionReader,
    names: Mapping[str, Any],
    fault: Fault,
) -> dict[str, Expr]:
    """Returns the expression for every parameter of the called program; the first argument is the recorder.

    Raises:
        ProgramError: an argument is unknown, missing, repeated, or of the wrong kind.
    """
    arguments = _arguments(call, parameters, fault)
    bound: dict[str, Expr] = {}
    for parameter in parameters:
        if parameter.name in arguments:
            node = arguments[parameter.name]
            if isinstance(node, ast.Starred):
                raise fault(node, "* cannot be compiled; write each argument")
            bound[parameter.name] = _given(parameter, node, reader, names, fault)
        elif parameter.required:
            needs = f"{ast.unparse(call.func)} needs {parameter.name}: {expected(parameter.kind)}"
            raise fault(call, f"{needs}; give {parameter.name}=…")
        else:
            bound[parameter.name] = Const(parameter.default)
    return bound


def _arguments(call: ast.Call, parameters: tuple[Parameter, ...], fault: Fault) -> dict[str, ast.expr]:
    """Returns the arguments of a call by parameter name."""
    function, known = ast.unparse(call.func), [parameter.name for parameter in parameters]
    if len(call.args) - 1 > len(known):
        raise fault(call, f"{function} takes {len(known)} arguments after the recorder; remove some")
    values = dict(zip(known, call.args[1:], strict=False))
    for keyword in call.keywords:
        if keyword.arg is None:
            raise fault(keyword, "** cannot be compiled; write each argument")
        if keyword.arg not in known:
            raise fault(keyword, f"{function} has no parameter {keyword.arg}; it has {', '.join(known)}")
        if keyword.arg in values:
            raise fault(keyword, f"{keyword.arg} is given twice; keep one")
        values[keyword.arg] = keyword.value
    return values


def _given(
    parameter: Parameter,
    node: ast.expr,
    reader: ExpressionReader,
    names: Mapping[str, Any],
    fault: Fault,
) -> Expr:
    text = isinstance(parameter.kind, (Arg, NewWords))
    value = reader.read_text(node, names) if text else reader.read(node, names)
    if isinstance(value, Const):
        try:
            measure(value.value)
        except UncomputableError as reason:
            raise fault(node, str(reason)) from None
        unset = value.value is None and isinstance(parameter.kind, Arg)
        if not unset and not accepts(parameter.kind, value.value):
            message = f"{parameter.name} cannot be {short(value.value)}; it takes {expected(parameter.kind)}"
            raise fault(node, message)
    elif isinstance(value, Ref) and isinstance(parameter.kind, Arg):
        name = parameter.kind.name or parameter.name
        return replace(value, slot=parameter.kind, name=name)
    return value
