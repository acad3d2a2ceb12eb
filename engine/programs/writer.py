"""From a schema to the source of a program that compiles to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from engine.pml import Module, Param, Role, Schema, Text, Union
from engine.programs.errors import ProgramError
from engine.programs.naming import VariableNames, quoted
from engine.programs.program import compile_source

_WIDTH: Final = 100
_WRAP: Final = 80
_INDENT: Final = "    "


def to_program(schema: Schema, base: Path | None = None) -> str:
    """The source of a Python file whose program has this schema.

    Every module becomes a `bool` parameter, every union a `Literal`, every parameter an `Arg`.

    Args:
        schema: The schema.
        base: The folder of its `src` files; with it, the result is checked for those too.

    Raises:
        ProgramError: Python cannot spell it: it is nested deeper than Python's own blocks may be.
    """
    source = _Writer(schema).write()
    try:
        # Only a check of the syntax tree: blocks nested too deep show here, and nothing is run.
        compile(source, "<program>", "exec", dont_inherit=True)
    except (SyntaxError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "it is nested too deep"
        raise ProgramError(f"this schema cannot be written as a program: {reason}; flatten it") from None
    if base is not None or not any(module.src for module in schema.modules()):
        found = compile_source(source, base=base).schema()
        if found != schema:
            raise ProgramError("this schema cannot be written as a program; check it first with pml check")
    return source


class _Writer:
    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._names = VariableNames(schema, ("p", "Arg", "Literal", "schema", "print", "bool"))
        self._function = self._names.new(schema.name or "prompt")
        self._flags: list[str] = []
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._literal = False

    def write(self) -> str:
        self._children(self._schema.children, 1)
        head = ['"""A schema as a program: compile it, or call it for a prompt."""', ""]
        if self._literal:
            head += ["from typing import Literal", ""]
        head += [f"from engine.programs import {'Arg, ' if self._slots else ''}schema", "", ""]
        body = self._lines or [f"{_INDENT}pass"]
        main = ["", "", 'if __name__ == "__main__":', f"{_INDENT}print({self._function}.source())", ""]
        return "\n".join([*head, *self._decorator(), *self._signature(), *body, *main])

    def _decorator(self) -> list[str]:
        name = quoted(self._schema.name)
        scaffolds = [quoted(" ".join(one.modules)) for one in self._schema.scaffolds]
        if not scaffolds:
            return [f"@schema({name})"]
        return [f"@schema({name}, scaffolds=[", *(f"{_INDENT}{one}," for one in scaffolds), "])"]

    def _signature(self) -> list[str]:
        parameters = [*self._slots, *self._flags]
        if not parameters:
            return [f"def {self._function}(p):"]
        short = f"def {self._function}(p, *, {', '.join(parameters)}):"
        if len(short) <= _WIDTH:
            return [short]
        listed = [f"{_INDENT}{one}," for one in ("p", "*", *parameters)]
        return [f"def {self._function}(", *listed, "):"]

    # Statements

    def _add(self, depth: int, *lines: str) -> None:
        self._lines.extend(f"{_INDENT * depth}{line}" for line in lines)

    def _children(self, children: tuple[Any, ...], depth: int) -> None:
        start = len(self._lines)
        pending: list[Text | Param] = []
        for child in children:
            if isinstance(child, (Text, Param)):
                pending.append(child)
                continue
            self._text(pending, depth)
            pending = []
            match child:
                case Role(role, inner):
                    self._add(depth, f"with p.{role}():")
                    self._children(inner, depth + 1)
                case Union():
                    self._union(child, depth)
                case Module():
                    flag = self._names.of(child)
                    self._flags.append(f"{flag}: bool = False")
                    self._add(depth, f"if {flag}:")
                    self._module(child, depth + 1, flag)
        self._text(pending, depth)
        if len(self._lines) == start:
            self._add(depth, "pass")

    def _union(self, union: Union, depth: int) -> None:
        if union.scaffold is not None or not union.members:
            option = "" if union.scaffold is None else f"scaffold={quoted(union.scaffold)}"
            self._add(depth, f"with p.union({option}):")
            depth += 1
        if not union.members:
            self._add(depth, "pass")
            return
        chosen = self._names.of(union)
        self._literal = True
        values = [quoted(member.name) for member in union.members]
        flag = f"{chosen}: Literal[{', '.join(values)}] | None = None"
        if len(flag) + len(_INDENT) >= _WIDTH:
            listed = "".join(f"{_INDENT * 2}{value},\n" for value in values)
            flag = f"{chosen}: Literal[\n{listed}{_INDENT}] | None = None"
        self._flags.append(flag)
        self._add(depth, f"match {chosen}:")
        for member in union.members:
            self._add(depth + 1, f"case {quoted(member.name)}:")
            self._module(member, depth + 2, "")

    def _module(self, module: Module, depth: int, named: str) -> None:
        options = [] if named in ("", module.name) else [quoted(module.name)]
        cache = [] if module.cache else ["cache=False"]
        src = [] if module.src is None else [f"src={quoted(module.src)}"]
        if cache or src:
            options = [quoted(module.name), *cache, *src]
        if options:
            self._add(depth, f"with p.module({', '.join(options)}):")
            depth += 1
        if module.src is not None:
            self._add(depth, "p.include()")
        else:
            self._children(module.children, depth)

    def _text(self, parts: list[Text | Param], depth: int) -> None:
        if not parts:
            return
        pieces = [self._piece(part) for part in parts[:-1]]
        last, end = parts[-1], ['end=""']
        if isinstance(last, Text) and last.text.endswith("\n"):
            last, end = Text(last.text[:-1], last.span), []
        if not isinstance(last, Text) or last.text:
            pieces.append(self._piece(last))
        arguments = [*pieces, *([end] if end else [])]
        flat = f"p.text({', '.join(' '.join(piece) for piece in arguments)})"
        if len(flat) + len(_INDENT) * depth <= _WIDTH and all(len(piece) == 1 for piece in arguments):
            self._add(depth, flat)
            return
        self._add(depth, "p.text(")
        for piece in arguments:
            *first, final = piece
            self._add(depth + 1, *first, f"{final},")
        self._add(depth, ")")

    def _piece(self, part: Text | Param) -> list[str]:
        if isinstance(part, Text):
            return [quoted(line) for line in _wrapped(part.text)]
        name = self._names.of(part)
        options = [] if name == part.name else [f"name={quoted(part.name)}"]
        if part.scaffold is not None:
            options.append(f"scaffold={quoted(part.scaffold)}")
        kind = f"Arg({', '.join([str(part.length), *options])})" if options else f"Arg[{part.length}]"
        default = "None" if part.default is None else quoted(part.default)
        self._slots.append(f"{name}: {kind} = {default}")
        return [name]


def _wrapped(text: str) -> Iterator[str]:
    """A text in pieces of a line each; long lines are cut after spaces."""
    for line in re.findall(r"[^\n]*\n|[^\n]+", text) or [""]:
        while len(line) > _WRAP and " " in line[:-1]:
            cut = line.rfind(" ", 0, _WRAP) + 1 or line.find(" ") + 1
            if cut >= len(line):
                break
            yield line[:cut]
            line = line[cut:]
        yield line
