"""The standard streams of a command: any of them may be closed from the start, or lose its reader."""

from __future__ import annotations

import contextlib
import os
import sys

UNREAD = 141
"""The status of a command whose output nobody reads on, as of one that the signal of it has ended."""


class UnreadError(Exception):
    """Nobody reads the output any more."""


def stand_in() -> None:
    """Puts the null device where a standard stream is closed, so that no other file gets its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - for good


def flush() -> None:
    """Writes what is left.

    Raises:
        BrokenPipeError: nobody reads it.
    """
    sys.stdout.flush()
    sys.stderr.flush()


def abandon() -> None:
    """Has what is left go nowhere: else the interpreter tries once more as it ends, and complains."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # who takes its place may have no number
            os.dup2(null, stream.fileno())
    os.close(null)
