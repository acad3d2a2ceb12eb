"""Reads the programs and names of a Python file without running it."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.programs.source.class_files import found_by, member_kind, read_class
from engine.programs.source.constants import Budget
from engine.programs.source.errors import ProgramError
from engine.programs.source.expression_reader import ExpressionReader
from engine.programs.source.functions import Work
from engine.programs.source.objects import ReadClass, ReadFunction, Unknown, assigned_names
from engine.programs.source.pure_functions import BUILTINS, KNOWN_MODULES
from engine.programs.source.scopes import Definition, define, faults_in, parse_python
from engine.programs.source.signature import SignatureReader

_NOT_RUN: Final = "the file is not run"
_OF_CLASSES: Final = ("staticmethod", "classmethod", "property")


@dataclass(frozen=True)
class Decorated:
    """A program in a file that is not run.

    Attributes:
        definition: its function.
        name: the schema's name in the decorator, or None.
        scaffolds: the scaffolds in the decorator.
    """

    definition: Definition
    name: str | None
    scaffolds: Any


class ProgramFile:
    """A Python file that is not run.

    Args:
        source: the text of the file.
        filename: its name, for messages.
        base: the folder of included files.
        modules: importable modules, in addition to `KNOWN_MODULES`.
        decorator: the object that marks a program.
        wrap: returns the program object for a decorated function.

    Attributes:
        programs: the results of `wrap`, in file order.

    Raises:
        ProgramError: the file is not Python, or a decorator is unreadable.
    """

    def __init__(
        self,
        source: str,
        filename: str,
        base: Path | None,
        modules: Mapping[str, types.ModuleType],
        decorator: object,
        wrap: Callable[[Decorated], Any],
    ) -> None:
        self.programs: list[Any] = []
        self._filename, self._base = filename, base
        self._modules = {**KNOWN_MODULES, **modules}
        self._decorator, self._wrap = decorator, wrap
        self._names: dict[str, Any] = {}
        self._fault = faults_in(filename)
        self._tree = parse_python(source, filename)
        work = Work(Budget.of(self._tree), builds=True)
        self._reader = ExpressionReader(self._look_up, self._fault, work)
        self._annotations = SignatureReader(self._look_up, self._fault, self._reader)
        try:
            for node in self._tree.body:
                self._statement(node)
        except RecursionError:
            raise ProgramError("this is nested too deep to be read; flatten it", filename) from None

    def hidden(self) -> tuple[str, int] | None:
        """Returns the name and line of a function with a decorator `schema` that is not a known program."""
        known = {(item.definition.node.name, item.definition.node.lineno) for item in self.programs}
        for node in ast.walk(self._tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                heads = [item.func if isinstance(item, ast.Call) else item for item in node.decorator_list]
                marked = any(ast.unparse(head).rpartition(".")[2] == "schema" for head in heads)
                if marked and (node.name, node.lineno) not in known:
                    return node.name, node.lineno
        return None

    def _look_up(self, name: str) -> Any:
        return self._names[name] if name in self._names else BUILTINS[name]

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, value)
            case ast.AnnAssign():
                return
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                old = self._names.get(name)
                whole = ast.BinOp(ast.Name(name, ast.Load()), op, value)
                self._assign(target, ast.fix_missing_locations(ast.copy_location(whole, node)))
                self._forget(old, node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._names[node.name] = self._function(node)
            case ast.ClassDef():
                self._names[node.name] = read_class(node, self._reader, self._look_up, self._function)
            case ast.Expr(value=value):
                self._changed(value, node)
            case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
                return
            case _ if type(node).__name__ == "TypeAlias":
                self._assign(node.name, node.value)  # type: ignore[attr-defined]
            case _:
                reason = f"is set by the statement in line {node.lineno}, and {_NOT_RUN}"
                for name in assigned_names([node]):
                    self._names[name] = Unknown(f"{reason}; set it to a constant at the top of the file")

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        home = node.module or "" if isinstance(node, ast.ImportFrom) and node.level == 0 else ""
        module = self._modules.get(home)
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            whole = f"{home}.{alias.name}" if home else alias.name
            value: Any = None
            if isinstance(node, ast.Import):
                value = self._modules.get(whole)
                for inner in [] if alias.asname or value is None else reversed(whole.split(".")[1:]):
                    value = types.SimpleNamespace(**{inner: value})
            elif module is not None and hasattr(module, alias.name):
                value = getattr(module, alias.name)
            else:
                value = self._modules.get(whole)
            if value is None:
                where = (
                    ast.unparse(node).partition(" import ")[0].removeprefix("from ").removeprefix("import ")
                )
                reason = f"comes from {where} in line {node.lineno}, and {_NOT_RUN}"
                value = Unknown(f"{reason}; write its value here, or import the file in Python")
            self._names[name] = value

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        """Assigns values to the names of a target, or the reason why they are unknown."""
        if not isinstance(target, (ast.Name, ast.Tuple, ast.List)):
            self._changed(target, target)
            return
        try:
            names: dict[str, Any] = {}
            self._reader.unpack(target, self._reader.read(value, {}), names)
            self._names.update({name: constant.value for name, constant in names.items()})
            return
        except ProgramError as error:
            reason = error.reason
        if isinstance(target, ast.Name):
            alias = self._alias(value)
            if alias is not None:
                self._names[target.id] = alias
                return
        for name in assigned_names([target]):
            line = getattr(target, "lineno", 0)
            self._names[name] = Unknown(f"is set in line {line}, and {_NOT_RUN}: {reason}")

    def _alias(self, value: ast.expr) -> Any:
        """Returns an annotation with a name, or None if the value is no annotation."""
        try:
            return self._annotations.annotation("an alias", value)
        except (ProgramError, TypeError):
            return None

    def _changed(self, value: ast.expr, node: ast.AST) -> None:
        """Marks values as unknown if a call or an assignment may change them."""
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "print":
            return
        for part in ast.walk(value):
            if isinstance(part, ast.Name):
                self._forget(self._names.get(part.id), node)

    def _forget(self, changed: Any, node: ast.AST) -> None:
        """Marks names as unknown if they contain a changed list, dict or set."""
        if not isinstance(changed, (list, dict, set)):
            return
        reason = f"is changed in line {getattr(node, 'lineno', 0)}, and {_NOT_RUN}"
        for name, value in self._names.items():
            if _holds(value, changed):
                self._names[name] = Unknown(f"{reason}; write the whole value in one place")

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, owner: ReadClass | None = None) -> Any:
        """Returns a program, a definition, or an `Unknown` for a function of the file or of a class."""
        if owner is None:
            self._names.pop(node.name, None)
        home = owner.name if owner else ""
        definition = define(node, self._filename, self._base, self._look_up, home)
        definition = definition if owner is None else definition.of(owner)
        others = []
        for decorator in node.decorator_list:
            if self._marks(decorator):
                program = self._wrap(self._read_decorator(definition, decorator))
                self.programs.append(program)
                return program
            if owner is None or not (isinstance(decorator, ast.Name) and decorator.id in _OF_CLASSES):
                others.append(ast.unparse(decorator)[:40])
        if others:
            return Unknown(f"has the decorator @{others[0]}, but {_NOT_RUN}; remove it")
        return definition if owner is None else ReadFunction(definition, member_kind(definition))

    def _marks(self, decorator: ast.expr) -> bool:
        head = decorator.func if isinstance(decorator, ast.Call) else decorator
        return found_by(head, self._look_up) is self._decorator

    def _read_decorator(self, definition: Definition, node: ast.expr) -> Decorated:
        name, scaffolds = None, ()
        if isinstance(node, ast.Call):
            if len(node.args) > 1:
                raise definition.fault(node, "schema takes one name; pass other options by keyword")
            if node.args:
                name = self._reader.constant(node.args[0], "the name of the schema")
            for keyword in node.keywords:
                if keyword.arg == "name":
                    name = self._reader.constant(keyword.value, "the name of the schema")
                elif keyword.arg == "scaffolds":
                    scaffolds = self._reader.constant(keyword.value, "the scaffolds")
                else:
                    raise definition.fault(
                        keyword, f"schema takes only a name and scaffolds, not {keyword.arg}"
                    )
        return Decorated(definition, name, scaffolds)


def _holds(value: Any, part: Any) -> bool:
    pending = [value]
    while pending:
        item = pending.pop()
        if item is part:
            return True
        if type(item) in (list, tuple):
            pending.extend(item)
        elif type(item) is dict:
            pending.extend(item.values())
    return False
