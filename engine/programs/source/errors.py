"""Errors in a program, or in the arguments of its call."""

from __future__ import annotations

from pathlib import Path

from engine.base.errors import PromptCacheError


class ProgramError(PromptCacheError):
    """A program that has no schema, or a schema that has no program.

    Attributes:
        reason: the error and its fix.
        filename: the Python file, or "".
        line: the line in that file, from 1, or 0.
    """

    def __init__(self, reason: str, filename: str = "", line: int = 0) -> None:
        self.reason, self.filename, self.line = reason, filename, line
        place = f"{Path(filename).name}, line {line}: " if filename and line else ""
        super().__init__(place + reason)


class ProgramArgumentError(ProgramError, TypeError):
    """A call of a program has invalid arguments."""
