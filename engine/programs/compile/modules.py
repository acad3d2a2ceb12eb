"""Reads the name, options, file and cases of a module or union in a program."""

from __future__ import annotations

import ast
from typing import Any, cast

from engine.pml import NAME, RESERVED
from engine.pml.parse.sources import SourceError, Sources
from engine.pml.xml.names import NAME_RULE
from engine.programs.compile.naming import legible, unique
from engine.programs.compile.outline import Node, Say, Turn
from engine.programs.compile.statements import Branch, Frame, line_of
from engine.programs.source.expressions import Comparison, Const, Expr, Logic, describe, references


def options_of(node: ast.With, frame: Frame, known: tuple[str, ...]) -> dict[str, Any]:
    """Returns the arguments of `p.module(…)` or `p.union(…)`; only a module's name may be positional.

    Raises:
        ProgramError: an argument is unknown, repeated, or not constant.
    """
    call = cast(ast.Call, node.items[0].context_expr)
    options: dict[str, Any] = {}
    if len(call.args) > (1 if "name" in known else 0):
        raise frame.fault(call, f"pass {', '.join(known)} by keyword")
    pairs = [("name", arg) for arg in call.args] + [(arg.arg or "**", arg.value) for arg in call.keywords]
    for key, value in pairs:
        if key not in known or key in options:
            raise frame.fault(value, f"{key} is not an option here; use {', '.join(known)}")
        options[key] = frame.reader.constant(value, key, frame.names)
    if "name" in known and "name" not in options:
        raise frame.fault(call, f'the module has no name; write {frame.recorder}.module("…")')
    return options


def module_name(given: Any, words: str, node: ast.AST, frame: Frame) -> str:
    """Returns the name of a module, made of `words` if none is given, and marks it as used.

    Raises:
        ProgramError: the given name is invalid or already used.
    """
    if given is None:
        return unique(legible(words), frame.taken, line_of(node))
    if not isinstance(given, str) or not NAME.fullmatch(given):
        raise frame.fault(node, f"{given!r} cannot name a module: {NAME_RULE}")
    if given in RESERVED:
        raise frame.fault(node, f"{given!r} is a PML element; use another name")
    if given in frame.taken:
        line = frame.taken[given]
        message = f"{given!r} already names the module in line {line}; use another name"
        if line == line_of(node):
            message = f"{given!r} names a module in each round of the loop; make the name depend on the round"
        raise frame.fault(node, message)
    frame.taken[given] = line_of(node)
    return given


def included(src: Any, body: list[ast.stmt], node: ast.AST, frame: Frame, files: Sources) -> tuple[Node, ...]:
    """Returns the content of a module with `src`.

    Raises:
        ProgramError: it has more content than `p.include()`, or the file is not readable.
    """
    match body:
        case [ast.Expr(value=ast.Call(func=ast.Attribute(ast.Name(name), "include"), args=[], keywords=[]))]:
            if name == frame.recorder and isinstance(src, str):
                try:
                    text = files.read(src, frame.definition.base)
                except SourceError as error:
                    raise frame.fault(node, str(error)) from None
                return (Say((Const(text),)),) if text else ()
    p = frame.recorder
    raise frame.fault(node, f"a module with src has the text of that file; write {p}.include() in it")


def begins_with_new_words(node: ast.With, frame: Frame) -> bool:
    """Whether a turn begins with text of any length, so that the prompt adds the whole turn."""
    match node.body[0]:
        case ast.Expr(value=ast.Call(func=ast.Attribute(ast.Name(name), "text"), args=[first, *_])):
            if name == frame.recorder and not isinstance(first, ast.Starred):
                reference = next(references(frame.reader.read_text(first, frame.names)), None)
                return reference is not None and reference.arg is None
    return False


def branches_of(node: ast.Match, subject: Expr, frame: Frame) -> tuple[Branch, ...]:
    """Returns the cases of a `match`.

    Raises:
        ProgramError: a pattern is more than a value.
    """
    branches = []
    for case in node.cases:
        condition, name = _pattern(case.pattern, subject, frame)
        if case.guard is not None:
            guard = frame.reader.read_condition(case.guard, frame.names)
            name = f"{name}-and-{describe(guard)}"
            condition = _both(condition, guard)
        branches.append(Branch(case.pattern, None, list(case.body), condition, name))
    return tuple(branches)


def _both(first: Expr, second: Expr) -> Expr:
    for side, other in ((first, second), (second, first)):
        if isinstance(side, Const):
            return other if side.value else side
    return Logic("and", (first, second))


def _pattern(node: ast.pattern, subject: Expr, frame: Frame) -> tuple[Expr, str]:
    """Returns the condition of a pattern, and the words for its module's name."""
    match node:
        case ast.MatchValue(value=value):
            constant = frame.reader.constant(value, "the value of a case", frame.names)
            return _compared("==", subject, constant, node, frame)
        case ast.MatchSingleton(value=constant):
            return _compared("is", subject, constant, node, frame)
        case ast.MatchOr(patterns=patterns):
            read = [_pattern(item, subject, frame) for item in patterns]
            words = "-or-".join(name for _, name in read)
            if all(isinstance(item, Const) for item, _ in read):
                return Const(any(isinstance(item, Const) and item.value for item, _ in read)), words
            return Logic("or", tuple(item for item, _ in read)), words
        case ast.MatchAs(pattern=None, name=None):
            return Const(True), "otherwise"
    raise frame.fault(node, "a case must be a value, several values with |, or _")


def _compared(word: str, subject: Expr, constant: Any, node: ast.pattern, frame: Frame) -> tuple[Expr, str]:
    comparison = Comparison(word, subject, Const(constant))
    return frame.reader.settle(node, comparison), describe(comparison)


def require_turns_alone(body: tuple[Node, ...], node: ast.AST, frame: Frame) -> None:
    """Checks that a module with whole turns has no other content.

    Raises:
        ProgramError: it has other content.
    """
    turns = sum(isinstance(item, Turn) for item in body)
    if turns and turns < len(body):
        p = frame.recorder
        raise frame.fault(
            node,
            f"whole turns and other content depend on this; write all of it under with {p}.user():",
        )
