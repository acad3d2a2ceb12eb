"""What can be wrong with a program, or with the arguments it is given."""

from __future__ import annotations

from pathlib import Path

from engine.base.errors import PromptCacheError


class ProgramError(PromptCacheError):
    """A program that has no schema, or a schema that has no program.

    Attributes:
        reason: what is wrong, and what to do.
        filename: the Python file, empty where the fault is in no file.
        line: the line in that file, from 1; 0 where the fault is at no line.
    """

    def __init__(self, reason: str, filename: str = "", line: int = 0) -> None:
        self.reason, self.filename, self.line = reason, filename, line
        place = f"{Path(filename).name}, line {line}: " if filename and line else ""
        super().__init__(place + reason)


class ProgramArgumentError(ProgramError, TypeError):
    """A program is called with arguments that it does not take."""
