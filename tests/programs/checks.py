"""What tests of programs share: files with one program, and whether its prompts spell what it writes."""

from __future__ import annotations

import textwrap
from typing import Any

from engine.pml import bind
from engine.pml.tree.conversation import conversation
from engine.programs import Program, compile_source
from tests.programs.sources import load

IMPORTS = (
    "from dataclasses import dataclass, field\nfrom enum import Enum, IntEnum, StrEnum, auto\n"
    "from typing import Literal, NamedTuple, Optional\nfrom engine.programs import Arg, schema\n"
)
PARAMETERS = "a: Arg[5] = None, flag: bool = False, other: bool = False"


def file_of(statements: str, above: str = "", parameters: str = PARAMETERS) -> str:
    """A file with the function `program`, which writes with p."""
    lines = textwrap.indent(textwrap.dedent(statements).strip("\n"), "    ")
    top = textwrap.dedent(above).strip("\n")
    return f"{IMPORTS}{top}\n@schema\ndef program(p, {parameters}):\n{lines}\n"


def both(source: str, name: str = "program") -> Program:
    """The program of a file that is run, whose schema is that of the file when it is only read."""
    program = load(source, name)
    assert compile_source(source, name=name).schema() == program.schema(), source
    return program


def written(program: Program, **given: Any) -> str:
    """What a program writes, which its prompt spells."""
    bound = bind(program.schema(), program(**given))
    assert bound.ok, bound.diagnostics
    assert conversation(bound.parts) == program.messages(**given)
    return program.text(**given)


def paths_of(program: Program) -> list[str]:
    return [module.path for module in program.schema().modules()]
