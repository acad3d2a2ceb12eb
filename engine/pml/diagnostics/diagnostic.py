"""Diagnostics of PML documents: spans, lines and columns, fixes, and terminal output.

This module is independent of XML, schemas and prompts. Callers pass a code, a sentence and a span.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

from engine.pml.diagnostics.codes import CATALOGUE, Severity

MAX_DIAGNOSTICS: Final = 1000  # limit of errors and of advice per document; a last diagnostic counts the rest

MAX_ERRORS: Final = 5000  # reading stops at this many errors


@dataclass(frozen=True)
class Span:
    """A half-open range of the source text, in code points."""

    start: int
    end: int


@dataclass(frozen=True)
class Edit:
    """A range of the source text and its replacement."""

    span: Span
    text: str


@dataclass(frozen=True)
class Fix:
    """One way to fix an error.

    Attributes:
        title: the effect of the fix, as a button shows it.
        edits: edits of the document.
        of_schema: whether the edits are of the schema of a prompt instead.
    """

    title: str
    edits: tuple[Edit, ...]
    of_schema: bool = False


def swap(span: Span, text: str | None) -> tuple[Edit, ...]:
    """Returns the edit that replaces a span with a text; empty if there is no text."""
    return (Edit(span, text),) if text else ()


NOTHING: Final = "nothing here"  # hint of a fix that only removes text

TAGS: Final = "no tags"  # hint of a fix that removes tags and keeps their content

_REMOVALS: Final = {NOTHING: "remove it", TAGS: "remove the tags"}

NOWHERE: Final = Span(0, 0)  # span of a node without a document

_LINE_END: Final = re.compile(r"\r\n|\n|\r")


class LineIndex:
    """Converts offsets to lines and columns, both from 1, columns in characters."""

    def __init__(self, source: str = "") -> None:
        if "\r" in source:  # each line end becomes one \n at the same offset
            source = source.replace("\r\n", " \n").replace("\r", "\n")
        self._starts = array("I", accumulate((len(line) + 1 for line in source.split("\n")), initial=0))
        self._starts.pop()
        self._length = len(source)

    def position(self, offset: int) -> tuple[int, int]:
        """Returns the line and column of an offset, clamped to the text."""
        offset = min(max(offset, 0), self._length)
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, offset: int) -> int:
        """Returns the line of an offset, from 1."""
        return self.position(offset)[0]

    def offset(self, line: int, column: int) -> int:
        """Returns the offset of a line and column, clamped to the text."""
        start = self._starts[min(max(line, 1), len(self._starts)) - 1]
        return min(start + max(column, 1) - 1, self._length)

    def next_line(self, offset: int) -> int:
        """Returns the start of the line after `offset`, or the length of the text."""
        line = bisect_right(self._starts, offset)
        return self._starts[line] if line < len(self._starts) else self._length


@dataclass(frozen=True)
class Diagnostic:
    """One error or piece of advice, with its place in the source text.

    Attributes:
        code: a key of `CATALOGUE`, such as `E302`.
        severity: `error`, `warning` or `info`.
        message: one sentence that names the value, the rule and the fix.
        span: the place, in code points.
        hint: the likely replacement, or empty.
        line: first line, from 1.
        column: first column, from 1, in characters.
        end_line: line of the exclusive end.
        end_column: column of the exclusive end.
        fix: the edits that apply the hint; empty if only a person can decide.
        choices: the possible fixes without a `fix`, the likeliest first.
        file: the included file that span, lines and columns refer to; empty for the document itself.
        origin: for an error in an included file, the span of the include.
    """

    code: str
    severity: Severity
    message: str
    span: Span
    hint: str = ""
    line: int = 1
    column: int = 1
    end_line: int = 1
    end_column: int = 1
    fix: tuple[Edit, ...] = ()
    file: str = ""
    origin: Span | None = None
    choices: tuple[Fix, ...] = ()

    @property
    def fixes(self) -> tuple[Fix, ...]:
        """The likely fix, or the fixes to choose from."""
        return (Fix(self.remedy, self.fix),) if self.fix else self.choices

    @property
    def remedy(self) -> str:
        """The title of the fix's button; empty without a fix."""
        if not self.fix:
            return ""
        if not any(edit.text for edit in self.fix) and self.advice == self.hint:
            return "Remove it"
        title = self.advice if self.advice != self.hint else f"write {self.hint}"
        return f"{title[0].upper()}{title[1:]}" if self.hint else f"Fix {self.code}"

    @property
    def advice(self) -> str:
        """The hint in words: remove something, move something, or the text to write."""
        if self.hint in _REMOVALS:
            return _REMOVALS[self.hint]
        return f"move {self.hint}" if self.hint.startswith("it ") else self.hint

    def in_place(self, source: str) -> Diagnostic:
        """Returns the diagnostic at a place of the document itself; the message names an included file."""
        if not self.file:
            return self
        message = f"{self.file}:{self.line}:{self.column}: {self.message}"
        return make(self.code, message, self.origin or NOWHERE, source, severity=self.severity)

    def to_json(self) -> dict[str, object]:
        """Returns the diagnostic as `pml check --json` prints it."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "line": self.line,
            "column": self.column,
            "end_line": self.end_line,
            "end_column": self.end_column,
            "hint": self.hint,
            **({"choices": [fix.title for fix in self.choices]} if self.choices else {}),
            **({"file": self.file} if self.file else {}),
        }

    def render(self, source: str, filename: str = "") -> str:
        """Returns the terminal form: place, message, source line, and a caret under the span."""
        place = f"{filename}:{self.line}:{self.column}" if filename else f"{self.line}:{self.column}"
        head = f"{place}: {self.severity} {self.code}: {self.message}"
        start = max(self.span.start - self.column + 1, 0)
        line_end = _LINE_END.search(source, start)
        text = source[start : line_end.start() if line_end else len(source)]
        last = self.end_column if self.end_line == self.line else len(text) + 1
        width = max(last - self.column, 1)
        shown, indent, carets = _window(text, self.column - 1, width)
        gutter = f"{self.line} | "
        caret = " " * len(gutter) + indent + carets
        hints = [fix.title for fix in self.choices] or [self.advice]
        note = "".join(f"\n{' ' * len(gutter)}hint: {_printable(hint)}" for hint in hints if hint)
        return f"{head}\n{gutter}{shown}\n{caret}{note}"


_WINDOW: Final = 120


def _window(text: str, start: int, width: int) -> tuple[str, str, str]:
    """Returns a line cut around its span, the indent before the span, and its carets."""
    first = max(start - _WINDOW // 2, 0) if len(text) > _WINDOW else 0
    piece = text[first : first + _WINDOW]
    shown = "".join(
        char if char == "\t" or char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in piece
    )
    start -= first
    indent = "".join("\t" if char == "\t" else " " * _cells(char) for char in shown[:start])
    carets = "^" * sum(_cells(char) for char in shown[start : start + width])
    return shown, indent, carets or "^"


def _cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def make(
    code: str,
    message: str,
    span: Span,
    lines: LineIndex | str,
    hint: str = "",
    severity: Severity | None = None,
    fix: tuple[Edit, ...] = (),
    choices: tuple[Fix, ...] = (),
) -> Diagnostic:
    """Builds a diagnostic; the catalogue gives the severity, the source text gives line and column.

    Args:
        code: a key of `CATALOGUE`.
        message: the sentence to show.
        span: the place in the source text, in code points.
        lines: the line index of the text, or the text.
        hint: the replacement.
        severity: overrides the catalogue.
        fix: the edits that apply the hint.
        choices: the fixes, if several are likely.

    Raises:
        KeyError: the code is not in the catalogue.
    """
    index = LineIndex(lines) if isinstance(lines, str) else lines
    line, column = index.position(span.start)
    end_line, end_column = index.position(max(span.end, span.start))
    level = severity or CATALOGUE[code][0]
    place = (line, column, end_line, end_column)
    return Diagnostic(code, level, message, span, hint, *place, fix, choices=choices)


def sort_diagnostics(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sorts diagnostics by place; the sort is stable."""
    return tuple(sorted(diagnostics, key=lambda found: (found.origin or found.span).start))


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether any of the diagnostics is an error."""
    return any(diagnostic.severity == "error" for diagnostic in diagnostics)


@dataclass
class Reporter:
    """Collects the diagnostics of one document, with separate limits for errors and advice.

    Attributes:
        torn: whether tags do not pair. Nesting is uncertain then, so later diagnostics only offer renames.
    """

    lines: LineIndex
    torn: bool = False
    errors: list[Diagnostic] = field(default_factory=list)
    advice: list[Diagnostic] = field(default_factory=list)
    hidden_errors: int = 0
    hidden_advice: int = 0

    def add(
        self,
        code: str,
        message: str,
        span: Span,
        hint: str = "",
        fix: tuple[Edit, ...] = (),
        choices: tuple[Fix, ...] = (),
        *,
        of_tags: bool = False,
    ) -> None:
        """Records one diagnostic as for `make`, or counts it after `MAX_DIAGNOSTICS` of its kind.

        A fix that pairs tags (`of_tags`) is offered despite `torn`.
        """
        is_error = CATALOGUE[code][0] == "error"
        recorded = self.errors if is_error else self.advice
        if len(recorded) < MAX_DIAGNOSTICS:
            if self.torn and not of_tags:
                fix, choices = fix if all(map(_renames, fix)) else (), ()
            if len(hint) > _MAX_HINT or (hint in _REMOVALS and not fix):
                hint, fix = "", ()
            choices = tuple(Fix(_printable(choice.title), choice.edits) for choice in choices)
            recorded.append(make(code, _printable(message), span, self.lines, hint, fix=fix, choices=choices))
        elif is_error:
            self.hidden_errors += 1
        else:
            self.hidden_advice += 1

    def adopt(self, other: Reporter, file: str, origin: Span) -> None:
        """Adds the diagnostics of an included file, without fixes."""
        for diagnostic in (*other.errors, *other.advice):
            recorded = self.errors if diagnostic.severity == "error" else self.advice
            if len(recorded) < MAX_DIAGNOSTICS:
                hint = "" if diagnostic.hint in _REMOVALS else diagnostic.hint
                recorded.append(
                    replace(
                        diagnostic, hint=hint, fix=(), choices=(), file=diagnostic.file or file, origin=origin
                    )
                )
            else:
                self.hidden_errors += diagnostic.severity == "error"
                self.hidden_advice += diagnostic.severity != "error"
        self.hidden_errors += other.hidden_errors
        self.hidden_advice += other.hidden_advice

    def tear(self) -> None:
        """Sets `torn` if recorded errors show that tags do not pair.

        Removes fixes that a repair of tags may invalidate.
        """
        codes = {found.code for found in self.errors}
        spoilt = any(found.code == "E109" and found.hint.startswith("<") for found in self.errors)
        unfinished = spoilt or not codes.isdisjoint(_UNFINISHED)
        self.torn = spoilt or not codes.isdisjoint(_TEARING)
        hidden = _OF_PAIRS if unfinished else frozenset({"E115"}) if self.torn else frozenset()

        def checked(found: Diagnostic) -> Diagnostic:
            if found.code not in hidden and not (
                unfinished and (found.code, found.hint) == ("E107", NOTHING)
            ):
                return found
            return replace(found, hint="" if found.hint in _REMOVALS else found.hint, fix=(), choices=())

        self.errors = [checked(found) for found in self.errors]

    def instead(self, code: str, message: str, span: Span, text: str) -> None:
        """Records an error whose fix replaces the span with `text`."""
        self.add(code, message, span, text, (Edit(span, text),))

    def missing(self, code: str, message: str, span: Span, text: str, place: int) -> None:
        """Records an error whose fix inserts `text` at a place."""
        self.add(code, message, span, text, (Edit(Span(place, place), text),))

    @property
    def full(self) -> bool:
        """Whether further errors are only counted, so that callers can skip their messages."""
        return self.hidden_errors > 0

    @property
    def hopeless(self) -> bool:
        """Whether the document has too many errors to read on."""
        return len(self.errors) + self.hidden_errors >= MAX_ERRORS

    def finish(self) -> tuple[Diagnostic, ...]:
        """Returns all diagnostics by place; advice has no fix while there are errors."""
        advice = (
            [replace(diagnostic, fix=(), choices=()) for diagnostic in self.advice]
            if self.errors
            else self.advice
        )
        diagnostics = sort_diagnostics((*self.errors, *advice))
        notes: list[Diagnostic] = []
        if self.hidden_errors:
            count = f"{self.hidden_errors} or more" if self.hopeless else f"{self.hidden_errors} more"
            message = f"{count} errors are not shown; fix the errors above first"
            notes.append(make("E119", message, diagnostics[-1].origin or diagnostics[-1].span, self.lines))
        if self.hidden_advice:
            message = f"{self.hidden_advice} more warnings and notes are not shown; fix those above first"
            notes.append(make("W600", message, diagnostics[-1].origin or diagnostics[-1].span, self.lines))
        return (*diagnostics, *notes)


def _renames(edit: Edit) -> bool:
    """Whether an edit replaces a name or value with another."""
    return edit.span.start < edit.span.end and bool(edit.text) and edit.text[0] not in "<&"


_TEARING: Final = frozenset({"E104", "E105", "E106", "E114"})  # errors that make nesting uncertain

_UNFINISHED: Final = frozenset({"E104", "E114"})  # errors that hide tags, or turn them into text

_OF_PAIRS: Final = frozenset({"E105", "E106", "E115"})

_MAX_MESSAGE: Final = 400
_MAX_HINT: Final = 200


def _printable(message: str) -> str:
    """Returns a message on one line, shortened, with invisible and direction characters escaped."""
    if len(message) > _MAX_MESSAGE:
        half = _MAX_MESSAGE // 2
        message = f"{message[:half]}…{message[-half:]}"
    if message.isprintable():
        return message
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in message)


_SHOWN: Final = 40


def quote_text(said: str) -> str:
    """Returns the beginning of a text, for the title of a fix."""
    return f"“{said if len(said) <= _SHOWN else said[: _SHOWN - 1] + '…'}”"


def quote(value: str, limit: int = 60) -> str:
    """Returns a value for messages: quoted, escaped, and shortened."""
    return repr(value if len(value) <= limit else value[: limit - 1] + "…")
