"""Diagnostics of PML documents: spans, lines and columns, the catalogue of codes, and their terminal form.

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
from typing import Final, Literal

Severity = Literal["error", "warning", "info"]

MAX_DIAGNOSTICS: Final = 1000
"""A document reports at most this many errors, and as much advice; one more says how many are not shown."""

MAX_ERRORS: Final = 5000
"""A document with this many errors is not read further."""

CATALOGUE: Final[dict[str, tuple[Severity, str]]] = {
    "E101": ("error", "The document is not UTF-8 text."),
    "E102": ("error", "The document is larger than 5 MB."),
    "E103": ("error", "A character that XML forbids: NUL, another control character, half a surrogate pair."),
    "E104": ("error", "A tag is not finished: its `>` is missing."),
    "E105": ("error", "An element is never closed."),
    "E106": ("error", "A closing tag has no opening tag."),
    "E107": ("error", 'An attribute is not written as `name="value"`.'),
    "E108": ("error", "An attribute is given twice in one tag."),
    "E109": ("error", "A character that has to be escaped: `<`, `&`, or `]]>` in text."),
    "E110": ("error", "An entity other than XML's own five, or a character reference to no character."),
    "E111": ("error", "A DOCTYPE or another `<!…>` declaration."),
    "E112": ("error", "A processing instruction."),
    "E113": ("error", "An XML declaration that is not first, or names another encoding than UTF-8."),
    "E114": ("error", "A comment or CDATA section that is never closed, or `--` inside a comment."),
    "E115": ("error", "Something stands outside the root element."),
    "E116": ("error", "The document holds no element."),
    "E117": ("error", "Elements are nested more than 256 deep."),
    "E118": ("error", "A name with a prefix; only `xml:space` and `xml:lang` are known."),
    "E119": ("error", "There are more faults than are shown."),
    "E120": ("error", "The document has more than 40,000 elements, attributes and comments."),
    "E121": ("error", "The file is no PML at all: Markdown, JSON, a web page, a program, …"),
    "E199": ("error", "Another fault of the XML, in the words of the XML parser."),
    "E201": ("error", "The root element is not `schema`, or not `prompt`."),
    "E202": ("error", "A required attribute is missing or empty."),
    "E203": ("error", "An attribute that this element does not have."),
    "E204": ("error", "An attribute has a value that it cannot have."),
    "E205": ("error", "An element that PML does not have."),
    "E206": ("error", "An element stands where it may not stand."),
    "E207": ("error", "Text stands where there may be none."),
    "E208": ("error", "A `src` that leaves the schema's folder, or that is not a relative path."),
    "E209": ("error", "A `src` file that cannot be read: missing, no regular file, not UTF-8, or too large."),
    "E210": ("error", "A module with `src` that has content of its own."),
    "E211": ("error", "A file that cannot be included: no schema, in a circle, or with turns in a turn."),
    "E212": ("error", "A module holds whole turns, and something beside them."),
    "E301": ("error", "A name that does not follow the rule for names."),
    "E302": ("error", "Two sibling modules have one name."),
    "E303": ("error", "A module has the name of a PML element."),
    "E304": ("error", "A parameter of a module is defined twice."),
    "E305": ("error", "The `scaffold` of a union names no member of it."),
    "E306": ("error", "A scaffold names a module that the schema does not have."),
    "E401": ("error", "The prompt is written for another schema."),
    "E402": ("error", "The prompt imports a module that the schema does not have."),
    "E403": ("error", "An import is nested otherwise than in the schema."),
    "E404": ("error", "A name directly under the prompt belongs to several nested modules."),
    "E405": ("error", "A module is imported twice."),
    "E406": ("error", "Two members of one union are imported."),
    "E407": ("error", "An argument for a parameter that the module does not have."),
    "E408": ("error", "An argument is given twice."),
    "E409": ("error", "A role stands before the last import of the prompt."),
    "E501": ("error", "An argument or a default has more tokens than its parameter's length."),
    "E502": (
        "error",
        "More tokens than the context window, in the prompt or in a module with what it is encoded after.",
    ),
    "E503": ("error", "The prompt has no tokens at all."),
    "E505": ("error", "The chat template refuses this sequence of roles."),
    "E506": ("error", "Schema placement keeps the schema's order, and the imports have another."),
    "E507": ("error", "Schema placement has less room between two modules than the text there needs."),
    "E508": ("error", "The chat template does not take a turn behind the one before it."),
    "E509": ("error", "A token of the tokenizer that the model does not know."),
    "W600": ("info", "There is more advice than is shown."),
    "W601": ("warning", "A union has one member only."),
    "W602": ("warning", "A union has no member."),
    "W603": ("warning", "A module is empty."),
    "W604": ("info", "An imported parameter has neither an argument nor a default."),
    "W605": ("warning", "A module repeats the text of another."),
    "W606": ("warning", "A scaffold that no prompt can use, or that names one module only."),
    "W607": ("info", "The model has no token for unknown text, so another one fills a parameter's slot."),
    "W608": ("warning", "The chat template writes the date, so segments are computed again on another day."),
    "W609": ("info", "The chat template writes nothing that invites the assistant to answer."),
    "W610": ("info", "The chat template refuses system text, so it begins the first user turn."),
    "W611": ("info", "Tokens at borders of modules are others than in the text as a whole."),
    "W612": ("warning", "The chat template rewrites, moves or leaves out what turns say."),
    "W613": (
        "warning",
        "Words, or marks of Markdown, touch where modules, defaults, arguments, included or new text meet.",
    ),
    "W615": ("warning", "Two names beside each other look the same and have other characters."),
    "W616": (
        "warning",
        "A heading, list item or other block does not begin its line where a module is left out or moved.",
    ),
    "W617": ("info", "Text of a prompt beside whole turns is read at the end of the prompt."),
}


def catalogue_table() -> str:
    """The catalogue as the Markdown table of the language reference."""
    rows = [f"| `{code}` | {severity} | {text} |" for code, (severity, text) in sorted(CATALOGUE.items())]
    return "\n".join(("| code | severity | means |", "|---|---|---|", *rows))


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
        hint = _printable(self.advice)
        note = f"\n{' ' * len(gutter)}hint: {hint}" if hint else ""
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

    Raises:
        KeyError: the code is not in the catalogue.
    """
    index = LineIndex(lines) if isinstance(lines, str) else lines
    line, column = index.position(span.start)
    end_line, end_column = index.position(max(span.end, span.start))
    level = severity or CATALOGUE[code][0]
    return Diagnostic(code, level, message, span, hint, line, column, end_line, end_column, fix)


def sort_diagnostics(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Diagnostics in the order of the text; those of one place keep their order."""
    return tuple(sorted(diagnostics, key=lambda found: (found.origin or found.span).start))


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether any of the diagnostics is an error."""
    return any(found.severity == "error" for found in diagnostics)


@dataclass
class Reporter:
    """Collects the diagnostics of one document; errors and advice are limited each by itself."""

    lines: LineIndex
    errors: list[Diagnostic] = field(default_factory=list)
    advice: list[Diagnostic] = field(default_factory=list)
    hidden_errors: int = 0
    hidden_advice: int = 0

    def add(self, code: str, message: str, span: Span, hint: str = "", fix: tuple[Edit, ...] = ()) -> None:
        """Records one diagnostic, or only counts it once `MAX_DIAGNOSTICS` of its kind are recorded."""
        is_error = CATALOGUE[code][0] == "error"
        kept = self.errors if is_error else self.advice
        if len(kept) < MAX_DIAGNOSTICS:
            if len(hint) > _MAX_HINT or (hint in _REMOVALS and not fix):
                hint, fix = "", ()
            kept.append(make(code, _printable(message), span, self.lines, hint, fix=fix))
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
                kept.append(replace(found, hint=hint, fix=(), file=found.file or file, origin=origin))
            else:
                self.hidden_errors += found.severity == "error"
                self.hidden_advice += found.severity != "error"
        self.hidden_errors += other.hidden_errors
        self.hidden_advice += other.hidden_advice

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
        """All diagnostics in the order of the text."""
        found = sort_diagnostics((*self.errors, *self.advice))
        notes: list[Diagnostic] = []
        if self.hidden_errors:
            count = f"{self.hidden_errors} or more" if self.hopeless else f"{self.hidden_errors} more"
            message = f"{count} errors are not shown; mend the ones above first"
            notes.append(make("E119", message, found[-1].origin or found[-1].span, self.lines))
        if self.hidden_advice:
            message = f"{self.hidden_advice} more pieces of advice are not shown; see to the ones above first"
            notes.append(make("W600", message, found[-1].origin or found[-1].span, self.lines))
        return (*found, *notes)


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


def quote(value: str, limit: int = 60) -> str:
    """A value as messages show it: quoted, escaped, and cut when it is long."""
    return repr(value if len(value) <= limit else value[: limit - 1] + "…")
