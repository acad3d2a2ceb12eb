"""Explains why Python code cannot be compiled, and suggests a replacement."""

from __future__ import annotations

import ast
from typing import Final

_EXPRESSIONS: Final[tuple[tuple[type[ast.expr], str], ...]] = (
    (ast.NamedExpr, "a name cannot be set in an expression; set it on the line before"),
    (ast.Lambda, "a lambda cannot be compiled; write a function with def that returns one expression"),
    (
        ast.Await,
        "await cannot be compiled; remove it, or await before calling the program",
    ),
    (ast.Yield, "a program cannot yield; write p.text(…)"),
    (ast.YieldFrom, "a program cannot yield; write p.text(…)"),
    (ast.Starred, "* is allowed only in a call or a list; write each value"),
    (ast.Slice, "a slice is allowed only in an index; write text[1:3]"),
)
_STATEMENTS: Final[tuple[tuple[type[ast.stmt], str], ...]] = (
    (
        ast.While,
        "while cannot be compiled, because nothing runs; write for over a list of constants or range(…)",
    ),
    (ast.AsyncFor, "async for cannot be compiled; write for"),
    (ast.AsyncWith, "async with cannot be compiled; write with"),
    (
        ast.Try,
        "try cannot be compiled, because nothing runs; write its body without try, "
        "and move code that may fail out of the program",
    ),
    (ast.Raise, "a program cannot reject its arguments; check them before the call, and remove raise"),
    (ast.Assert, "a program cannot reject its arguments; check them before the call, and remove assert"),
    (ast.Delete, "names cannot be deleted in a program; remove del"),
    (
        ast.Global,
        "a program cannot change globals; remove global, and use a parameter",
    ),
    (ast.Nonlocal, "a function cannot change outer names; remove nonlocal, and use a parameter"),
    (ast.ClassDef, "a class must be above the program; move it there"),
    (ast.Import, "an import must be at the top of the file; move it there"),
    (ast.ImportFrom, "an import must be at the top of the file; move it there"),
    (
        ast.AsyncFunctionDef,
        "async def cannot be compiled; write def",
    ),
)
_ADDS: Final = frozenset(("append", "extend", "insert", "add", "update", "write", "writelines"))


def refused_expression(node: ast.expr) -> str:
    """Explains why an expression cannot be compiled."""
    for kind, reason in _EXPRESSIONS:
        if isinstance(node, kind):
            return reason
    shown = ast.unparse(node).partition("\n")[0][:60]
    return f"{shown!r} cannot be compiled; write texts, parameters, constants and computations with these"


def refused_statement(node: ast.stmt, recorder: str) -> str:
    """Explains why a statement cannot be compiled; `recorder` is the program's first parameter."""
    match node:
        case ast.Return(value=ast.expr() as value):
            shown = ast.unparse(value)
            text = shown if len(shown) <= 40 else "…"
            return f"a program returns nothing; write {recorder}.text({text}), and return without a value"
        case ast.Expr(value=ast.Await(value=value)):
            return f"await cannot be compiled; write {ast.unparse(value)[:60]} without await"
        case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
            return f"a program cannot yield; write {recorder}.text(…)"
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=method))) if method in _ADDS:
            remedy = f"write each text with {recorder}.text(…)"
            return f".{method}(…) collects texts, but a program writes them directly; {remedy}"
    for kind, reason in _STATEMENTS:
        if isinstance(node, kind):
            return reason
    if type(node).__name__ == "TryStar":
        return dict(_STATEMENTS)[ast.Try]
    words = ast.unparse(node).partition("\n")[0]
    return (
        f"{words[:60]!r} cannot be compiled; a program consists of text, if, match, for, with, names, "
        "and calls of other programs"
    )
