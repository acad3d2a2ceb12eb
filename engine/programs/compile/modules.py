"""What a program says of a module or union: its name, its options, its file, the cases that choose it."""

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
    """The arguments of `p.module(…)` or `p.union(…)`; only the name of a module goes without its key.

    Raises:
        ProgramError: one of them is unknown, given twice, or no constant.
    """
    call = cast(ast.Call, node.items[0].context_expr)
    options: dict[str, Any] = {}
    if len(call.args) > (1 if "name" in known else 0):
        raise frame.fault(call, f"give {', '.join(known)} by their names")
    pairs = [("name", one) for one in call.args] + [(one.arg or "**", one.value) for one in call.keywords]
    for key, value in pairs:
        if key not in known or key in options:
            raise frame.fault(value, f"{key} is not to be given here; there is {', '.join(known)}")
        options[key] = frame.reader.constant(value, key, frame.names)
    if "name" in known and "name" not in options:
        raise frame.fault(call, f'the module has no name; write {frame.recorder}.module("…")')
    return options


def module_name(given: Any, words: str, node: ast.AST, frame: Frame) -> str:
    """The name of a module, which is then taken where it stands.

    Args:
        given: the name that the program gives; None where it gives none.
        words: what the module is named by then.
        node: the place for an error.
        frame: where the module stands.

    Raises:
        ProgramError: the given name is none, or is taken.
    """
    if given is None:
        return unique(legible(words), frame.taken, line_of(node))
    if not isinstance(given, str) or not NAME.fullmatch(given):
        raise frame.fault(node, f"{given!r} is no name of a module; {NAME_RULE}")
    if given in RESERVED:
        raise frame.fault(node, f"{given!r} is a word of the language; take another name")
    if given in frame.taken:
        line = frame.taken[given]
        message = f"{given!r} already names the module of line {line}; take another name"
        if line == line_of(node):
            message = f"{given!r} names a module in each round of the loop; put what differs into the name"
        raise frame.fault(node, message)
    frame.taken[given] = line_of(node)
    return given


def included(src: Any, body: list[ast.stmt], node: ast.AST, frame: Frame, files: Sources) -> tuple[Node, ...]:
    """What a module holds whose text comes from a file.

    Raises:
        ProgramError: it holds something else than `p.include()`, or the file cannot be read.
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
    raise frame.fault(node, f"a module with src holds the text of that file; write {p}.include() in it")


def begins_with_new_words(node: ast.With, frame: Frame) -> bool:
    """Whether the first thing in a turn is text of any length, so that the prompt adds the whole turn."""
    match node.body[0]:
        case ast.Expr(value=ast.Call(func=ast.Attribute(ast.Name(name), "text"), args=[first, *_])):
            if name == frame.recorder and not isinstance(first, ast.Starred):
                found = next(references(frame.reader.read_text(first, frame.names)), None)
                return found is not None and found.arg is None
    return False


def branches_of(node: ast.Match, subject: Expr, frame: Frame) -> tuple[Branch, ...]:
    """The cases of a `match`.

    Raises:
        ProgramError: a pattern is more than a value.
    """
    found = []
    for case in node.cases:
        condition, name = _pattern(case.pattern, subject, frame)
        if case.guard is not None:
            guard = frame.reader.read_condition(case.guard, frame.names)
            name = f"{name}-and-{describe(guard)}"
            condition = _both(condition, guard)
        found.append(Branch(case.pattern, None, list(case.body), condition, name))
    return tuple(found)


def _both(first: Expr, second: Expr) -> Expr:
    for one, other in ((first, second), (second, first)):
        if isinstance(one, Const):
            return other if one.value else one
    return Logic("and", (first, second))


def _pattern(node: ast.pattern, subject: Expr, frame: Frame) -> tuple[Expr, str]:
    """The condition of a pattern, and the words its module is named by."""
    match node:
        case ast.MatchValue(value=value):
            constant = frame.reader.constant(value, "what a case names", frame.names)
            return _compared("==", subject, constant, node, frame)
        case ast.MatchSingleton(value=constant):
            return _compared("is", subject, constant, node, frame)
        case ast.MatchOr(patterns=patterns):
            read = [_pattern(one, subject, frame) for one in patterns]
            words = "-or-".join(name for _, name in read)
            if all(isinstance(one, Const) for one, _ in read):
                return Const(any(isinstance(one, Const) and one.value for one, _ in read)), words
            return Logic("or", tuple(one for one, _ in read)), words
        case ast.MatchAs(pattern=None, name=None):
            return Const(True), "otherwise"
    raise frame.fault(node, "a case names a value, several with |, or _ for all others")


def _compared(word: str, subject: Expr, constant: Any, node: ast.pattern, frame: Frame) -> tuple[Expr, str]:
    comparison = Comparison(word, subject, Const(constant))
    return frame.reader.settle(node, comparison), describe(comparison)


def require_turns_alone(body: tuple[Node, ...], node: ast.AST, frame: Frame) -> None:
    """Refuses a module that holds whole turns, and something beside them.

    Raises:
        ProgramError: it does.
    """
    turns = sum(isinstance(one, Turn) for one in body)
    if turns and turns < len(body):
        p = frame.recorder
        raise frame.fault(
            node,
            f"whole turns and something beside them depend on this; write all of it under with {p}.user():",
        )
