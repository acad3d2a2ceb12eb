"""Writes the source of a program for a schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from engine.pml import (
    Bound,
    Module,
    NewText,
    Param,
    Role,
    RoleClose,
    RoleOpen,
    Schema,
    Text,
    Union,
    bind,
)
from engine.pml.edit.writer import written_alike
from engine.pml.tree.conversation import conversation
from engine.pml.tree.parts import part_text
from engine.pml.whitespace.separators import own_seam
from engine.programs.compile.naming import VariableNames, quoted
from engine.programs.program import compile_source
from engine.programs.source.errors import ProgramError

NEW_TEXT: Final = "new_text"  # variable for the text that a prompt adds at its end

_WIDTH: Final = 100
_WRAP: Final = 80
_INDENT: Final = "    "
_OTHER_ORDER: Final = "a call imports in the schema's order and adds text at the end only"


def to_program(schema: Schema, base: Path | None = None, bound: Bound | None = None) -> str:
    """Returns the source of a Python file whose program has this schema.

    Every module becomes a `bool` parameter, every union a `Literal`, every parameter an `Arg`. `new_text` is
    the text that a prompt adds at its end, if the schema's turns allow it.

    Args:
        schema: the schema.
        base: the folder of its `src` files; with it, the result is verified for those too.
        bound: a prompt of the schema; the file gets a function `prompt` that calls the program for it.

    Raises:
        PromptCallError: no call gives this prompt because of its order or the place of its text.
        ProgramError: Python cannot represent the schema, because it allows fewer nested blocks.
    """
    try:
        return _program(schema, base, bound, room=True)
    except PromptCallError:
        raise
    except ProgramError:  # no program has the separator between the schema's end and new text
        return _program(schema, base, bound, room=False)


def _program(schema: Schema, base: Path | None, bound: Bound | None, *, room: bool) -> str:
    """Returns the source of a program; `room` if a call may add text to the schema's last turn."""
    writer = _Writer(schema, bound, room=room)
    source = writer.write()
    try:
        # Only checks the syntax: blocks may be nested too deep. Nothing is run.
        compile(source, "<program>", "exec", dont_inherit=True)
    except (SyntaxError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else "it is nested too deep"
        raise ProgramError(f"this schema cannot be written as a program: {reason}; flatten it") from None
    if base is not None or not any(module.src for module in schema.modules()):
        program = compile_source(source, base=base)
        try:
            alike = written_alike(program.schema(), schema)
        except ProgramError as error:
            reason = str(error).partition(": ")[2] or str(error)
            message = f"this schema cannot be written as a program: {reason}"
            raise ProgramError(message) from None
        if not alike:
            raise ProgramError("this schema cannot be written as a program; check it first with pml check")
        if bound is not None:
            called = bind(schema, program(**writer.values))
            if conversation(called.parts) != conversation(bound.parts):
                raise PromptCallError(_OTHER_ORDER)
    return source


class PromptCallError(ProgramError):
    """No call of the schema's program gives this prompt."""


class _Writer:
    def __init__(self, schema: Schema, bound: Bound | None, *, room: bool) -> None:
        self._schema = schema
        self._room = room
        self._bound = bound
        self._names = VariableNames(
            schema,
            ("p", "self", "cls", "Arg", "Literal", "schema", "print", "bool", "str", "prompt", NEW_TEXT),
        )
        self._function = self._names.named(schema.name or "prompt")
        self._flags: list[str] = []
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._literal = False
        self._before_new = _before_new_words(schema) if room else frozenset()
        self._given: dict[str, str] = {}
        self.values: dict[str, Any] = {}

    def write(self) -> str:
        self._children(self._schema, 1)
        self._new_text()
        head = [*self._introduction(), ""]
        if self._literal:
            head += ["from typing import Literal", ""]
        head += [f"from engine.programs import {'Arg, ' if self._slots else ''}schema", "", ""]
        body = self._lines or [f"{_INDENT}pass"]
        main = ["", "", 'if __name__ == "__main__":', f"{_INDENT}print({self._function}.source())", ""]
        return "\n".join([*head, *self._decorator(), *self._signature(), *body, *self._call(), *main])

    def _introduction(self) -> list[str]:
        """Returns the file's docstring, with the names that have another spelling in Python."""
        first = '"""A schema as a program: compile it, or call it for a prompt.'
        pairs = [f"{_INDENT}{variable}: {name}" for variable, name in self._names.substitutes.items()]
        if not pairs:
            return [f'{first}"""']
        intro = "Names with another spelling in the schema:"
        return [first, "", intro, "", *pairs, '"""']

    def _new_text(self) -> None:
        """Adds parameters for text at the end of the prompt: in the schema's last turn, and in new turns.

        Raises:
            PromptCallError: the prompt's new text is at a place where a call cannot add it.
        """
        children = self._schema.children
        last = children[-1] if children else None
        user = isinstance(last, Role) and last.role == "user"
        filled = not isinstance(last, Role) or bool(last.children)
        outside = not self._schema.index.turns
        turns = [] if outside else [("user", "")]
        new = _added(self._bound) if self._bound else _Added(turns=turns)
        joins = self._room and filled and (user or (outside and not new.turns))
        turns = new.turns if self._bound or not joins else []
        if joins:
            self._flags.append(f'{NEW_TEXT}: str = ""')
            self._add(2 if user else 1, f'p.text({NEW_TEXT}, end="")')
            self._given.update({NEW_TEXT: new.joined} if new.joined else {})
        elif new.alone:
            turns = [("user", new.joined), *turns]
        elif new.joined:
            raise PromptCallError(self._no_room(outside and bool(turns)))
        for place, (role, text) in enumerate(turns):
            if role != "user" and not joins and not place:
                raise PromptCallError(f"its first new turn is the {role}'s, not the user's")
            name = self._names.new(NEW_TEXT) if joins or place else NEW_TEXT
            self._flags.append(f"{name}: str")
            self._add(1, f"with p.{role}():")
            self._add(2, f'p.text({name}, end="")')
            self._given[name] = text

    def _no_room(self, beside: bool) -> str:
        """Explains why a call cannot add the prompt's text; `beside` if new turns follow it."""
        if beside:
            return "it adds text outside of turns, and turns after it"
        if not self._room:
            return "its text follows a module with a separator that no program can have"
        return "its text joins a turn, but a call adds text only to the schema's last turn"

    def _call(self) -> list[str]:
        """Returns a function that calls the program for the prompt, if there is a prompt."""
        if self._bound is None:
            return []
        values = self.values = {**self._names.values(self._bound), **self._given}
        arguments = [
            f"{name}={quoted(argument) if isinstance(argument, str) else argument}"
            for name, argument in values.items()
        ]
        lines = [f"{_INDENT}return {self._function}({', '.join(arguments)})"]
        if len(lines[0]) > _WIDTH:
            listed = [f"{_INDENT * 2}{argument}," for argument in arguments]
            lines = [f"{_INDENT}return {self._function}(", *listed, f"{_INDENT})"]
        docstring = f'{_INDENT}"""The prompt that was exported with the schema."""'
        return ["", "", "def prompt():", docstring, *lines]

    def _decorator(self) -> list[str]:
        name = quoted(self._schema.name)
        scaffolds = [quoted(" ".join(entry.modules)) for entry in self._schema.scaffolds]
        if not scaffolds:
            return [f"@schema({name})"]
        return [f"@schema({name}, scaffolds=[", *(f"{_INDENT}{entry}," for entry in scaffolds), "])"]

    def _signature(self) -> list[str]:
        parameters = [*self._slots, *self._flags]
        if not parameters:
            return [f"def {self._function}(p):"]
        short = f"def {self._function}(p, *, {', '.join(parameters)}):"
        if len(short) <= _WIDTH:
            return [short]
        listed = [f"{_INDENT}{parameter}," for parameter in ("p", "*", *parameters)]
        return [f"def {self._function}(", *listed, "):"]

    def _add(self, depth: int, *lines: str) -> None:
        self._lines.extend(f"{_INDENT * depth}{line}" for line in lines)

    def _children(self, container: Schema | Role | Module, depth: int) -> None:
        start = len(self._lines)
        pending: list[Text | Param] = []
        for child in _inside(container):
            if isinstance(child, Param) or (isinstance(child, Text) and not child.seam):
                pending.append(child)
                continue
            self._text(pending, depth)
            pending = []
            match child:
                case Text(text):
                    self._add(depth, _seam_call(text))
                case Role(role):
                    self._add(depth, f"with p.{role}():")
                    self._children(child, depth + 1)
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
        seam = self._seam(module)
        last = [] if not seam or not _says(module) else [seam]
        own = [f"seam={quoted(seam)}"] if seam and not last else []
        if cache or src or own:
            options = [quoted(module.name), *cache, *src, *own]
        if options:
            self._add(depth, f"with p.module({', '.join(options)}):")
            depth += 1
        if module.src is not None:
            self._add(depth, "p.include()")
        else:
            self._children(module, depth)
            self._add(depth, *map(_seam_call, last))

    def _seam(self, module: Module) -> str:
        """Returns the separator of a module; an implied one counts only if new words can follow it."""
        seam = own_seam(module)
        return seam.text if seam and (not seam.implied or module.path in self._before_new) else ""

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
        if part.repeats:
            return [name]
        options = [] if name == part.name else [f"name={quoted(part.name)}"]
        if part.scaffold is not None:
            options.append(f"scaffold={quoted(part.scaffold)}")
        kind = f"Arg({', '.join([str(part.length), *options])})" if options else f"Arg[{part.length}]"
        default = "None" if part.default is None else quoted(part.default)
        self._slots.append(f"{name}: {kind} = {default}")
        return [name]


def _inside(container: Schema | Role | Module) -> tuple[Any, ...]:
    """Returns the children of a container, without a module's own separator."""
    own = isinstance(container, Module) and own_seam(container) is not None
    return container.children[:-1] if own else container.children


@dataclass
class _Added:
    """The text that a prompt adds at its end.

    Attributes:
        joined: text that continues the existing text.
        alone: whether it is the only text of its turn.
        turns: new turns, as roles and texts.
    """

    joined: str = ""
    alone: bool = False
    turns: list[tuple[str, str]] = field(default_factory=list)


def _added(bound: Bound) -> _Added:
    """Returns the text that a prompt adds at its end.

    Raises:
        PromptCallError: text of the schema follows it.
    """
    added, words, empty = _Added(), False, False
    turn: RoleOpen | None = None
    for part in bound.parts:
        if isinstance(part, RoleOpen):
            turn, empty = part, True
            added.turns.extend([(part.role, "")] if part.new else [])
        elif isinstance(part, RoleClose):
            turn = None
        elif isinstance(part, NewText):
            words = words or not part.seam
            if turn and turn.new:
                role, text = added.turns.pop()
                added.turns.append((role, text + part.text))
            else:
                added.joined += part.text
                added.alone = turn is not None and empty
        elif part_text(part):
            if words:
                raise PromptCallError(_OTHER_ORDER)
            added.joined = ""  # a line break in place of an omitted turn
            empty = False
    return added


def _before_new_words(schema: Schema) -> frozenset[str]:
    """Returns the paths of the modules after which a prompt adds its text."""
    last: Any = schema.children[-1] if schema.children else None
    if isinstance(last, Role):
        last = last.children[-1] if last.role == "user" and last.children else None
    elif any(isinstance(child, Role) for child in schema.children):
        return frozenset()
    members = last.members if isinstance(last, Union) else (last,) if isinstance(last, Module) else ()
    return frozenset(module.path for module in members)


def _says(module: Module) -> bool:
    """Whether a module ends with text of its own that is never empty."""
    inside = _inside(module)
    texts = any(isinstance(child, Text) and not child.seam for child in inside)
    return module.src is None and texts and isinstance(inside[-1], (Text, Param))


def _seam_call(seam: str) -> str:
    return "p.seam()" if seam == "\n" else f"p.seam({quoted(seam)})"


def _wrapped(text: str) -> Iterator[str]:
    """Yields the lines of a text; long lines are split after spaces."""
    for line in re.findall(r"[^\n]*\n|[^\n]+", text) or [""]:
        while len(line) > _WRAP and " " in line[:-1]:
            cut = line.rfind(" ", 0, _WRAP) + 1 or line.find(" ") + 1
            if cut >= len(line):
                break
            yield line[:cut]
            line = line[cut:]
        yield line
