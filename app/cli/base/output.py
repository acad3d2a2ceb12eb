"""How `pml` speaks: tables for people, one JSON object for programs, progress bars on a terminal.

Every command prints through `say`, `emit` and `print_json`, so that text of documents, models and stores
never reaches a terminal with control characters in it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from app.base.sizes import size
from app.cli.base.streams import in_words

Progress = Callable[[int, int, str], None]

_MINUTE = 60.0
_WINDOW = 10.0  # seconds over which a rate is measured
_LONG = 1 << 30  # bytes of weights; fewer are loaded before a bar is seen
_BAR = "%(label)s %(bar)s %(info)s"
_ERASE = "\r\x1b[K\x1b[?25h"  # the line of the bar; the cursor, which click hides, is shown again
# Text of documents and models may hold escape sequences; a terminal must not obey them.
_CONTROLS = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"
_SURROGATES = "\\ud800-\\udfff"  # half a character cannot be encoded
_UNSEEN = re.compile(f"[{_CONTROLS}{_SURROGATES}]")
# In a name also what breaks a line or turns its direction.
_UNSEEN_IN_NAMES = re.compile(f"[\\t\\n\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069{_CONTROLS}{_SURROGATES}]")
_UNSEEN_IN_JSON = re.compile(f"[\\x7f-\\x9f\\u2028\\u2029{_SURROGATES}]")  # the others json escapes itself


@dataclass
class Console:
    """What the whole invocation shares: how to report a fault.

    Attributes:
        debug: print tracebacks.
        json: standard output carries one JSON object, also for a fault.
    """

    debug: bool = False
    json: bool = False

    def fail(self, message: str, *, hint: str = "") -> None:
        """Reports a fault that ends the command."""
        if self.json:
            print_json({"error": message})
        say(f"pml: {message}", err=True)
        if hint and not self.debug:
            say(hint, err=True)


class PrintableFormatter(logging.Formatter):
    """Log lines as a terminal may see them."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the line of a record."""
        return printable(super().format(record))


def say(text: str, *, err: bool = False, nl: bool = True, bold: bool = False) -> None:
    """Prints text for people, on standard output or on standard error."""
    shown = printable(text)
    if bold and not (_is_dumb() or os.environ.get("NO_COLOR")):
        shown = click.style(shown, bold=True)
    with in_words("Standard error" if err else "Standard output"):
        click.echo(shown, err=err, nl=nl)


def _is_dumb() -> bool:
    """Whether the terminal obeys no escape sequences."""
    return os.environ.get("TERM") == "dumb"


def agreed(question: str) -> bool:
    """Asks on stderr, where somebody can answer, whether to go on; Enter alone is a no."""
    return click.confirm(printable(question), err=True)


def emit(document: str, *, nl: bool = False) -> None:
    """Prints a document: as it is into a file or a pipe, printable on a terminal."""
    with in_words("Standard output"):
        click.echo(printable(document) if sys.stdout.isatty() else document, nl=nl)


def printable(text: str) -> str:
    """Returns `text` with control characters replaced, line breaks and tabs kept."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)


def inline(text: str) -> str:
    """Returns a name, key or path on one line: line breaks, control characters and the like as escapes."""
    return _UNSEEN_IN_NAMES.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def print_json(value: Mapping[str, object]) -> None:
    """Prints the one object of `--json`, in which control characters stand as escapes."""
    with in_words("Standard output"):
        click.echo(_as_json(value, indent=2))


def json_line(value: Mapping[str, object]) -> str:
    """Returns an object as one line of JSON without its end, control characters as escapes."""
    return _as_json(value, indent=None)


def _as_json(value: Mapping[str, object], *, indent: int | None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    # Outside its strings JSON has none of these but line breaks and blanks.
    return _UNSEEN_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Lays out `rows` under `head`; the first `left` columns are flush left, the others flush right."""
    cells = [list(head), *[[inline(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = []
    for row in cells:
        padded = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def counted(count: int, noun: str) -> str:
    """Returns `1 module`, `2 modules`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _silent(_done: int, _total: int, _what: str) -> None:
    """The progress of a command whose stderr nobody watches."""


def a_line_a_minute(*, of_total: bool) -> Progress:
    """Returns a function `(done, total, what)` for who reads stderr later: a line a minute, none at first.

    Args:
        of_total: whether `total` is known.
    """
    last = time.monotonic()

    def report(done: int, total: int, what: str) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= _MINUTE:
            last = now
            say(f"pml: {done}{f'/{total}' if of_total else ''} {inline(what)}", err=True)

    return report


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Gives a function `(done, total, what)` that draws a bar on a terminal and does nothing in a pipe."""
    if not sys.stderr.isatty() or _is_dumb():
        yield _silent
        return

    bar: Any = None

    def erase() -> None:
        nonlocal bar
        if bar is not None:
            click.echo(_ERASE, file=sys.stderr, nl=False)
            bar = None

    def report(done: int, total: int, what: str) -> None:
        nonlocal bar
        if bar is None:
            bar = click.progressbar(
                length=total,
                file=sys.stderr,
                width=0,
                show_pos=True,
                show_eta=False,
                update_min_steps=0,  # what is done already changes its label too
                bar_template=_BAR,
                fill_char="█",
                empty_char=" ",
            )
        bar.label = inline(what)
        bar.update(done - bar.pos)
        if done >= total:
            erase()

    try:
        yield report
    finally:
        erase()


class Pace:
    """How fast bytes come, over the last seconds, and when all are there."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._what = clock, ""
        self._seen: deque[tuple[float, int]] = deque()

    def words(self, what: str, done: int, total: int) -> str:
        """Returns rate and time left; "" at first."""
        if what != self._what:
            self._what = what
            self._seen.clear()
        now = self._clock()
        self._seen.append((now, done))
        while len(self._seen) > 2 and self._seen[1][0] < now - _WINDOW:
            self._seen.popleft()
        since, before = self._seen[0]
        if now - since < 1 or done <= before:
            return ""
        rate = (done - before) / (now - since)
        seconds = max(0, total - done) / rate
        left = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
        return f", {size(round(rate))}/s, {left} left"


@contextmanager
def reading_bar(*, aloud: bool = False) -> Iterator[Progress]:
    """Gives a function `(bytes done, bytes in all, what)` for the files of a model.

    Args:
        aloud: without a terminal, say in one line that reading one that was not seen before takes a while.
    """
    said = sys.stderr.isatty() or not aloud
    pace = Pace()
    with progress_bar() as bar:

        def report(done: int, total: int, what: str) -> None:
            nonlocal said
            if what.startswith("loading") and total < _LONG:
                return
            if not said and what.startswith("reading"):
                said = True
                say(f"Reading {size(total)} of a model, once, to fingerprint it.")
            fetched = pace.words(what, done, total) if what.startswith("fetching") else ""
            bar(-(-done >> 20), max(1, -(-total >> 20)), f"{what} (MiB){fetched}")

        yield report
