"""The standard streams of a command: any of them may be closed from the start, or lose its reader."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from engine.base.errors import PromptCacheError

UNREAD = 141
"""The status of a command whose output nobody reads on, as of one that the signal of it has ended."""


class UnreadError(Exception):
    """Nobody reads the output any more."""


class UnwritableError(PromptCacheError):
    """A standard stream takes nothing: the disk that it goes to is full."""


@contextlib.contextmanager
def in_words(name: str) -> Iterator[None]:
    """Says what goes wrong while a standard stream is written to.

    Args:
        name: how the stream is called.

    Raises:
        BrokenPipeError: nobody reads it.
        UnwritableError: it cannot be written for another reason.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnwritableError(f"{name} cannot be written: {error.strerror or error}.") from None


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
        UnwritableError: it cannot be written for another reason.
    """
    with in_words("Standard output"):
        sys.stdout.flush()
    with in_words("Standard error"):
        sys.stderr.flush()


def abandon(*streams: TextIO) -> None:
    """Has what is left in streams go nowhere: else the interpreter tries again as it ends, and complains."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        with contextlib.suppress(OSError, ValueError):  # who takes its place may have no number
            os.dup2(null, stream.fileno())
    os.close(null)
