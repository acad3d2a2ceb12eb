"""Handles closed or broken standard streams."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from engine.base.errors import PromptCacheError

UNREAD = 141  # exit status for a broken pipe, the same as for a process ended by SIGPIPE


class UnreadError(Exception):
    """The reader of the output is gone."""


class UnwritableError(PromptCacheError):
    """A standard stream is not writable, mostly because the disk is full."""


@contextlib.contextmanager
def in_words(name: str) -> Iterator[None]:
    """Converts errors of writing to the standard stream `name`.

    Raises:
        BrokenPipeError: the reader is gone.
        UnwritableError: writing failed for another reason.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnwritableError(f"{name} cannot be written: {error.strerror or error}.") from None


def stand_in() -> None:
    """Opens the null device for closed standard streams, so that no other file gets their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, this one
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - for good


def flush() -> None:
    """Flushes the standard streams.

    Raises:
        BrokenPipeError: the reader is gone.
        UnwritableError: writing failed for another reason.
    """
    with in_words("Standard output"):
        sys.stdout.flush()
    with in_words("Standard error"):
        sys.stderr.flush()


def abandon(*streams: TextIO) -> None:
    """Discards unwritten output, because the interpreter would retry at exit and print an error."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        with contextlib.suppress(OSError, ValueError):  # a replaced stream may have no descriptor
            os.dup2(null, stream.fileno())
    os.close(null)
