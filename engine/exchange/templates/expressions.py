"""Expressions of templates: their variables, their values, and compound conditions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from jinja2 import nodes

_MOST_NODES: Final = 200  # size limit of a variable's expression
UNDEFINED: Final = nodes.Concat([])  # value of an inline if without else if its condition is false

SIGNS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "eq": operator.eq,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}
"""Comparison operators."""

_CARRIED: Final = (
    *(nodes.TemplateData, nodes.Concat, nodes.CondExpr, nodes.Filter, nodes.Keyword),
    *(nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Operand, nodes.Test),
)


def path_of(node: nodes.Node) -> str | None:
    """Returns the variable that an expression names: `a`, `a.b`, `a["b"]`; None for others."""
    match node:
        case nodes.Name(name=name):
            return name
        case (
            nodes.Getattr(node=inner, attr=last) | nodes.Getitem(node=inner, arg=nodes.Const(value=str(last)))
        ):
            above = path_of(inner)
            return None if above is None else f"{above}.{last}"
    return None


def paths_in(node: nodes.Node) -> Iterator[str]:
    """Yields the variables of an expression, the longest path of each."""
    path = path_of(node)
    if path is not None:
        yield path
        return
    for child in node.iter_child_nodes(exclude=("node",) if isinstance(node, nodes.Call) else ()):
        yield from paths_in(child)


def adds_text(node: nodes.Node) -> bool:
    """Returns whether `+` joins texts; between numbers or variables it may be a sum."""
    return isinstance(node, nodes.Add) and any(
        isinstance(side, nodes.Concat | nodes.TemplateData)
        or (isinstance(side, nodes.Const) and isinstance(side.value, str))
        or adds_text(side)
        for side in (node.left, node.right)
    )


def decided(test: nodes.Expr) -> bool | None:
    """Returns whether a condition is true; None if it depends on the prompt."""
    return bool(test.value) if isinstance(test, nodes.Const) else None


def negation(test: nodes.Expr) -> nodes.Expr:
    """Returns the opposite of a condition."""
    match test:
        case nodes.Const(value=value):
            return nodes.Const(not value)
        case nodes.Not(node=inner):
            return inner
    return nodes.Not(test, lineno=test.lineno)


def both(first: nodes.Expr, second: nodes.Expr) -> nodes.Expr:
    """Returns the conjunction of two conditions."""
    for known, other in ((first, second), (second, first)):
        if decided(known) is not None:
            return other if decided(known) else known
    return first if key(first) == key(second) else nodes.And(first, second, lineno=first.lineno)


def either(first: nodes.Expr, second: nodes.Expr) -> nodes.Expr:
    """Returns the disjunction of two conditions."""
    for known, other in ((first, second), (second, first)):
        if decided(known) is not None:
            return known if decided(known) else other
    return first if key(first) == key(second) else nodes.Or(first, second, lineno=first.lineno)


def key(node: nodes.Node) -> str:
    """Returns a key that is equal for equal expressions; nodes themselves treat 1 and True as equal."""
    return repr(node)


def choice(test: nodes.Expr, first: nodes.Expr, second: nodes.Expr) -> nodes.Expr:
    """Returns an expression with the value `first` if `test` is true, otherwise `second`."""
    known = decided(test)
    if known is not None or key(first) == key(second):
        return second if known is False else first
    return nodes.CondExpr(test, first, second, lineno=test.lineno)


def branched(test: nodes.Expr, first: nodes.Expr, second: nodes.Expr) -> nodes.Expr:
    """Returns a condition that equals `first` if `test` is true, otherwise `second`."""
    match decided(test), decided(first), decided(second):
        case None, True, _:
            return either(test, second)
        case None, False, _:
            return both(negation(test), second)
        case None, None, True:
            return either(negation(test), first)
        case None, None, False:
            return both(test, first)
    return choice(test, first, second)


def undefined(node: nodes.Node) -> bool:
    """Returns whether an expression is certainly undefined."""
    return isinstance(node, nodes.Concat) and not node.nodes


def said(node: nodes.Node) -> bool | None:
    """Returns whether a text has characters; None if it depends on the prompt."""
    match node:
        case nodes.TemplateData(data=data):
            return bool(data)
        case nodes.Const(value=value):
            return bool(str(value))
        case nodes.Concat(nodes=parts):
            has_text = [said(part) for part in parts]
            return True if True in has_text else None if None in has_text else False
    return None


def is_text(node: nodes.Node) -> bool:
    """Returns whether an expression has a value for every prompt."""
    return isinstance(node, nodes.Const | nodes.TemplateData | nodes.Concat | nodes.Add) or (
        isinstance(node, nodes.Filter) and node.name in ("default", "d")
    )


def steady(test: nodes.Expr) -> bool:
    """Returns whether a condition has the same value everywhere."""
    inside = (test, *test.find_all((nodes.Call, nodes.Filter)))
    return not any(
        isinstance(inner, nodes.Call) or (isinstance(inner, nodes.Filter) and inner.name == "random")
        for inner in inside
    )


def plain(node: Any) -> Any:
    """Returns the value of a constant."""
    return node.value if isinstance(node, nodes.Const) else [item.value for item in node.items]


def constant(node: nodes.Node) -> bool:
    """Returns whether an expression has no variables."""
    return isinstance(node, nodes.Const) or (
        isinstance(node, nodes.List | nodes.Tuple)
        and all(isinstance(item, nodes.Const) for item in node.items)
    )


def carried(node: nodes.Node) -> bool:
    """Returns whether an expression consists of texts and conditions."""
    if path_of(node) is not None or constant(node):
        return True
    return (isinstance(node, _CARRIED) or adds_text(node)) and all(map(carried, node.iter_child_nodes()))


def small(node: nodes.Node) -> bool:
    """Returns whether an expression is small enough to be repeated."""
    pending, seen = [node], 0
    while pending and seen <= _MOST_NODES:
        pending.extend(pending.pop().iter_child_nodes())
        seen += 1
    return seen <= _MOST_NODES


def default(node: nodes.Filter) -> nodes.Expr:
    """Returns the default filter as an expression: its argument replaces an empty or undefined value."""
    inner, fallback = node.node, node.args[0]
    flags = [*node.args[1:], *(argument.value for argument in node.kwargs)]
    if inner is None or not all(map(constant, flags)):
        return node
    if undefined(inner):
        return fallback
    if isinstance(inner, nodes.CondExpr):
        sides = (inner.expr1, inner.expr2 or UNDEFINED)
        return choice(inner.test, *(default(_with_inner(node, side)) for side in sides))
    if isinstance(inner, nodes.Or):
        return nodes.Or(inner.left, default(_with_inner(node, inner.right)), lineno=node.lineno)
    if any(map(plain, flags)):
        filled = bool(inner.value) if isinstance(inner, nodes.Const) else said(inner)
        return node if filled is None else inner if filled else fallback
    return inner if is_text(inner) else node


def _with_inner(node: nodes.Filter, inner: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(inner, *(getattr(node, name) for name in node.fields[1:]), lineno=node.lineno)


def words(test: nodes.Node) -> str:
    """Returns a condition in a few words, for the name of a module."""
    match test:
        case nodes.Not(node=nodes.And(left=left, right=right)):
            return f"{words(nodes.Not(left))}-or-{words(nodes.Not(right))}"
        case nodes.Not(node=nodes.Or(left=left, right=right)):
            return f"{words(nodes.Not(left))}-and-{words(nodes.Not(right))}"
        case nodes.Not(node=nodes.Not(node=inner)):
            return words(inner)
        case nodes.Not(node=inner):
            return f"not-{words(inner)}"
        case nodes.And(left=left, right=right):
            return f"{words(left)}-and-{words(right)}"
        case nodes.Or(left=left, right=right):
            return f"{words(left)}-or-{words(right)}"
        case nodes.Compare(ops=[nodes.Operand(op="eq", expr=nodes.Const(value=value))]):
            return str(value)
    return next(paths_in(test), "part")
