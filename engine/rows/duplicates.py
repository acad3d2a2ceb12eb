"""Removes rows of a grid that give the same prompt: different picks may be equivalent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import replace
from typing import Any

from engine.base.errors import PromptCacheError
from engine.pml import Schema
from engine.pml.whitespace.rules import normalise
from engine.rows.row_prompts import prompt_text
from engine.rows.rows import Row

_ANY = "x"  # stands for any argument, because its words do not decide whether two picks give one prompt
Chosen = tuple[Any, ...]  # hashable picks and arguments of a row


def distinct_rows(
    rows: Iterable[Row],
    schema: Schema,
    over: str | None,
    settings: Callable[[Row], Any],
    known: MutableMapping[Chosen, str | None],
) -> Iterator[Row]:
    """Yields the first row of each prompt with its settings, numbered from 1.

    A pick inside an omitted module, or of a module that an argument imports anyway, changes no prompt.

    Args:
        rows: rows of picks, arguments, texts and settings, as in a grid.
        schema: the schema of all rows.
        over: the prompt that the rows change; None if each row is independent.
        settings: returns a row's settings as a hashable value.
        known: cache of results for this schema and prompt; new results are added.
    """
    seen: set[Any] = set()
    number = 0
    for row in rows:
        prompt = _asked(row, schema, over, known)
        if prompt is not None:
            arguments = tuple(sorted((name, value) for name, value in row.arguments.items()))
            try:
                key = prompt, arguments, normalise(row.text), settings(row)
            except PromptCacheError:  # a setting out of range is reported when the row runs
                key = None
            if key is not None and key in seen:
                continue
            seen.add(key)
        number += 1
        yield replace(row, line=number, id=number)


def _asked(
    row: Row, schema: Schema, over: str | None, known: MutableMapping[Chosen, str | None]
) -> str | None:
    """The prompt of a row without the words of its arguments and text; None for an invalid row."""
    arguments = {name: _ANY if value else "" for name, value in row.arguments.items()}
    chosen = row.picks, tuple(arguments.items())
    if chosen not in known:
        try:
            known[chosen] = prompt_text(Row(1, 1, picks=row.picks, arguments=arguments), schema, over)
        except PromptCacheError:
            known[chosen] = None
    return known[chosen]
