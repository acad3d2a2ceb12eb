"""Output of `pml`: tables for people, one JSON object for programs, progress bars on a terminal.

Every command prints through `say`, `emit` and `print_json`, so that no control characters from documents,
models and stores reach the terminal.
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
_WINDOW = 10.0  # seconds for the average rate
_LONG = 1 << 30  # bytes of weights; smaller ones load without a bar
_BAR = "%(label)s %(bar)s %(info)s"
_ERASE = "\r\x1b[K\x1b[?25h"  # erases the bar and shows the cursor, which click hides
# Documents and models may contain escape sequences, which a terminal must not interpret.
_CONTROLS = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"
_SURROGATES = "\\ud800-\\udfff"  # cannot be encoded
_UNSEEN = re.compile(f"[{_CONTROLS}{_SURROGATES}]")
# Names also lose characters that break a line or change text direction.
_UNSEEN_IN_NAMES = re.compile(f"[\\t\\n\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069{_CONTROLS}{_SURROGATES}]")
_UNSEEN_IN_JSON = re.compile(f"[\\x7f-\\x9f\\u2028\\u2029{_SURROGATES}]")  # json escapes the others


@dataclass
class Console:
    """Settings of the whole invocation."""

    debug: bool = False  # print tracebacks
    json: bool = False  # print one JSON object to standard output, also for errors

    def fail(self, message: str, *, hint: str = "") -> None:
        """Reports the error that ends the command."""
        if self.json:
            print_json({"error": message})
        say(f"pml: {message}", err=True)
        if hint and not self.debug:
            say(hint, err=True)


class PrintableFormatter(logging.Formatter):
    """Makes log lines printable."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats a record."""
        return printable(super().format(record))


def say(text: str, *, err: bool = False, nl: bool = True, bold: bool = False) -> None:
    """Prints text for people, on standard output or standard error."""
    shown = printable(text)
    if bold and not (_is_dumb() or os.environ.get("NO_COLOR")):
        shown = click.style(shown, bold=True)
    with in_words("Standard error" if err else "Standard output"):
        click.echo(shown, err=err, nl=nl)


def _is_dumb() -> bool:
    """Whether the terminal does not support escape sequences."""
    return os.environ.get("TERM") == "dumb"


def agreed(question: str) -> bool:
    """Asks for confirmation on stderr, if it is interactive; the default is no."""
    return click.confirm(printable(question), err=True)


def emit(document: str, *, nl: bool = False) -> None:
    """Prints a document: unchanged to a file or pipe, printable to a terminal."""
    with in_words("Standard output"):
        click.echo(printable(document) if sys.stdout.isatty() else document, nl=nl)


def printable(text: str) -> str:
    """Replaces control characters except line breaks and tabs."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)


def inline(text: str) -> str:
    """Escapes a name, key or path to one printable line."""
    return _UNSEEN_IN_NAMES.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def print_json(value: Mapping[str, object]) -> None:
    """Prints the object of `--json`, with control characters escaped."""
    with in_words("Standard output"):
        click.echo(_as_json(value, indent=2))


def json_line(value: Mapping[str, object]) -> str:
    """Returns an object as one line of JSON without line end, with control characters escaped."""
    return _as_json(value, indent=None)


def _as_json(value: Mapping[str, object], *, indent: int | None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    # JSON contains these only inside strings, except line breaks and blanks.
    return _UNSEEN_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Formats `rows` under `head`; the first `left` columns are left-aligned, the others right-aligned."""
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
    pass


def a_line_a_minute(*, of_total: bool) -> Progress:
    """Returns a progress function `(done, total, what)` for logs: one line a minute."""
    last = time.monotonic()

    def report(done: int, total: int, what: str) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= _MINUTE:
            last = now
            say(f"pml: {done}{f'/{total}' if of_total else ''} {inline(what)}", err=True)

    return report


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Yields a progress function `(done, total, what)` that draws a bar on a terminal only."""
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
                update_min_steps=0,  # a step of 0 may change the label
                bar_template=_BAR,
                fill_char="█",
                empty_char=" ",
            )
        bar.label, bar.length = inline(what), total
        bar.update(done - bar.pos)
        if done >= total:
            erase()

    try:
        yield report
    finally:
        erase()


class Pace:
    """The recent rate of bytes and the remaining time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._what = clock, ""
        self._seen: deque[tuple[float, int]] = deque()

    def words(self, what: str, done: int, total: int) -> str:
        """Returns rate and remaining time; "" at first."""
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
    """Yields a progress function `(bytes done, total bytes, what)` for model files."""
    said, drawn = sys.stderr.isatty() or not aloud, False
    pace = Pace()
    with progress_bar() as bar:

        def report(done: int, total: int, what: str) -> None:
            nonlocal said, drawn
            if (what.startswith("loading") and total < _LONG) or (not total and not drawn):
                return
            drawn = True
            if not total:
                bar(0, 1, what)
                return
            if not said and what.startswith("reading"):
                said = True
                say(f"Reading {size(total)} of a model, once, to fingerprint it.")
            fetched = pace.words(what, done, total) if what.startswith("fetching") else ""
            bar(-(-done >> 20), max(1, -(-total >> 20)), f"{what} (MiB){fetched}")

        yield report
