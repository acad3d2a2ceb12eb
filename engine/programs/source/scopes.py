"""Finds the source of a program, and the values of names outside of it."""

from __future__ import annotations

import ast
import inspect
import linecache
import types
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from engine.programs.source.errors import ProgramError
from engine.programs.source.expressions import Fault
from engine.programs.source.objects import MISSING, Defaults, Finder, ReadClass, Record
from engine.programs.source.pure_functions import BUILTINS

FunctionKind = Literal["function", "method", "class", "static"]  # the kind of a function in its class, if any

_WRAPPED: Final[dict[str, FunctionKind]] = {"staticmethod": "static", "classmethod": "class"}


@dataclass(frozen=True, eq=False)
class Definition:
    """A function in its file.

    Attributes:
        node: its syntax tree; lines count in the file.
        filename: the file.
        base: the folder of the file, if any.
        look_up: the value of a name outside the function; raises KeyError.
        kind: its kind in its class.
        owner: name of its class, or "".
        receiver: in a class, the object of its first parameter; else MISSING.
        waits: whether it is `async`.
    """

    node: ast.FunctionDef
    filename: str
    base: Path | None
    look_up: Finder
    kind: FunctionKind = "function"
    owner: str = ""
    receiver: Any = MISSING
    waits: bool = False

    @property
    def fault(self) -> Fault:
        """Makes the error for a place in the file."""
        return faults_in(self.filename)

    @property
    def name(self) -> str:
        """Its name, prefixed with that of its class."""
        return f"{self.owner}.{self.node.name}" if self.owner else self.node.name

    @property
    def place(self) -> tuple[str, int, int]:
        """File, line and column, which are stable across reads."""
        return self.filename, self.node.lineno, self.node.col_offset

    @property
    def takes_receiver(self) -> bool:
        """Whether its first parameter is the object or the class."""
        return self.kind in ("method", "class")

    def of(self, receiver: Any) -> Definition:
        """Returns the definition as a method of an object or a class.

        A class gives only the values that it sets.
        """
        home = receiver if isinstance(receiver, (type, ReadClass)) else type(receiver)
        if isinstance(receiver, (Record, Defaults)):
            home = receiver.kind
        if self.kind == "class":
            receiver = home
        elif receiver is home:
            receiver = Defaults(home)
        return replace(self, receiver=receiver)


def faults_in(filename: str) -> Fault:
    """Returns a function that makes the error for a place in a file."""
    return lambda node, reason: ProgramError(reason, filename, getattr(node, "lineno", 0))


def parse_python(source: str, filename: str) -> ast.Module:
    """Parses a Python file without running it.

    Raises:
        ProgramError: it is not Python.
    """
    try:
        return ast.parse(source, filename)
    except SyntaxError as error:
        raise ProgramError(f"this is not valid Python: {error.msg}", filename, error.lineno or 0) from None
    except ValueError as error:
        raise ProgramError(f"this is not valid Python: {error}", filename) from None
    except (RecursionError, MemoryError):
        raise ProgramError("this is nested too deep to be read; flatten it", filename) from None


def definition_of(function: types.FunctionType) -> Definition:
    """Returns the source of an imported function.

    Raises:
        ProgramError: there is no source, or it no longer matches the function.
    """
    name = function.__name__
    filename = inspect.getsourcefile(function) or function.__code__.co_filename
    lines = linecache.getlines(filename, function.__globals__)
    first = function.__code__.co_firstlineno
    if not lines:
        message = f"the source of {name} cannot be found; write it in a file"
        raise ProgramError(message, filename, first)
    classes: dict[int, str] = {}
    for node in ast.walk(parse_python("".join(lines), filename)):
        if isinstance(node, ast.ClassDef):
            classes.update({id(inner): node.name for inner in node.body})
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if start == first:
                owner = classes.get(id(node), "")
                return define(node, filename, _folder(filename), _live(function), owner)
    message = f"{name} has moved in its file; import the file again"
    raise ProgramError(message, filename, first)


def define(
    node: ast.FunctionDef | ast.AsyncFunctionDef,
    filename: str,
    base: Path | None,
    look_up: Finder,
    owner: str,
) -> Definition:
    """Returns the definition of a function in a file; `owner` is the name of its class, or ""."""
    kind: FunctionKind = "method" if owner else "function"
    for decorator in node.decorator_list:
        if owner and isinstance(decorator, ast.Name):
            kind = _WRAPPED.get(decorator.id, kind)
    waits = isinstance(node, ast.AsyncFunctionDef)
    plain = node if isinstance(node, ast.FunctionDef) else ast.FunctionDef(**dict(ast.iter_fields(node)))
    ast.copy_location(plain, node)
    return Definition(plain, filename, base, look_up, kind, owner, waits=waits)


def _folder(filename: str) -> Path | None:
    path = Path(filename)
    return path.parent if path.is_file() else None


def _live(function: types.FunctionType) -> Finder:
    def look_up(name: str) -> Any:
        cells = function.__closure__ or ()
        for free, cell in zip(function.__code__.co_freevars, cells, strict=True):
            if free == name:
                try:
                    return cell.cell_contents
                except ValueError:
                    raise KeyError(name) from None
        return function.__globals__[name] if name in function.__globals__ else BUILTINS[name]

    return look_up
