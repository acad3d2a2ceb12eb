"""Where the source of a program is, and what the names outside of it stand for."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.programs.errors import ProgramError
from engine.programs.expressions import Const, ExpressionReader, Fault


@dataclass(frozen=True)
class Definition:
    """A function in its file.

    Attributes:
        node: its syntax tree; lines count in the file.
        filename: the file.
        base: the folder of the file, where there is one.
        look_up: the value of a name outside of the function; raises KeyError.
    """

    node: ast.FunctionDef
    filename: str
    base: Path | None
    look_up: Callable[[str], Any]

    @property
    def fault(self) -> Fault:
        """Makes the error for a place in the file."""
        return faults_in(self.filename)


def faults_in(filename: str) -> Fault:
    """Returns what makes the error for a place in a file."""
    return lambda node, reason: ProgramError(reason, filename, getattr(node, "lineno", 0))


def parse_python(source: str, filename: str) -> ast.Module:
    """The syntax tree of a Python file, which is not run.

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
    """The source of a function that was imported.

    Raises:
        ProgramError: its source cannot be found, or is no longer that of the function.
    """
    name = function.__name__
    filename = inspect.getsourcefile(function) or function.__code__.co_filename
    lines = linecache.getlines(filename, function.__globals__)
    first = function.__code__.co_firstlineno
    if not lines:
        message = f"the source of {name} cannot be found; write it in a file, from which it can be compiled"
        raise ProgramError(message, filename, first)
    for node in ast.walk(parse_python("".join(lines), filename)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
            start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if start == first:
                return Definition(_plain(node, filename), filename, _folder(filename), _live(function))
    message = f"{name} is not at this line of its file any more; import the file again"
    raise ProgramError(message, filename, first)


def _plain(node: ast.FunctionDef | ast.AsyncFunctionDef, filename: str) -> ast.FunctionDef:
    if isinstance(node, ast.AsyncFunctionDef):
        raise ProgramError(f"{node.name} is asynchronous; write def", filename, node.lineno)
    return node


def _folder(filename: str) -> Path | None:
    path = Path(filename)
    return path.parent if path.is_file() else None


def _live(function: types.FunctionType) -> Callable[[str], Any]:
    def look_up(name: str) -> Any:
        cells = function.__closure__ or ()
        for free, cell in zip(function.__code__.co_freevars, cells, strict=True):
            if free == name:
                try:
                    return cell.cell_contents
                except ValueError:
                    raise KeyError(name) from None
        return function.__globals__[name]

    return look_up


@dataclass(frozen=True)
class Decorated:
    """A program in a file that is read and not run.

    Attributes:
        definition: its function.
        name: the name of the schema that the decorator gives; None where it gives none.
        scaffolds: the scaffolds that the decorator gives.
    """

    definition: Definition
    name: str | None
    scaffolds: Any


def decorated_in(
    source: str,
    filename: str,
    base: Path | None,
    modules: Mapping[str, types.ModuleType],
    decorator: object,
    wrap: Callable[[Decorated], Any],
) -> list[Any]:
    """The programs in a Python file, which is read and never run.

    Args:
        source: the text of the file.
        filename: its name, for messages.
        base: the folder that files are included from.
        modules: modules that may be imported besides those of the standard library that are known here.
        decorator: the object that marks a program.
        wrap: makes what calls of a program find.

    Returns:
        What `wrap` made, in the order of the file.

    Raises:
        ProgramError: it is not Python, or a decorator cannot be read.
    """
    names: dict[str, Any] = {}
    known = {**_KNOWN, **modules}
    fault = faults_in(filename)
    reader = ExpressionReader(names.__getitem__, fault)
    found: list[Any] = []
    for node in parse_python(source, filename).body:
        match node:
            case ast.Import() | ast.ImportFrom():
                _import(node, names, known)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                _assign(name, value, names, reader)
            case ast.FunctionDef():
                names.pop(node.name, None)
                call = _decoration(node, names, decorator)
                if call is not None:
                    definition = Definition(node, filename, base, names.__getitem__)
                    names[node.name] = wrap(_read_decorator(definition, call, reader))
                    found.append(names[node.name])
    return found


_KNOWN: Final = {"typing": typing, "textwrap": textwrap, "inspect": inspect}


def _import(node: ast.Import | ast.ImportFrom, names: dict[str, Any], known: Mapping[str, Any]) -> None:
    module = known.get(node.module or "") if isinstance(node, ast.ImportFrom) and node.level == 0 else None
    for alias in node.names:
        name = alias.asname or alias.name
        if isinstance(node, ast.Import):
            if alias.name in known and "." not in name:
                names[name] = known[alias.name]
        elif module is not None and hasattr(module, alias.name):
            names[name] = getattr(module, alias.name)
        elif f"{node.module}.{alias.name}" in known:
            names[name] = known[f"{node.module}.{alias.name}"]


def _assign(name: str, value: ast.expr, names: dict[str, Any], reader: ExpressionReader) -> None:
    """A constant of the file; what cannot be known without running it stays unknown."""
    names.pop(name, None)
    try:
        names[name] = ast.literal_eval(value)
        return
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        pass
    try:
        expression = reader.read(value, {})
    except ProgramError:
        return
    if isinstance(expression, Const):
        names[name] = expression.value


def _decoration(node: ast.FunctionDef, names: Mapping[str, Any], decorator: object) -> ast.expr | None:
    """The decorator that makes a function a program."""
    for one in node.decorator_list:
        head = one.func if isinstance(one, ast.Call) else one
        if isinstance(head, ast.Name) and names.get(head.id) is decorator:
            return one
        if isinstance(head, ast.Attribute) and isinstance(head.value, ast.Name):
            module = names.get(head.value.id)
            if inspect.ismodule(module) and vars(module).get(head.attr) is decorator:
                return one
    return None


def _read_decorator(definition: Definition, node: ast.expr, reader: ExpressionReader) -> Decorated:
    name, scaffolds = None, ()
    if isinstance(node, ast.Call):
        if len(node.args) > 1:
            raise definition.fault(node, "schema takes one name; give other things by their names")
        if node.args:
            name = reader.constant(node.args[0], "the name of the schema")
        for keyword in node.keywords:
            if keyword.arg == "name":
                name = reader.constant(keyword.value, "the name of the schema")
            elif keyword.arg == "scaffolds":
                scaffolds = _scaffolds(keyword.value, reader)
            else:
                raise definition.fault(keyword, f"schema takes a name and scaffolds, and no {keyword.arg}")
    return Decorated(definition, name, scaffolds)


def _scaffolds(node: ast.expr, reader: ExpressionReader) -> Any:
    if isinstance(node, (ast.List, ast.Tuple)):
        return tuple(reader.constant(item, "a scaffold") for item in node.elts)
    return reader.constant(node, "the scaffolds")
