"""Reads the rows of a batch from JSONL or CSV one by one, so their number is unlimited.

An error in one row is stored in that row, and reading continues.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from engine.base.strict_json import JsonError, read_json, text_of
from engine.exchange.base.errors import ExchangeError
from engine.files.text_files import MAX_BYTES, Lines, NoFileError, TextFileError
from engine.pml.whitespace.rules import SPACE
from engine.rows.expectations import Expectation
from engine.rows.row_extras import (
    EXPECT,
    SET,
    CellError,
    extra_cells,
    extra_column,
    extra_values,
    setting_name,
)

KEYS: Final = ("id", "prompt", "schema", "picks", "arguments", "text", "settings", "expect", "gold")
"""Keys of a JSON row. A CSV has a column for each argument, setting, expectation and right answer."""

_COLUMNS: Final = tuple(key for key in KEYS if key not in ("arguments", "settings", "expect", "gold"))
_OWN: Final = "_"  # prefix of an author's own columns, which are ignored
_LINES: Final = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z")
_QUOTED: Final = re.compile('"[^"]*"')
_SEPARATORS: Final = (",", ";", "\t")
_TOLD_SEPARATOR: Final = re.compile(r"sep=([,;\t|])", re.IGNORECASE)  # as Excel writes and reads it


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
        line: number of its first line in the file, from 1.
        id: its id, or its line number.
        prompt: a whole prompt; None if it has picks, arguments and text.
        schema: name of its schema; "" if it names none.
        picks: names or paths of modules; a minus sign omits one from the changed prompt.
        arguments: by the name or path of a parameter, or by module and parameter.
        text: new text.
        fault: its error, as a sentence; "" if it is valid.
        named: whether it has its own id, not its line number.
        settings: its own settings by name, as written.
        expect: the expectations of its answer.
        column: the column or key of the error; "" if it is in none.
        gold: the right answers by the names of questions; "" is the only question.
    """

    line: int
    id: str | int
    prompt: str | None = None
    schema: str = ""
    picks: tuple[str, ...] = ()
    arguments: Mapping[str, str | Mapping[str, str]] = field(default_factory=dict)
    text: str = ""
    fault: str = ""
    named: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)
    expect: tuple[Expectation, ...] = ()
    column: str = ""
    gold: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Returns a digest of its content, without its id and without white space at the ends of its text."""
        text = self.text.strip(SPACE)
        content: list[Any] = [self.prompt, self.schema, self.picks, self.arguments, text, self.fault]
        if self.settings or self.expect:
            content += [dict(self.settings), [[item.kind, item.value] for item in self.expect]]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def takes_id(self) -> bool:
        """Whether no other row may have its id; a line number of an unreadable line does not count."""
        return not (self.fault and self.id == self.line)


class _RowError(ExchangeError):
    """A row is invalid as a whole."""


def read_rows(file: BinaryIO, name: str) -> Iterator[Row]:
    """Reads the rows of a batch: JSONL if the first line begins with a brace, otherwise CSV.

    The first line of a CSV names its columns. Commas, semicolons or tabs separate cells: the most frequent of
    them in that line, or the one in a preceding line `sep=;`. Blank lines are skipped. At most one row is in
    memory.

    Raises:
        ExchangeError: a CSV has invalid columns.
        TextFileError: the file begins like UTF-16, or is unreadable.
    """
    lines = Lines(file, name)
    for first in lines:  # an error in the very first line is the file's
        if not first.strip():
            continue
        if first.lstrip().startswith("{"):
            yield from _json_rows(first, lines)
        elif first.lstrip().startswith("["):
            message = f"{name} is a JSON array; write one JSON object per line"
            raise ExchangeError(message)
        else:
            yield from _csv_rows(first, lines, name)
        return


# JSON


def _json_rows(first: str, lines: Lines) -> Iterator[Row]:
    line: str | None = first
    while line is not None:
        if line.strip():
            yield _json_row(line, lines.number)
        while True:
            try:
                line = next(lines, None)
            except NoFileError:
                raise
            except TextFileError as error:
                yield Row(lines.number, lines.number, fault=str(error))
            else:
                break


def _json_row(line: str, number: int) -> Row:
    try:
        fields = read_json(line.strip(), spelled=True)
    except JsonError as error:
        where = f"column {error.column}: " if error.column else ""
        of = f" ({error.path})" if error.path else ""
        fault = f"This is not valid JSON: {where}{error.what}{of}. Write one object per line."
        return Row(number, number, fault=fault)
    if not isinstance(fields, dict):
        fault = 'This is not a JSON object. Write one such as {"id": 1, "picks": ["…"], "text": "…"}.'
        return Row(number, number, fault=fault)
    name = fields.get("id")
    named = name is not None and name != ""
    if not named:
        name = number
    if isinstance(name, bool) or not isinstance(name, (str, int)):
        return Row(
            number, number, fault="The id is neither text nor a whole number. Write it as one of these."
        )
    try:
        return Row(number, name, **_values(fields), named=named)
    except (_RowError, CellError) as error:
        return Row(number, name, fault=str(error), named=named, column=getattr(error, "column", ""))


def _values(found: Mapping[str, Any]) -> dict[str, Any]:
    for key in found:
        if key not in KEYS and not key.startswith(_OWN):
            known = ", ".join(KEYS)
            raise _RowError(
                f"{key!r} is not a key of a row. Write one of {known}, or {_OWN + key!r} for a note."
            )
    picks = found.get("picks")
    if isinstance(picks, list) and all(isinstance(pick, str) for pick in picks):
        picks = " ".join(picks)
    return _checked(
        prompt=_text(found, "prompt"),
        schema=_text(found, "schema") or "",
        picks=split_picks(_text({"picks": picks}, "picks") or ""),
        arguments=_arguments(found.get("arguments") or {}),
        text=_text(found, "text") or "",
        **extra_values(found),
    )


def _checked(**values: Any) -> dict[str, Any]:
    if values["prompt"] is not None and (values["picks"] or values["arguments"] or values["text"]):
        raise _RowError("The row has both a whole prompt and picks, arguments or text. Remove one of them.")
    return values


def _text(found: Mapping[str, Any], key: str) -> str | None:
    value = found.get(key)
    if value is not None and not isinstance(value, str):
        kind = "a list of names, or a text with names" if key == "picks" else "a text"
        raise _RowError(f"{key!r} is not {kind}. Write it in quotes.")
    return value


def _arguments(found: Any, of: str = "") -> dict[str, Any]:
    if not isinstance(found, dict):
        raise _RowError(
            '"arguments" is not an object. Write {"module/parameter": "…"} or {"module": {"parameter": "…"}}.'
        )
    arguments: dict[str, Any] = {}
    for key, value in found.items():
        if isinstance(value, dict) and not of:
            arguments[key] = _arguments(value, key)
        elif not isinstance(value, bool) and (text := text_of(value)) is not None:
            arguments[key] = text
        elif value is not None:
            raise _RowError(f"The argument {key!r} is neither text nor a number. Write it in quotes.")
    return arguments


def split_picks(picks: str) -> tuple[str, ...]:
    """Returns the modules in a cell, separated by blanks, commas or semicolons."""
    return tuple(picks.replace(",", " ").replace(";", " ").split())


# CSV


def _csv_rows(first: str, lines: Lines, name: str) -> Iterator[Row]:
    # The limit is global for all readers; a lower one of other code stays if it suffices.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_BYTES))
    header = _TOLD_SEPARATOR.fullmatch(first.rstrip("\r\n"))
    if header is not None:
        first = next(lines, "")
    plain = _QUOTED.sub("", first)
    separator = header[1] if header is not None else max(_SEPARATORS, key=plain.count)
    source = _RowLines(first, lines)
    reader = csv.reader(source, delimiter=separator, strict=True)
    try:
        columns = _columns(next(reader, []), name)
    except csv.Error as error:
        fault = _csv_fault(error, lines.number, source.held, separator)
        raise ExchangeError(f"{name} has no readable header line. {fault}") from None
    while True:
        line = lines.number + 1
        source.held.clear()
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield Row(line, line, fault=_csv_fault(error, lines.number, source.held, separator))
            continue
        except NoFileError:
            raise
        except TextFileError as error:
            yield Row(lines.number, lines.number, fault=str(error))
            continue
        if cells is None:
            return
        if any(cell.strip() for cell in cells):
            yield _csv_row(cells, columns, line)


def _csv_fault(error: csv.Error, last: int, held: Sequence[str], separator: str) -> str:
    """The error of a row, as a sentence; `last` is its line, `held` are the row's lines so far."""
    first = last - len(held) + 1
    span = f"lines {first} to {last} were read as one row" if first < last else ""
    if "unexpected end" in str(error):
        open_cell = next(csv.reader(held, delimiter=separator))[-1]  # not strict, returns the cells so far
        opened = last + 1 - len(_LINES.findall(open_cell))
        problem = f"The quote opened in line {opened} is never closed{f': {span}' if span else ''}"
    elif "larger than field limit" in str(error):
        problem = f"A cell has more than {MAX_BYTES >> 20} MB: {span}"
    elif span:
        problem = f"L{span[1:]}, which cannot be read as CSV: {error}"
    else:
        problem = f"The line cannot be read as CSV: {error}"
    return f"{problem}. Close every quote, and double those inside a cell."


class _RowLines:
    """Lines with the first one put back; `held` are the current row's. A generator would end at an error."""

    def __init__(self, first: str, rest: Iterator[str]) -> None:
        self._first: str | None = first
        self._rest = rest
        self.held: list[str] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line, self._first = self._first, None
        if line is None:
            line = next(self._rest)
        self.held.append(line)
        return line


def _columns(cells: Sequence[str], name: str) -> list[str]:
    columns = [cell.strip() for cell in cells]
    columns = [meaning.lower() if meaning.lower() in _COLUMNS else meaning for meaning in columns]
    if not {"id", "prompt", "picks", "text"} & set(columns):
        raise ExchangeError(
            f"{name} has no header line: no column is id, text, picks or prompt. Write one into its "
            "first line, such as id,text,picks"
        )
    meant = [
        f"{SET}{setting_name(meaning[len(SET) :])}" if meaning.lower().startswith(SET) else meaning
        for meaning in columns
    ]
    for column, meaning in zip(columns, meant, strict=True):
        if column and meant.count(meaning) > 1 and not column.lower().startswith(EXPECT):
            raise ExchangeError(f"{name} has the column {column!r} twice; rename one")
    return columns


def _csv_row(cells: Sequence[str], columns: Sequence[str], line: int) -> Row:
    row = dict(zip(columns, cells, strict=False))
    own_id = row.get("id", "").strip()
    name: str | int = own_id or line
    if len(cells) > len(columns) and any(cell.strip() for cell in cells[len(columns) :]):
        fault = (
            f"The row has {len(cells)} cells, but there are {len(columns)} columns. Put quotes around a cell "
        )
        return Row(line, name, fault=f"{fault}that contains the separator.", named=bool(own_id))
    if len(cells) < len(columns) and not any(cell.strip() for column, cell in row.items() if column != "id"):
        fault = f"The row has {len(cells)} of {len(columns)} cells, and no prompt. Put quotes around a "
        return Row(line, name, fault=f"{fault}cell that contains a line break.", named=bool(own_id))
    if row.get("", "").strip():
        fault = "A cell is in a column without a name. Name the column in the first line."
        return Row(line, name, fault=fault, named=bool(own_id))
    arguments = {
        column: cell
        for column, cell in row.items()
        if column
        and column not in _COLUMNS
        and not column.startswith(_OWN)
        and not extra_column(column)
        and cell
    }
    try:
        values = _checked(
            prompt=row.get("prompt") or None,
            schema=row.get("schema", "").strip(),
            picks=split_picks(row.get("picks", "")),
            arguments=arguments,
            text=row.get("text", ""),
            **extra_cells((c, cell) for c, cell in zip(columns, cells, strict=False) if extra_column(c)),
        )
    except (_RowError, CellError) as error:
        column = getattr(error, "column", "")
        return Row(line, name, fault=str(error), named=bool(own_id), column=column)
    return Row(line, name, **values, named=bool(own_id))
