"""Diagnostics of PML documents: spans, lines and columns, repairs, and their terminal form.

This module knows nothing about XML, schemas or prompts: the other modules of the package, and the engine for
its own E5xx codes, hand in a code, a sentence and a span.
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

MAX_DIAGNOSTICS: Final = 1000
"""A document reports at most this many errors, and as much advice; one more says how many are not shown."""

MAX_ERRORS: Final = 5000
"""A document with this many errors is not read further."""


@dataclass(frozen=True)
class Span:
    """A piece of the source text, half open, counted in code points."""

    start: int
    end: int


@dataclass(frozen=True)
class Edit:
    """A piece of the source text, and what to write in its place."""

    span: Span
    text: str


@dataclass(frozen=True)
class Fix:
    """One way to repair a fault.

    Attributes:
        title: what it does, and where that is not plain, what the document says then.
        edits: of the document.
    """

    title: str
    edits: tuple[Edit, ...]


def swap(span: Span, text: str | None) -> tuple[Edit, ...]:
    """The fix that writes a text in place of a span; none where there is no text."""
    return (Edit(span, text),) if text else ()


NOTHING: Final = "nothing here"
"""The hint of a fix that only takes something away."""

TAGS: Final = "no tags"
"""The hint of a fix that takes tags away and leaves what stands between them."""

_REMOVALS: Final = {NOTHING: "remove it", TAGS: "remove the tags"}

NOWHERE: Final = Span(0, 0)
"""The span of a node that was never in a document."""

_LINE_END: Final = re.compile(r"\r\n|\n|\r")


class LineIndex:
    """Turns offsets into lines and columns, both from 1, columns in characters."""

    def __init__(self, source: str = "") -> None:
        if "\r" in source:  # each line end becomes one \n where it ends, and no offset moves
            source = source.replace("\r\n", " \n").replace("\r", "\n")
        self._starts = array("I", accumulate((len(line) + 1 for line in source.split("\n")), initial=0))
        self._starts.pop()
        self._length = len(source)

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset; an offset outside the text counts as its nearest end."""
        offset = min(max(offset, 0), self._length)
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line(self, offset: int) -> int:
        """The line, from 1, in which an offset lies."""
        return self.position(offset)[0]

    def offset(self, line: int, column: int) -> int:
        """The offset of a line and column; a place outside the text counts as its nearest one inside."""
        start = self._starts[min(max(line, 1), len(self._starts)) - 1]
        return min(start + max(column, 1) - 1, self._length)

    def next_line(self, offset: int) -> int:
        """The offset at which the line after the one of `offset` begins, or the length of the text."""
        line = bisect_right(self._starts, offset)
        return self._starts[line] if line < len(self._starts) else self._length


@dataclass(frozen=True)
class Diagnostic:
    """One fault or piece of advice, with its place in the source text.

    Attributes:
        code: a key of `CATALOGUE`, such as `E302`.
        severity: `error`, `warning` or `info`.
        message: one sentence that names the value, the rule and the remedy.
        span: the place, in code points.
        hint: what to write, where one thing is likely; else empty.
        line: first line, from 1.
        column: first column, from 1, in characters.
        end_line: line of the end, which is exclusive.
        end_column: column of the end, which is exclusive.
        fix: the edits that write the hint where it belongs; empty where only a person can tell.
        choices: where several repairs are likely and there is no `fix`, each of them, the likeliest first.
        file: the included file that span, lines and columns count in; empty for the document itself.
        origin: of a fault in an included file, what includes it in the document itself.
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
        """The ways to repair it: the only one that is likely, or those that a person chooses from."""
        return (Fix(self.remedy, self.fix),) if self.fix else self.choices

    @property
    def remedy(self) -> str:
        """What the fix does, as a button says it; empty where there is none."""
        if not self.fix:
            return ""
        if not any(edit.text for edit in self.fix) and self.advice == self.hint:
            return "Remove it"
        said = self.advice if self.advice != self.hint else f"write {self.hint}"
        return f"{said[0].upper()}{said[1:]}" if self.hint else f"Mend {self.code}"

    @property
    def advice(self) -> str:
        """What the hint says, in words: to remove or to move something, or else the text to write."""
        if self.hint in _REMOVALS:
            return _REMOVALS[self.hint]
        return f"move {self.hint}" if self.hint.startswith("it ") else self.hint

    def in_place(self, source: str) -> Diagnostic:
        """The diagnostic at a place of the document itself; one of an included file says where it is found.

        Args:
            source: the text of the document.
        """
        if not self.file:
            return self
        message = f"{self.file}:{self.line}:{self.column}: {self.message}"
        return make(self.code, message, self.origin or NOWHERE, source, severity=self.severity)

    def to_json(self) -> dict[str, object]:
        """The diagnostic as `pml check --json` prints it."""
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
        """The diagnostic for a terminal: its place, its sentence, the line, and a caret under the span.

        Args:
            source: the text that the span counts in.
            filename: the name of that text.
        """
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
    """A line cut round its span, with what stands under it: the blanks before the span, and its carets."""
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
    """How many columns of a terminal a character takes."""
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
    """Builds a diagnostic: the severity comes from the catalogue, line and column from the source text.

    Args:
        code: a key of `CATALOGUE`.
        message: the sentence to show.
        span: the place in the source text, in code points.
        lines: the line index of that text, or the text itself.
        hint: what to write instead.
        severity: replaces the severity of the catalogue.
        fix: the edits that write the hint where it belongs.
        choices: the ways to repair it where several are likely.

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
    """Diagnostics in the order of the text; those of one place keep their order."""
    return tuple(sorted(diagnostics, key=lambda found: (found.origin or found.span).start))


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether any of the diagnostics is an error."""
    return any(found.severity == "error" for found in diagnostics)


@dataclass
class Reporter:
    """Collects the diagnostics of one document; errors and advice are limited each by itself.

    Attributes:
        torn: whether tags do not pair. What stands where is not known then, so whatever is found from now on
            has no fix that does more than to write other names: first the tags are repaired.
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
        """Records one diagnostic, or only counts it once `MAX_DIAGNOSTICS` of its kind are recorded.

        Args:
            code: a key of `CATALOGUE`.
            message: the sentence to show.
            span: the place in the source text.
            hint: what to write instead.
            fix: the edits that write the hint where it belongs.
            choices: the ways to repair it where several are likely.
            of_tags: whether the fix pairs tags, so that it is given while some do not pair.
        """
        is_error = CATALOGUE[code][0] == "error"
        kept = self.errors if is_error else self.advice
        if len(kept) < MAX_DIAGNOSTICS:
            if self.torn and not of_tags:
                fix, choices = fix if all(map(_renames, fix)) else (), ()
            if len(hint) > _MAX_HINT or (hint in _REMOVALS and not fix):
                hint, fix = "", ()
            choices = tuple(Fix(_printable(one.title), one.edits) for one in choices)
            kept.append(make(code, _printable(message), span, self.lines, hint, fix=fix, choices=choices))
        elif is_error:
            self.hidden_errors += 1
        else:
            self.hidden_advice += 1

    def adopt(self, other: Reporter, file: str, origin: Span) -> None:
        """Takes over what was found in an included file; its fixes are edits of another text, so they go."""
        for found in (*other.errors, *other.advice):
            kept = self.errors if found.severity == "error" else self.advice
            if len(kept) < MAX_DIAGNOSTICS:
                hint = "" if found.hint in _REMOVALS else found.hint
                kept.append(
                    replace(found, hint=hint, fix=(), choices=(), file=found.file or file, origin=origin)
                )
            else:
                self.hidden_errors += found.severity == "error"
                self.hidden_advice += found.severity != "error"
        self.hidden_errors += other.hidden_errors
        self.hidden_advice += other.hidden_advice

    def tear(self) -> None:
        """Notes whether tags do not pair, by the faults that are recorded.

        The fixes go that a repair of tags may make wrong: where a tag is unfinished, those of the others too.
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
        """Records a fault that is gone once `text` stands in its place."""
        self.add(code, message, span, text, (Edit(span, text),))

    def missing(self, code: str, message: str, span: Span, text: str, place: int) -> None:
        """Records a fault that is gone once `text` is written at a place."""
        self.add(code, message, span, text, (Edit(Span(place, place), text),))

    @property
    def full(self) -> bool:
        """Whether further errors are only counted, so that they need no care for their words."""
        return self.hidden_errors > 0

    @property
    def hopeless(self) -> bool:
        """Whether there are so many errors that reading on helps nobody."""
        return len(self.errors) + self.hidden_errors >= MAX_ERRORS

    def finish(self) -> tuple[Diagnostic, ...]:
        """All diagnostics in the order of the text; advice has no fix while there are errors."""
        advice = [replace(one, fix=(), choices=()) for one in self.advice] if self.errors else self.advice
        found = sort_diagnostics((*self.errors, *advice))
        notes: list[Diagnostic] = []
        if self.hidden_errors:
            count = f"{self.hidden_errors} or more" if self.hopeless else f"{self.hidden_errors} more"
            message = f"{count} errors are not shown; mend the ones above first"
            notes.append(make("E119", message, found[-1].origin or found[-1].span, self.lines))
        if self.hidden_advice:
            message = f"{self.hidden_advice} more pieces of advice are not shown; see to the ones above first"
            notes.append(make("W600", message, found[-1].origin or found[-1].span, self.lines))
        return (*found, *notes)


def _renames(edit: Edit) -> bool:
    """Whether an edit writes another name or value in the place of one."""
    return edit.span.start < edit.span.end and bool(edit.text) and edit.text[0] not in "<&"


_TEARING: Final = frozenset({"E104", "E105", "E106", "E114"})
"""The faults with which it is not known what stands in what."""

_UNFINISHED: Final = frozenset({"E104", "E114"})
"""The faults that hide tags, or make text of them."""

_OF_PAIRS: Final = frozenset({"E105", "E106", "E115"})

_MAX_MESSAGE: Final = 400
_MAX_HINT: Final = 200


def _printable(message: str) -> str:
    """A message of one line that shows what it holds: nothing invisible, nothing that turns the direction."""
    if len(message) > _MAX_MESSAGE:
        half = _MAX_MESSAGE // 2
        message = f"{message[:half]}…{message[-half:]}"
    if message.isprintable():
        return message
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in message)


_SHOWN: Final = 40


def quote_text(said: str) -> str:
    """The beginning of a text, as the title of a repair shows it."""
    return f"“{said if len(said) <= _SHOWN else said[: _SHOWN - 1] + '…'}”"


def quote(value: str, limit: int = 60) -> str:
    """A value as messages show it: quoted, escaped, and cut when it is long."""
    return repr(value if len(value) <= limit else value[: limit - 1] + "…")
