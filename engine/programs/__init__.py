"""Python functions as schemas and prompts: the source is compiled, and nothing is run to compile it.

`docs/programs.md` says what a program may hold and what becomes of it. `SchemaBuilder` puts a schema
together from data.
"""

from __future__ import annotations

from engine.programs.builder import Part, SchemaBuilder, SchemaError, Slot, Turn
from engine.programs.program import Program, compile_source, schema
from engine.programs.source.errors import ProgramArgumentError, ProgramError
from engine.programs.source.parameters import Arg
from engine.programs.writer import PromptCallError, to_program
from engine.programs.writer_api import Recorder

__all__ = [
    "Arg",
    "Part",
    "Program",
    "ProgramArgumentError",
    "ProgramError",
    "PromptCallError",
    "Recorder",
    "SchemaBuilder",
    "SchemaError",
    "Slot",
    "Turn",
    "compile_source",
    "schema",
    "to_program",
]
