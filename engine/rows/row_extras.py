"""Settings of a row in a batch, expectations of its answer, and its right answers to questions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from engine.base.strict_json import text_of
from engine.exchange.base.errors import ExchangeError
from engine.rows.expectations import Expectation, expected

SET: Final = "set "  # prefix of CSV columns with settings: "set temperature"
EXPECT: Final = "expect "  # prefix of CSV columns with expectations: "expect contains"
GOLD: Final = "gold"  # the CSV column of the right answer; "gold mood" for the question `mood`


class CellError(ExchangeError):
    """A cell of a row is invalid; `column` is the name of its column."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column = column


def extra_column(column: str) -> bool:
    """Returns whether a CSV column has settings, expectations or right answers."""
    return column.lower().startswith((SET, EXPECT)) or _is_gold(column)


def _is_gold(column: str) -> bool:
    return column.lower().split(" ")[0] == GOLD


def extra_cells(cells: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Reads cells of such columns, given as column and text, and skips empty ones.

    Returns:
        `settings`, as written, `expect` and `gold`, as in a row.

    Raises:
        CellError: a cell is invalid.
    """
    settings: dict[str, Any] = {}
    expect: list[Expectation] = []
    gold: dict[str, str] = {}
    for column, cell in cells:
        if not cell.strip():
            continue
        if _is_gold(column):
            gold[column[len(GOLD) :].strip()] = cell.strip()
            continue
        if column.lower().startswith(SET):
            settings[setting_name(column[len(SET) :])] = cell
            continue
        try:
            expect.append(expected(column[len(EXPECT) :], cell))
        except ExchangeError as error:
            raise CellError(column, str(error)) from None
    return {"settings": settings, "expect": tuple(expect), "gold": gold}


def extra_values(found: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the keys `settings`, `expect` and `gold` of a JSON row.

    Raises:
        CellError: a value is invalid.
    """
    settings, expect = found.get("settings") or {}, found.get("expect") or {}
    if not isinstance(settings, dict):
        raise CellError("settings", '"settings" is not an object. Write one such as {"temperature": 0.7}.')
    if not isinstance(expect, dict):
        raise CellError(
            "expect", '"expect" is not an object. Write one such as {"contains": ["Rome", "Tokyo"]}.'
        )
    wanted: list[Expectation] = []
    for kind, values in expect.items():
        for value in values if isinstance(values, list) else [values]:
            text = _text_of(kind, value)
            try:
                wanted.append(expected(kind, text))
            except ExchangeError as error:
                raise CellError("expect", str(error)) from None
    named: dict[str, Any] = {}
    for name, setting in settings.items():
        if setting_name(name) in named:
            raise CellError("settings", f"The setting {name!r} is given twice. Give it once.")
        named[setting_name(name)] = setting
    return {"settings": named, "expect": tuple(wanted), "gold": _gold(found.get("gold"))}


def _gold(found: Any) -> dict[str, str]:
    """Returns the right answers by question; "" stands for the only question."""
    answers = found if isinstance(found, dict) else {"": found}
    gold: dict[str, str] = {}
    for name, value in answers.items():
        if isinstance(value, bool):
            gold[name] = str(value).lower()
        elif (text := text_of(value)) is not None:
            gold[name] = text.strip()
        elif value is not None:
            raise CellError(GOLD, 'The value of "gold" is no text. Write a label, or {"question": "label"}.')
    return gold


def _text_of(kind: str, value: object) -> str:
    if isinstance(value, dict) and kind == "json":
        return json.dumps(value)
    if not isinstance(value, bool) and (text := text_of(value)) is not None:
        return text
    raise CellError("expect", f"The value of {kind!r} is neither text nor a number. Write it in quotes.")


def setting_name(name: str) -> str:
    """Returns the setting that a column or a key names, in any spelling."""
    return "_".join(name.strip().lower().replace("-", "_").split())
