"""The rows of a grid that ask for different things: two ways to choose modules may come to one prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import replace
from typing import Any

from engine.base.errors import PromptCacheError
from engine.pml import Schema
from engine.pml.whitespace.rules import normalise
from engine.rows.row_prompts import prompt_text
from engine.rows.rows import Row

_ANY = "x"  # stands for an argument: whether two choices come to one prompt does not depend on its words

Chosen = tuple[Any, ...]
"""Which modules a row picks, and which arguments it gives."""


def distinct_rows(
    rows: Iterable[Row],
    schema: Schema,
    over: str | None,
    settings: Callable[[Row], Any],
    known: MutableMapping[Chosen, str | None],
) -> Iterator[Row]:
    """Yields the first row of each prompt with its settings, numbered anew from 1.

    A module inside one that is left out, or one that an argument brings anyway, changes no prompt.

    Args:
        rows: rows of picks, arguments, texts and settings, as a grid has them.
        schema: the schema of all rows.
        over: the prompt that they change; None where each stands alone.
        settings: the settings of a row, as something that can be compared.
        known: what was found of this schema and prompt before; what is found is added.
    """
    seen: set[Any] = set()
    number = 0
    for row in rows:
        asked = _asked(row, schema, over, known)
        if asked is not None:
            given = tuple(sorted((name, value) for name, value in row.arguments.items()))
            try:
                one = asked, given, normalise(row.text), settings(row)
            except PromptCacheError:  # a setting out of its range: it says so at its turn
                one = None
            if one is not None and one in seen:
                continue
            seen.add(one)
        number += 1
        yield replace(row, line=number, id=number)


def _asked(
    row: Row, schema: Schema, over: str | None, known: MutableMapping[Chosen, str | None]
) -> str | None:
    """The prompt of a row but for the words of its arguments and its text; None of what makes none."""
    arguments = {name: _ANY if value else "" for name, value in row.arguments.items()}
    chosen = row.picks, tuple(arguments.items())
    if chosen not in known:
        try:
            known[chosen] = prompt_text(Row(1, 1, picks=row.picks, arguments=arguments), schema, over)
        except PromptCacheError:
            known[chosen] = None
    return known[chosen]
