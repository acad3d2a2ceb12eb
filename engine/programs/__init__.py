"""Compiles Python functions to schemas and prompts, without running them.

`docs/programs.md` describes the allowed statements and their results. `SchemaBuilder` builds a schema from
data.
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
