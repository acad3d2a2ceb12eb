"""Reads texts from lines, CSV, TSV or JSONL, optionally with a number for each row."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.base.errors import PromptCacheError
from engine.files.text_files import MAX_BYTES, Lines

_SEPARATORS = ",;\t"


class RowsError(PromptCacheError):
    """The rows of a file are invalid."""


@dataclass(frozen=True)
class TextRows:
    """The rows of a file.

    Attributes:
        texts: the texts of each row, one for each column.
        gold: the number of each row; empty without such a column.
        lines: the line of each row.
    """

    texts: list[tuple[str, ...]]
    gold: list[float]
    lines: list[int]


def read_text_rows(lines: Lines, name: str, columns: Sequence[str], gold: str | None) -> TextRows:
    """Reads all rows. Blank lines are skipped.

    A first line that begins with a brace means JSONL. Without columns, other lines are texts, unless the
    first line of a table names the column `text`. Columns have names, or numbers from 1 if no header names
    them.

    Raises:
        RowsError: a column is missing, a row has no text, or a gold value is not a number.
        TextFileError: a line cannot be read.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_BYTES))
    wanted = [*(columns or ["text"]), *([] if gold is None else [gold])]
    found = TextRows([], [], [])
    for line, cells in _cells(lines, name, wanted, plain=not columns and gold is None):
        texts = cells[: len(columns) or 1]
        for column, text in zip(wanted, texts, strict=False):
            if not isinstance(text, str) or not text.strip():
                raise RowsError(
                    f"{name}, line {line}: column {column!r} has no text. Fill it or remove the row."
                )
        found.texts.append(tuple(texts))
        found.lines.append(line)
        if gold is not None:
            found.gold.append(_number(cells[-1], f"{name}, line {line}: column {gold!r}"))
    if not found.texts:
        raise RowsError(f"{name} has no rows.")
    return found


def _cells(lines: Lines, name: str, wanted: Sequence[str], *, plain: bool) -> Iterator[tuple[int, list[Any]]]:
    """The wanted cells of each row with its line."""
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("{"):
        yield from _json_cells(first, lines, name, wanted)
        return
    separator = max(_SEPARATORS, key=first.count)
    head = [cell.strip() for cell in next(csv.reader([first], delimiter=separator), [])]
    if plain and wanted[0] not in head:
        for line in _from(first, lines):
            if line.strip():
                yield lines.number, [line.rstrip("\r\n")]
        return
    named = {*wanted} <= {*head} or any(column in head for column in wanted if not column.isdecimal())
    places = [
        head.index(column) if named and column in head else _place(column, head, name) for column in wanted
    ]
    reader = csv.reader(
        lines if named else _from(first, lines),
        delimiter=separator,
        quoting=csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL,
    )
    for cells in reader:
        if any(cell.strip() for cell in cells):
            yield lines.number, [cells[place] if place < len(cells) else None for place in places]


def _json_cells(
    first: str, lines: Lines, name: str, wanted: Sequence[str]
) -> Iterator[tuple[int, list[Any]]]:
    for line in _from(first, lines):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            if not isinstance(fields, dict):
                raise ValueError("it is not an object")
        except (ValueError, RecursionError) as error:
            raise RowsError(f"{name}, line {lines.number}: invalid JSON: {error}.") from None
        yield lines.number, [fields.get(column) for column in wanted]


def _from(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _place(column: str, head: Sequence[str], name: str) -> int:
    if not (column.isdecimal() and 1 <= int(column) <= len(head)):
        raise RowsError(
            f"{name} has no column {column!r}. Its first line has {', '.join(map(repr, head))}; name one of "
            "them, or use numbers if the file has no header: --column 1."
        )
    return int(column) - 1


def _number(value: Any, what: str) -> float:
    try:
        number = math.nan if isinstance(value, bool | None) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise RowsError(f"{what} is {value!r}; it must be a number.")
    return number
