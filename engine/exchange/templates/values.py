"""Tracks the values of a template's variables at each place, as expressions over a prompt's variables.

`{% set %}` in a branch makes its variable a choice: after the if, `{{ x }}` is `'a' if c else 'b'`. Inside a
branch, its condition decides inner conditions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import nodes

from engine.exchange.templates.expressions import (
    SIGNS,
    UNDEFINED,
    both,
    branched,
    carried,
    choice,
    constant,
    decided,
    default,
    either,
    is_text,
    key,
    negation,
    path_of,
    plain,
    said,
    small,
    steady,
    undefined,
)


class Values:
    """The values of variables at a place by path (others come from the prompt), and known conditions."""

    def __init__(self, held: Mapping[str, nodes.Expr] | None = None) -> None:
        self._held = dict(held or {})
        self._facts: dict[str, bool] = {}
        self._equal: dict[str, nodes.Expr] = {}
        self._read: set[str] = set()

    def _copy(self, held: Mapping[str, nodes.Expr]) -> Values:
        made = Values(held)
        made._facts, made._equal, made._read = dict(self._facts), dict(self._equal), self._read
        return made

    def scope(self) -> Values:
        """Returns a copy for independent changes."""
        return self._copy(self._held)

    def settled(self) -> Values:
        """Returns the known conditions without values, for resolved expressions."""
        return self._copy({})

    def within(self, test: nodes.Expr, holds: bool) -> Values:
        """Returns the values if a condition is true, or false."""
        made = self.scope()
        made._assume(test, holds)
        return made

    # Assignments

    def set(self, path: str, value: nodes.Node, known: Values | None = None) -> bool:
        """Assigns a value to a variable; `known` has the values of variables in it, by default these.

        Returns:
            Whether a schema can express it; otherwise the variable is unchanged.
        """
        resolved = (known or self).resolved(value) if carried(value) else None
        if resolved is None or not carried(resolved) or not small(resolved):
            return False
        self._forget(path)
        self._held[path] = resolved
        return True

    def lose(self, path: str, line: int) -> str:
        """Makes a variable come from the prompt again, and returns its name there."""
        self._forget(path)
        name = f"{path}-{line}" if path in self._read else path
        self._held[path] = nodes.Name(name, "load", lineno=line)
        return name

    def _forget(self, path: str) -> None:
        for forgotten in [path, *(inner for inner in self._held if inner.startswith(f"{path}."))]:
            self._held.pop(forgotten, None)

    def leave(self, inner: Values) -> None:
        """Continues after a scope: its assignments end, except attributes of namespaces."""
        self._held |= {path: value for path, value in inner._held.items() if "." in path}

    def join(self, branches: Sequence[tuple[nodes.Expr, Values]], otherwise: Values, line: int) -> list[str]:
        """Continues after an if: a variable has its branch's value, or `otherwise` if no condition is true.

        Returns:
            The variables with too large values; they come from the prompt.
        """
        lost = []
        ends = [*(values for _, values in branches), otherwise]
        for path in dict.fromkeys(path for values in ends for path in values._held):
            if all(values._held.get(path) is self._held.get(path) for values in ends):
                continue
            value = otherwise._of(path)
            for test, values in reversed(branches):
                value = choice(test, values._of(path), value)
            value = self.settled().resolved(value) if small(value) else value
            if small(value):
                self._held[path] = value
            else:
                lost.append(self.lose(path, line))
        return lost

    def _of(self, path: str) -> nodes.Expr:
        first, *others = path.split(".")
        made: nodes.Expr = nodes.Name(first, "load")
        for attribute in others:
            made = nodes.Getattr(made, attribute, "load")
        return self._held.get(path, made)

    # Values of expressions

    def resolved(self, node: Any) -> Any:
        """Returns an expression with the values of its variables, as far as they decide its value."""
        match node:
            case nodes.Name() | nodes.Getattr() | nodes.Getitem():
                return self._variable(node)
            case nodes.CondExpr(test=test, expr1=first, expr2=second):
                known = self.condition(test)
                return choice(
                    known,
                    self.within(known, True).resolved(first),
                    self.within(known, False).resolved(second or UNDEFINED),
                )
            case nodes.Filter(name="default" | "d", args=[_, *_]):
                return default(self._rebuilt(node))
            case nodes.Const():
                return node
            case nodes.Node():
                return self._rebuilt(node)
            case list():
                return [self.resolved(item) for item in node]
        return node

    def _rebuilt(self, node: Any) -> Any:
        return type(node)(*(self.resolved(value) for _, value in node.iter_fields()), lineno=node.lineno)

    def _variable(self, node: nodes.Expr) -> nodes.Expr:
        rebuilt: nodes.Expr = node if isinstance(node, nodes.Name) else self._rebuilt(node)
        for path in (path_of(node), path_of(rebuilt)):
            if path in self._held:
                rebuilt = self.settled().resolved(self._held[path])
                return rebuilt
        if path is not None:
            self._read.add(path)
        return rebuilt

    # Conditions

    def condition(self, test: nodes.Expr) -> nodes.Expr:
        """Returns a condition over the prompt's variables, shortened by the known conditions."""
        return self._condition(self.resolved(test))

    def _condition(self, test: nodes.Expr) -> nodes.Expr:
        simpler = self._simpler(test)
        known = self._facts.get(key(simpler))
        return simpler if known is None else nodes.Const(known)

    def _simpler(self, test: nodes.Expr) -> nodes.Expr:
        match test:
            case nodes.Const(value=value):
                return nodes.Const(bool(value))
            case nodes.TemplateData() | nodes.Concat():
                filled = said(test)
                return test if filled is None else nodes.Const(filled)
            case nodes.Not(node=inner):
                return negation(self._condition(inner))
            case nodes.And(left=left, right=right):
                first = self._condition(left)
                return both(first, self.within(first, True)._condition(right))
            case nodes.Or(left=left, right=right):
                first = self._condition(left)
                return either(first, self.within(first, False)._condition(right))
            case nodes.CondExpr(test=inner, expr1=left, expr2=right):
                known = self._condition(inner)
                first = self.within(known, True)._condition(left)
                second = self.within(known, False)._condition(right or UNDEFINED)
                return branched(known, first, second)
            case nodes.Compare(expr=left, ops=[operand]):
                return self._compared(test, left, operand)
            case nodes.Test(node=inner, name="defined"):
                return self._defined(test, inner)
            case nodes.Test(node=inner, name="undefined"):
                fields = [value for name, value in test.iter_fields() if name not in ("node", "name")]
                return negation(self._condition(nodes.Test(inner, "defined", *fields, lineno=test.lineno)))
        return test

    def _compared(self, test: nodes.Expr, left: nodes.Expr, operand: nodes.Operand) -> nodes.Expr:
        right, sign = operand.expr, operand.op
        left, right = self._equal.get(key(left), left), self._equal.get(key(right), right)
        if sign == "eq" and isinstance(left, nodes.Const):
            left, right = right, left

        def compared(one: nodes.Expr, other: nodes.Expr) -> nodes.Expr:
            return nodes.Compare(one, [nodes.Operand(sign, other)], lineno=test.lineno)

        match left, right:
            case nodes.CondExpr(test=inner, expr1=one, expr2=two), _:
                sides = compared(one, right), compared(two or UNDEFINED, right)
                return self._condition(nodes.CondExpr(inner, *sides, lineno=test.lineno))
            case _, nodes.CondExpr(test=inner, expr1=one, expr2=two):
                sides = compared(left, one), compared(left, two or UNDEFINED)
                return self._condition(nodes.CondExpr(inner, *sides, lineno=test.lineno))
        if sign == "ne":
            same = nodes.Compare(left, [nodes.Operand("eq", right)], lineno=test.lineno)
            return negation(self._condition(same))
        for one, other in ((left, right), (right, left)):
            if sign == "eq" and undefined(one):
                defined = nodes.Test(other, "defined", [], [], None, None, lineno=test.lineno)
                return negation(self._condition(defined))
        comparison = compared(left, right)
        if constant(left) and constant(right) and sign in SIGNS:
            with contextlib.suppress(TypeError):
                return nodes.Const(SIGNS[sign](plain(left), plain(right)))
        empty = self._facts.get(key(left)) is False
        return nodes.Const(False) if sign == "eq" and empty and decided(right) else comparison

    def _defined(self, test: nodes.Expr, inner: nodes.Expr) -> nodes.Expr:
        if isinstance(inner, nodes.CondExpr):
            fields = [value for name, value in test.iter_fields() if name != "node"]
            sides = (
                nodes.Test(branch or UNDEFINED, *fields, lineno=test.lineno)
                for branch in (inner.expr1, inner.expr2)
            )
            return self._condition(nodes.CondExpr(inner.test, *sides, lineno=test.lineno))
        return nodes.Const(not undefined(inner)) if is_text(inner) else test

    def _assume(self, test: nodes.Expr, holds: bool) -> None:
        match test:
            case nodes.Not(node=inner):
                self._assume(inner, not holds)
            case nodes.And(left=left, right=right) if holds:
                self._assume(left, True)
                self._assume(right, True)
            case nodes.Or(left=left, right=right) if not holds:
                self._assume(left, False)
                self._assume(right, False)
            case _ if steady(test):
                self._facts[key(test)] = holds
                if holds:
                    self._follow(test)

    def _follow(self, test: nodes.Expr) -> None:
        """Records the variables that a true condition determines."""
        match test:
            case nodes.Compare(
                expr=left, ops=[nodes.Operand(op="eq", expr=nodes.Const(value=str()) as right)]
            ):
                self._equal[key(left)] = right
                self._assume(left, bool(right.value))
            case _ if path_of(test) is not None:
                self._facts[key(nodes.Test(test, "defined", [], [], None, None))] = True
