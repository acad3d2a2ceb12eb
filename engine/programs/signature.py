"""The signature of a program: its parameters, read from the annotations and defaults in the source."""

from __future__ import annotations

import ast
import types
import typing
from collections.abc import Callable
from typing import Any, Final, Literal, get_args, get_origin

from engine.pml import NAME
from engine.pml.entities import forbidden_character
from engine.programs.errors import ProgramError
from engine.programs.expressions import ExpressionReader, Fault
from engine.programs.parameters import (
    MAX_LENGTH,
    Arg,
    Flag,
    Kind,
    NewWords,
    Options,
    Parameter,
    accepts,
    expected,
    short,
)

_BUILTIN: Final[dict[str, Any]] = {"bool": bool, "str": str, "None": None}


class SignatureReader:
    """Reads the parameters of one function. Annotations are read, not run.

    Args:
        look_up: the value of a name outside of the function; raises KeyError.
        fault: makes the error for a place.
    """

    def __init__(self, look_up: Callable[[str], Any], fault: Fault) -> None:
        self._look_up = look_up
        self._fault = fault
        self._expressions = ExpressionReader(look_up, fault)

    def read(self, node: ast.FunctionDef) -> tuple[str, tuple[Parameter, ...]]:
        """The name of the recorder, and the parameters after it.

        Raises:
            ProgramError: the signature is not one that a schema can come from.
        """
        arguments = node.args
        for star in (arguments.vararg, arguments.kwarg):
            if star is not None:
                raise self._fault(star, f"*{star.arg} cannot become parameters; name each of them")
        if arguments.posonlyargs:
            raise self._fault(arguments.posonlyargs[0], "'/' is of no use here; remove it")
        if not arguments.args:
            raise self._fault(
                node, f"{node.name} has no parameter to write with; begin with {node.name}(p, …)"
            )
        first, *rest = arguments.args
        padding: list[ast.expr | None] = [None] * (len(arguments.args) - len(arguments.defaults))
        defaults = [*padding, *arguments.defaults][1:] + list(arguments.kw_defaults)
        if len(arguments.defaults) == len(arguments.args):
            raise self._fault(first, f"{first.arg} writes the text, so it has no default; remove it")
        named = rest + arguments.kwonlyargs
        return first.arg, tuple(
            self._parameter(argument, default) for argument, default in zip(named, defaults, strict=True)
        )

    def _parameter(self, argument: ast.arg, default: ast.expr | None) -> Parameter:
        if argument.annotation is None:
            message = (
                f"{argument.arg} has no annotation; write {argument.arg}: bool, Arg[5], str, or Literal[…]"
            )
            raise self._fault(argument, message)
        kind = self._kind(argument.arg, argument.annotation)
        if default is None:
            return Parameter(argument.arg, kind, argument.lineno, True)
        value = self._expressions.constant(default, f"the default of {argument.arg}")
        unset = value is None and isinstance(kind, Arg)
        if not unset and not accepts(kind, value):
            message = f"the default of {argument.arg} is {short(value)}; it takes {expected(kind)}"
            raise self._fault(argument, message)
        self._check_characters(argument, value)
        return Parameter(argument.arg, kind, argument.lineno, False, value)

    def _check_characters(self, argument: ast.AST, text: Any) -> None:
        bad = forbidden_character(text) if isinstance(text, str) else None
        if bad is not None:
            raise self._fault(argument, f"{bad!r} may stand in no document; remove it")

    def _kind(self, name: str, node: ast.expr) -> Kind:
        value = self._annotation(name, node)
        if value is Arg:
            raise self._fault(node, f"{name}: Arg has no length; write {name}: Arg[5]")
        if value is bool:
            return Flag()
        if value is str:
            return NewWords()
        if isinstance(value, Arg):
            return self._check_arg(node, name, value)
        members = get_args(value)
        if get_origin(value) is Literal:
            return self._options(node, name, members)
        if get_origin(value) in (typing.Union, types.UnionType) and types.NoneType in members:
            literals = [one for one in members if get_origin(one) is Literal]
            if len(literals) == 1 and len(members) == 2:
                return self._options(node, name, (*get_args(literals[0]), None))
        raise self._unknown(name, node)

    def _unknown(self, name: str, node: ast.AST) -> ProgramError:
        message = f"the annotation of {name} is none of bool, Arg[5], str, Literal[…], Literal[…] | None"
        return self._fault(node, message)

    def _check_arg(self, node: ast.AST, name: str, arg: Arg) -> Arg:
        if type(arg.length) is not int or not 1 <= arg.length <= MAX_LENGTH:
            message = f"the length of {name} is a whole number of tokens from 1 to {MAX_LENGTH}"
            raise self._fault(node, f"{message}; write {name}: Arg[5]")
        pml: Any = name if arg.name is None else arg.name
        if not isinstance(pml, str) or not NAME.fullmatch(pml):
            message = f'{pml!r} cannot name a parameter; write {name}: Arg({arg.length}, name="…")'
            raise self._fault(node, message)
        scaffold: Any = arg.scaffold
        if scaffold is not None and not isinstance(scaffold, str):
            raise self._fault(node, f'the scaffold of {name} is text; write scaffold="…"')
        self._check_characters(node, arg.scaffold)
        return arg

    def _options(self, node: ast.AST, name: str, values: tuple[Any, ...]) -> Options:
        for value in values:
            if value is not None and type(value) not in (str, int):
                raise self._fault(node, f"{name} cannot be {value!r}; a Literal lists text, numbers, or None")
        return Options(tuple(dict.fromkeys(values)))

    def _annotation(self, name: str, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=str(text)):
                try:
                    inner = ast.parse(text, mode="eval").body
                except (SyntaxError, ValueError):
                    raise self._unknown(name, node) from None
                for part in ast.walk(inner):
                    ast.copy_location(part, node)
                return self._annotation(name, inner)
            case ast.Constant(value=None):
                return None
            case ast.Name():
                return self._named(name, node)
            case ast.Attribute(value=ast.Name() as owner, attr=attribute):
                module = self._named(name, owner)
                if isinstance(module, types.ModuleType) and attribute in vars(module):
                    return vars(module)[attribute]
            case ast.Subscript(value=head, slice=index):
                return self._subscript(name, node, self._annotation(name, head), index)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                pair = [self._annotation(name, side) for side in (left, right)]
                literal = next((one for one in pair if get_origin(one) is Literal), None)
                if literal is not None and None in pair:
                    return typing.Optional[literal]  # noqa: UP045 - built from a value
            case ast.Call(func=head, args=[length], keywords=keywords):
                if self._annotation(name, head) is Arg:
                    return self._arg_call(name, length, keywords)
        raise self._unknown(name, node)

    def _named(self, name: str, node: ast.Name) -> Any:
        try:
            return self._look_up(node.id)
        except KeyError:
            if node.id in _BUILTIN:
                return _BUILTIN[node.id]
        raise self._fault(node, f"the annotation of {name} names {node.id}, which is not defined; import it")

    def _subscript(self, name: str, node: ast.expr, head: Any, index: ast.expr) -> Any:
        if head is Arg:
            return Arg(self._constant(name, index))
        if head is typing.Optional:
            return typing.Optional[self._annotation(name, index)]  # noqa: UP045 - built from a value
        if head is Literal:
            items = index.elts if isinstance(index, ast.Tuple) else [index]
            return Literal[tuple(self._constant(name, item) for item in items)]
        raise self._unknown(name, node)

    def _arg_call(self, name: str, length: ast.expr, keywords: list[ast.keyword]) -> Arg:
        values: dict[str, Any] = {}
        for keyword in keywords:
            if keyword.arg not in ("name", "scaffold"):
                raise self._fault(keyword, f"Arg has no option {keyword.arg}; it has name and scaffold")
            values[keyword.arg] = self._constant(name, keyword.value)
        return Arg(self._constant(name, length), **values)

    def _constant(self, name: str, node: ast.expr) -> Any:
        return self._expressions.constant(node, f"what stands in the annotation of {name}")
