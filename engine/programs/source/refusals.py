"""Why a piece of Python cannot be compiled, and what to write instead."""

from __future__ import annotations

import ast
from typing import Final

_EXPRESSIONS: Final[tuple[tuple[type[ast.expr], str], ...]] = (
    (ast.NamedExpr, "a name is not set within an expression here; set it on a line before"),
    (ast.Lambda, "a lambda cannot be compiled; write a function with def that returns one expression"),
    (
        ast.Await,
        "nothing is waited for while compiling; remove await, or do that before the program is called",
    ),
    (ast.Yield, "a program writes with p.text(…) and yields nothing; write p.text(…)"),
    (ast.YieldFrom, "a program writes with p.text(…) and yields nothing; write p.text(…)"),
    (ast.Starred, "* stands in a call or a list only; write each value"),
    (ast.Slice, "a slice stands in an index only; write text[1:3]"),
)
_STATEMENTS: Final[tuple[tuple[type[ast.stmt], str], ...]] = (
    (
        ast.While,
        "while goes on until something is computed, and nothing is run while compiling; "
        "write for over a list of constants or range(…)",
    ),
    (ast.AsyncFor, "nothing is waited for while compiling; write for without async"),
    (ast.AsyncWith, "nothing is waited for while compiling; write with without async"),
    (
        ast.Try,
        "try guards what may fail, and nothing in a program is run; write its body without try, "
        "and do what may fail before the program is called",
    ),
    (ast.Raise, "a program cannot refuse its arguments; check them before it is called, and remove raise"),
    (ast.Assert, "a program cannot refuse its arguments; check them before it is called, and remove assert"),
    (ast.Delete, "names keep their values in a program; remove del"),
    (
        ast.Global,
        "a program changes nothing outside of itself; remove global, and give what varies as a parameter",
    ),
    (ast.Nonlocal, "a function changes nothing outside of itself; remove nonlocal, and give it a parameter"),
    (ast.ClassDef, "a class is defined above the program; move it there"),
    (ast.Import, "an import stands at the top of the file; move it there"),
    (ast.ImportFrom, "an import stands at the top of the file; move it there"),
    (
        ast.AsyncFunctionDef,
        "what is async has to be waited for, and nothing is while compiling; write def without async",
    ),
)
_ADDS: Final = frozenset(("append", "extend", "insert", "add", "update", "write", "writelines"))


def refused_expression(node: ast.expr) -> str:
    """Why an expression cannot be compiled."""
    for kind, reason in _EXPRESSIONS:
        if isinstance(node, kind):
            return reason
    what = ast.unparse(node).partition("\n")[0][:60]
    return f"{what!r} cannot be compiled; write texts, parameters, constants and what is computed from these"


def refused_statement(node: ast.stmt, recorder: str) -> str:
    """Why a statement cannot be compiled.

    Args:
        node: the statement.
        recorder: the first parameter of the program.
    """
    match node:
        case ast.Return(value=ast.expr() as value):
            shown = ast.unparse(value)
            text = shown if len(shown) <= 40 else "…"
            return (
                f"a program writes and returns nothing; write {recorder}.text({text}), "
                "and return alone where it ends"
            )
        case ast.Expr(value=ast.Await(value=value)):
            return f"nothing is waited for while compiling; write {ast.unparse(value)[:60]} without await"
        case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
            return f"a program yields nothing; write {recorder}.text(…)"
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=method))) if method in _ADDS:
            remedy = f"write each text with {recorder}.text(…)"
            return f".{method}(…) collects, and a program writes at once; {remedy}"
    for kind, reason in _STATEMENTS:
        if isinstance(node, kind):
            return reason
    if type(node).__name__ == "TryStar":
        return dict(_STATEMENTS)[ast.Try]
    what = ast.unparse(node).partition("\n")[0]
    return (
        f"{what[:60]!r} cannot be compiled; a program consists of text, if, match, for, with, names, "
        "and calls of other programs"
    )
