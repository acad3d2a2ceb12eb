"""Reads the expressions of a program from its source, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

from engine.pml.diagnostics.spelling import Speller
from engine.programs.source.call_reader import read_call, read_property
from engine.programs.source.constants import (
    Stream,
    UncomputableError,
    binary,
    formatted,
    item_at,
    items_of,
    measure,
    unary,
)
from engine.programs.source.errors import ProgramArgumentError
from engine.programs.source.expressions import (
    COMPARISONS,
    Comparison,
    Const,
    Expr,
    Fault,
    Join,
    Logic,
    Member,
    Not,
    Ref,
    evaluate,
    first_parameter,
    references,
)
from engine.programs.source.functions import Function, Work
from engine.programs.source.objects import Finder, Method, Unknown, Unset, attribute_of
from engine.programs.source.parameters import Arg, NewWords, Options
from engine.programs.source.pure_functions import BUILTINS
from engine.programs.source.refusals import refused_expression

_STARRED: Final = "* in an assignment cannot be compiled; name each value"


class ExpressionReader:
    """Reads expressions from the source.

    Args:
        look_up: the value of a name outside the function; raises KeyError.
        fault: makes the error for a place.
        work: the state of the compilation.
        depth: the number of enclosing function calls.
    """

    def __init__(self, look_up: Finder, fault: Fault, work: Work | None = None, depth: int = 0) -> None:
        self._look_up = look_up
        self._fault = fault
        self.work = work or Work()
        self.depth = depth

    def deeper(self, look_up: Finder, fault: Fault) -> ExpressionReader:
        """Returns a reader for a called function, with the look-up and errors of its file."""
        return ExpressionReader(look_up, fault, self.work, self.depth + 1)

    def read(self, node: ast.expr, names: Mapping[str, Any]) -> Expr:
        """Returns the expression for a syntax tree; `names` are the values of parameters and local names.

        Raises:
            ProgramError: it cannot be compiled.
        """
        try:
            self.work.budget.step()
            return self._read(node, names)
        except UncomputableError as reason:
            raise self._fault(node, str(reason)) from None

    def read_text(self, node: ast.expr, names: Mapping[str, Any]) -> Expr:
        """Returns the text for a syntax tree; numbers become text, None stays None.

        Raises:
            ProgramError: it is not text, or cannot be compiled.
        """
        value = self.read(node, names)
        if not isinstance(value, Const):
            self._check_text(node, value)
            return value
        if value.value is None:
            return value
        return self.text_of_constant(node, value.value)

    def text_of_constant(self, node: ast.expr, value: Any) -> Const:
        """Returns the text of a known value.

        Raises:
            ProgramError: it is neither text nor a number.
        """
        try:
            self.work.budget.spend(value)
            text = formatted(value, "", "")
        except UncomputableError as reason:
            raise self._fault(node, str(reason)) from None
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise self._fault(node, f"{ast.unparse(node)[:60]} is not text; write it in quotes")
        return Const(text)

    def read_condition(self, node: ast.expr, names: Mapping[str, Any]) -> Expr:
        """Returns a condition; a known one becomes True or False.

        Raises:
            ProgramError: it cannot be compiled.
        """
        value = self.read(node, names)
        return Const(self._truth(node, value)) if isinstance(value, Const) else value

    def constant(self, node: ast.expr, what: str, names: Mapping[str, Any] | None = None) -> Any:
        """Returns the plain value of an expression without parameters; `what` begins the error's sentence."""
        value = self.known(node, what, names or {})
        try:
            self.work.budget.spend(value)
            measure(value)
        except UncomputableError as reason:
            raise self._fault(node, str(reason)) from None
        return value

    def known(self, node: ast.expr, what: str, names: Mapping[str, Any]) -> Any:
        """Returns the value of an expression without parameters, of any kind; `what` begins an error."""
        expression = self.read(node, names)
        if not isinstance(expression, Const):
            depends = first_parameter(expression)
            message = f"{what} must be known without running the program, and {depends} is not"
            raise self._fault(node, f"{message}; write a constant, or {depends} itself in p.text(…)")
        return expression.value

    def items(self, node: ast.expr, names: Mapping[str, Any]) -> list[Any]:
        """Returns the items of a loop.

        Raises:
            ProgramError: they are known only in a prompt, or the value is not iterable.
        """
        value = self.read(node, names)
        if not isinstance(value, Const):
            depends = first_parameter(value)
            message = f"a loop needs known values, but {depends} is known only in a prompt"
            remedy = "write a list of constants, or build the schema from the data with SchemaBuilder"
            raise self._fault(node, f"{message}; {remedy}")
        try:
            items = items_of(value.value)
            self.work.budget.computed(items)
            return items
        except UncomputableError as reason:
            raise self._fault(node, str(reason)) from None

    def unpack(self, target: ast.expr, value: Expr, names: dict[str, Any]) -> None:
        """Assigns a value to the names of a target.

        Raises:
            ProgramError: the target is not a name, or the number of items differs.
        """
        match target:
            case ast.Name(id=name):
                if isinstance(value, Const) and isinstance(value.value, Stream):
                    raise self._fault(target, "this can be iterated only once; wrap it in list(…)")
                names[name] = value
                return
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                for inner, item in zip(targets, self._items_for(target, targets, value), strict=True):
                    self.unpack(inner, Const(item), names)
                return
        if isinstance(target, ast.Starred):
            raise self._fault(target, _STARRED)
        shown = ast.unparse(target)[:60]
        raise self._fault(target, f"{shown} cannot be changed, because values are constant; set a name")

    def _items_for(self, target: ast.expr, targets: list[ast.expr], value: Expr) -> list[Any]:
        if not isinstance(value, Const):
            raise self._fault(target, f"{first_parameter(value)} is a single text; assign it to one name")
        try:
            items = items_of(value.value)
        except UncomputableError as reason:
            raise self._fault(target, str(reason)) from None
        if any(isinstance(name, ast.Starred) for name in targets):
            raise self._fault(target, _STARRED)
        if len(items) != len(targets):
            raise self._fault(
                target, f"{len(items)} values do not match {len(targets)} names; name each value"
            )
        return items

    def name(self, node: ast.Name) -> Any:
        """Returns the value of a name outside the function."""
        try:
            value = self._look_up(node.id)
        except KeyError:
            near = Speller().nearest(node.id, BUILTINS)
            remedy = f"did you mean {near}?" if near else "define it above the function, or import it"
            message = f"{node.id} is not a parameter or a name that the file sets or imports; {remedy}"
            raise self._fault(node, message) from None
        if isinstance(value, Unknown):
            raise self._fault(node, f"{node.id} {value.reason}")
        return value

    def settle(self, node: ast.AST, comparison: Comparison) -> Expr:
        """Returns a comparison, or its result if it is known.

        Raises:
            ProgramError: it cannot be compiled.
        """
        try:
            sides = (comparison.left, comparison.right)
            self.work.budget.spend(*(side.value for side in sides if isinstance(side, Const)))
            check_comparison(comparison)
            known = not any(True for _ in references(comparison))
            return Const(evaluate(comparison, {})) if known else comparison
        except UncomputableError as reason:
            raise self._fault(node, str(reason)) from None
        except ProgramArgumentError as error:
            raise self._fault(node, error.reason) from None

    def combine(self, node: ast.AST, op: ast.operator, left: Expr, right: Expr) -> Expr:
        """Computes `left + right` and other binary operators; texts can be added to a parameter.

        Raises:
            ProgramError: the types do not match.
        """
        try:
            return self._combined(node, op, left, right)
        except UncomputableError as reason:
            raise self._fault(node, str(reason)) from None

    # Parts of expressions

    def _read(self, node: ast.expr, names: Mapping[str, Any]) -> Expr:
        match node:
            case ast.Constant(value=value):
                return Const(value)
            case ast.Name(id=name):
                return self._name(node, names[name]) if name in names else Const(self.name(node))
            case ast.JoinedStr(values=pieces):
                return self._join(self._piece(piece, names) for piece in pieces)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                item = self.read_condition(operand, names)
                return Const(not item.value) if isinstance(item, Const) else Not(item)
            case ast.UnaryOp(op=op, operand=operand):
                return Const(unary(op, self.known(operand, "a number", names)))
            case ast.BoolOp(op=word, values=operands):
                return self._logic("and" if isinstance(word, ast.And) else "or", operands, names)
            case ast.Compare():
                return self._comparison(node, names)
            case ast.BinOp():
                return self._chain(node, names)
            case ast.IfExp(test=test, body=body, orelse=other):
                condition = self.read_condition(test, names)
                if isinstance(condition, Const):
                    return self.read(body if condition.value else other, names)
                raise UncomputableError("a text that depends on a condition is a module; write if and else")
            case ast.Attribute(value=owner, attr=attribute):
                return self._attribute(self.read(owner, names), attribute)
            case ast.Subscript(value=owner, slice=index):
                holder = self.known(owner, "an indexed value", names)
                return Const(item_at(holder, self._index(index, names)))
            case ast.Call():
                return read_call(self, node, names)
        return Const(self._collection(node, names))

    def _name(self, node: ast.Name, found: Any) -> Expr:
        if isinstance(found, Unset):
            raise self._fault(node, f"{node.id} {found.reason}")
        return Const(found) if isinstance(found, Function) else found

    def _chain(self, node: ast.BinOp, names: Mapping[str, Any]) -> Expr:
        """Reads `a + b + c …` iteratively, because long texts may be sums of many parts."""
        steps: list[ast.BinOp] = []
        first: ast.expr = node
        while isinstance(first, ast.BinOp):
            steps.append(first)
            first = first.left
        value = self.read(first, names)
        for step in reversed(steps):
            value = self.combine(step, step.op, value, self.read(step.right, names))
        return value

    def _combined(self, node: ast.AST, op: ast.operator, left: Expr, right: Expr) -> Expr:
        if isinstance(left, Const) and isinstance(right, Const):
            self.work.budget.spend(left.value, right.value)
            return Const(self.work.budget.computed(binary(op, left.value, right.value)))
        if not isinstance(op, ast.Add):
            depends = first_parameter(left if isinstance(right, Const) else right)
            message = f"{depends} is known only in a prompt, so nothing can be computed from it"
            raise UncomputableError(f"{message}; write an f-string")
        parts: list[Expr] = []
        for side in (left, right):
            if isinstance(side, Const):
                if not isinstance(side.value, str):
                    raise UncomputableError("only text can be added to a parameter; write an f-string")
                parts.append(Const(formatted(side.value, "", "")))
            else:
                self._check_text(node, side)
                parts.append(side)
        return self._join(parts)

    def _collection(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        """Returns the value of a list, tuple, set or dict, written as a display or comprehension."""
        match node:
            case ast.Tuple(elts=items):
                return tuple(self._listed(items, names))
            case ast.List(elts=items):
                return list(self._listed(items, names))
            case ast.Set(elts=items):
                return _hashed(set, list(self._listed(items, names)))
            case ast.Dict(keys=keys, values=values):
                if None in keys:
                    raise UncomputableError("** in a dict cannot be compiled; write its items")
                pairs = zip((key for key in keys if key is not None), values, strict=True)
                return _hashed(dict, [tuple(self._listed(pair, names)) for pair in pairs])
            case ast.ListComp(elt=item, generators=loops):
                return [result for (result,) in self._comprehension((item,), loops, names)]
            case ast.GeneratorExp(elt=item, generators=loops):
                return Stream(result for (result,) in self._comprehension((item,), loops, names))
            case ast.SetComp(elt=item, generators=loops):
                return _hashed(set, [result for (result,) in self._comprehension((item,), loops, names)])
            case ast.DictComp(key=key, value=value, generators=loops):
                return _hashed(dict, list(self._comprehension((key, value), loops, names)))
        raise UncomputableError(refused_expression(node))

    def _listed(self, nodes: Iterable[ast.expr], names: Mapping[str, Any]) -> Iterator[Any]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self.items(node.value, names)
            else:
                yield self.known(node, "a listed value", names)

    def _comprehension(
        self, items: tuple[ast.expr, ...], loops: list[ast.comprehension], names: Mapping[str, Any]
    ) -> Iterator[tuple[Any, ...]]:
        if not loops:
            yield tuple(self.known(item, "the value of a comprehension", names) for item in items)
            return
        loop, *inner = loops
        if loop.is_async:
            raise self._fault(loop.iter, "async for cannot be compiled; write for")
        for value in self.items(loop.iter, names):
            scope = dict(names)
            self.unpack(loop.target, Const(value), scope)
            if all(self._settled(test, scope) for test in loop.ifs):
                yield from self._comprehension(items, inner, scope)

    def _settled(self, test: ast.expr, names: Mapping[str, Any]) -> bool:
        condition = self.read_condition(test, names)
        if not isinstance(condition, Const):
            message = f"this condition depends on {first_parameter(condition)}, known only in a prompt"
            raise self._fault(test, f"{message}; write a loop with an if in it")
        return bool(condition.value)

    def _piece(self, node: ast.expr, names: Mapping[str, Any]) -> Expr:
        """Reads a piece of an f-string."""
        if not isinstance(node, ast.FormattedValue):
            return self.read(node, names)
        value = self.read(node.value, names)
        conversion = "" if node.conversion == -1 else chr(node.conversion)
        if isinstance(value, Const):
            form = self.constant(node.format_spec, "the format", names) if node.format_spec else ""
            try:
                self.work.budget.spend(value.value)
                return Const(formatted(value.value, conversion, form))
            except UncomputableError as reason:
                raise self._fault(node, str(reason)) from None
        if conversion not in ("", "s") or node.format_spec is not None:
            message = "a parameter cannot be formatted, as only a prompt has its text; remove the format"
            raise self._fault(node, message)
        self._check_text(node, value)
        return value

    def _check_text(self, node: ast.AST, value: Expr) -> None:
        if isinstance(value, (Not, Logic, Comparison)):
            raise self._fault(node, "a condition is not text; write if and else")
        for reference in references(value):
            if reference.slot is None and not isinstance(reference.parameter.kind, (Arg, NewWords)):
                name = reference.parameter.name
                message = f"{name} is a choice, not text; write match {name}: …"
                raise self._fault(node, message)

    def _join(self, parts: Iterable[Expr]) -> Expr:
        flat: list[Expr] = []
        for part in parts:
            flat.extend(part.parts if isinstance(part, Join) else (part,))
        if all(isinstance(part, Const) for part in flat):
            joined = "".join(part.value for part in flat if isinstance(part, Const))
            return Const(self.work.budget.computed(joined))
        return Join(tuple(flat))

    def _truth(self, node: ast.expr, value: Const) -> bool:
        try:
            self.work.budget.spend(value.value)
            measure(value.value, members=False)
        except UncomputableError as reason:
            raise self._fault(node, str(reason)) from None
        return bool(value.value)

    def _logic(self, word: str, operands: list[ast.expr], names: Mapping[str, Any]) -> Expr:
        items: list[Expr] = []
        for operand in operands:
            item = self.read(operand, names)
            if isinstance(item, Const):
                if self._truth(operand, item) == (word == "or"):
                    items.append(item)
                    break
                if operand is not operands[-1]:
                    continue
            items.append(item)
        return items[0] if len(items) == 1 else Logic(word, tuple(items))

    def _comparison(self, node: ast.Compare, names: Mapping[str, Any]) -> Expr:
        sides = [self._side(side, names) for side in (node.left, *node.comparators)]
        parts = [
            self.settle(node, Comparison(COMPARISONS[type(op)], *sides[place : place + 2]))
            for place, op in enumerate(node.ops)
        ]
        if len(parts) == 1:
            return parts[0]
        if all(isinstance(part, Const) for part in parts):
            return Const(all(part.value for part in parts if isinstance(part, Const)))
        return Logic("and", tuple(parts))

    def _side(self, node: ast.expr, names: Mapping[str, Any]) -> Expr:
        """Reads a side of a comparison; a set display keeps its order, for the name of the module."""
        if isinstance(node, ast.Set):
            return Const(tuple(self._listed(node.elts, names)))
        return self.read(node, names)

    def _index(self, node: ast.expr, names: Mapping[str, Any]) -> Any:
        if not isinstance(node, ast.Slice):
            return self.constant(node, "an index", names)
        ends = (node.lower, node.upper, node.step)
        return slice(*(None if end is None else self.constant(end, "an index", names) for end in ends))

    def _attribute(self, owner: Expr, attribute: str) -> Expr:
        if isinstance(owner, Const):
            value = attribute_of(owner.value, attribute)
            return (
                read_property(self, value) if isinstance(value, Method) and value.computed else Const(value)
            )
        choice = owner.parameter.kind if isinstance(owner, Ref) else None
        enumerated = isinstance(choice, Options) and any(isinstance(option, Enum) for option in choice.values)
        if enumerated and attribute in ("name", "value"):
            return Member(owner, attribute)
        name = first_parameter(owner)
        raise UncomputableError(
            f"{name} is known only in a prompt and has no .{attribute}; use {name} itself"
        )


def check_comparison(comparison: Comparison) -> None:
    """Checks that a comparison gives the same result at compile time and in a prompt, and runs nothing.

    Raises:
        UncomputableError: it uses a custom comparison, or the identity of values that may have copies.
    """
    right = comparison.right
    if comparison.word in ("is", "is not"):
        single = isinstance(right, Const) and isinstance(right.value, (bool, Enum, type, type(None)))
        if not single:
            raise UncomputableError("'is' compares with None, True, or False here; write == for other values")
        return
    for side in (comparison.left, right):
        if isinstance(side, Const):
            measure(side.value)
            own = getattr(type(side.value), "__eq__", None)
            plain = any(own is kind.__eq__ for kind in (object, str, int, float))
            if isinstance(side.value, Enum) and not plain:
                name = type(side.value).__name__
                raise UncomputableError(
                    f"{name} has a custom comparison; compare with is, or compare the values"
                )


def _hashed(kind: Any, items: list[Any]) -> Any:
    try:
        return kind(items)
    except TypeError as error:
        raise UncomputableError(f"this cannot be listed: {error}") from None
