"""Expressions of templates: what they name, what they are worth, and conditions made of others."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from jinja2 import nodes

_MOST_NODES: Final = 200
"""The largest expression that a variable may stand for."""

UNDEFINED: Final = nodes.Concat([])
"""What an inline if without else gives where its condition does not hold."""

SIGNS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "eq": operator.eq,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}
"""The signs between two values."""

_CARRIED: Final = (
    *(nodes.TemplateData, nodes.Concat, nodes.CondExpr, nodes.Filter, nodes.Keyword),
    *(nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Operand, nodes.Test),
)


def path_of(node: nodes.Node) -> str | None:
    """The variable that an expression names: `a`, `a.b`, `a["b"]`."""
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
    """The variables from which an expression is computed, the longest path of each."""
    path = path_of(node)
    if path is not None:
        yield path
        return
    for child in node.iter_child_nodes(exclude=("node",) if isinstance(node, nodes.Call) else ()):
        yield from paths_in(child)


def adds_text(node: nodes.Node) -> bool:
    """Whether `+` joins texts; between numbers or variables it may be a sum."""
    return isinstance(node, nodes.Add) and any(
        isinstance(one, nodes.Concat | nodes.TemplateData)
        or (isinstance(one, nodes.Const) and isinstance(one.value, str))
        or adds_text(one)
        for one in (node.left, node.right)
    )


def decided(test: nodes.Expr) -> bool | None:
    """Whether a condition holds; None where that depends on the prompt."""
    return bool(test.value) if isinstance(test, nodes.Const) else None


def negation(test: nodes.Expr) -> nodes.Expr:
    """The condition that holds where another does not."""
    match test:
        case nodes.Const(value=value):
            return nodes.Const(not value)
        case nodes.Not(node=inner):
            return inner
    return nodes.Not(test, lineno=test.lineno)


def both(first: nodes.Expr, second: nodes.Expr) -> nodes.Expr:
    """The condition that holds where two do."""
    for one, other in ((first, second), (second, first)):
        if decided(one) is not None:
            return other if decided(one) else one
    return first if key(first) == key(second) else nodes.And(first, second, lineno=first.lineno)


def either(first: nodes.Expr, second: nodes.Expr) -> nodes.Expr:
    """The condition that holds where one of two does."""
    for one, other in ((first, second), (second, first)):
        if decided(one) is not None:
            return one if decided(one) else other
    return first if key(first) == key(second) else nodes.Or(first, second, lineno=first.lineno)


def key(node: nodes.Node) -> str:
    """What two expressions that are the same have in common; nodes themselves hold 1 and True equal."""
    return repr(node)


def choice(test: nodes.Expr, first: nodes.Expr, second: nodes.Expr) -> nodes.Expr:
    """One expression where a condition holds, and another where it does not."""
    known = decided(test)
    if known is not None or key(first) == key(second):
        return second if known is False else first
    return nodes.CondExpr(test, first, second, lineno=test.lineno)


def branched(test: nodes.Expr, first: nodes.Expr, second: nodes.Expr) -> nodes.Expr:
    """The condition that is one where a third holds, and another where it does not."""
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
    """Whether an expression is certain to be undefined."""
    return isinstance(node, nodes.Concat) and not node.nodes


def said(node: nodes.Node) -> bool | None:
    """Whether a text has characters; None where that depends on the prompt."""
    match node:
        case nodes.TemplateData(data=data):
            return bool(data)
        case nodes.Const(value=value):
            return bool(str(value))
        case nodes.Concat(nodes=parts):
            told = [said(part) for part in parts]
            return True if True in told else None if None in told else False
    return None


def is_text(node: nodes.Node) -> bool:
    """Whether an expression has a value whatever the prompt gives."""
    return isinstance(node, nodes.Const | nodes.TemplateData | nodes.Concat | nodes.Add) or (
        isinstance(node, nodes.Filter) and node.name in ("default", "d")
    )


def steady(test: nodes.Expr) -> bool:
    """Whether a condition is the same wherever it stands."""
    inside = (test, *test.find_all((nodes.Call, nodes.Filter)))
    return not any(
        isinstance(one, nodes.Call) or (isinstance(one, nodes.Filter) and one.name == "random")
        for one in inside
    )


def plain(node: Any) -> Any:
    """The value of a constant."""
    return node.value if isinstance(node, nodes.Const) else [one.value for one in node.items]


def constant(node: nodes.Node) -> bool:
    """Whether the template itself says all of an expression."""
    return isinstance(node, nodes.Const) or (
        isinstance(node, nodes.List | nodes.Tuple) and all(isinstance(one, nodes.Const) for one in node.items)
    )


def carried(node: nodes.Node) -> bool:
    """Whether an expression is one of texts and conditions."""
    if path_of(node) is not None or constant(node):
        return True
    return (isinstance(node, _CARRIED) or adds_text(node)) and all(map(carried, node.iter_child_nodes()))


def small(node: nodes.Node) -> bool:
    """Whether an expression is small enough to stand in many places."""
    pending, seen = [node], 0
    while pending and seen <= _MOST_NODES:
        pending.extend(pending.pop().iter_child_nodes())
        seen += 1
    return seen <= _MOST_NODES


def default(node: nodes.Filter) -> nodes.Expr:
    """The filter default, which gives its argument only where there is nothing else."""
    inner, fallback = node.node, node.args[0]
    flags = [*node.args[1:], *(one.value for one in node.kwargs)]
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
    """A condition in a few words, from which a module gets its name."""
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
