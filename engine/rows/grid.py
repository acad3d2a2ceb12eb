"""Makes rows of a batch from lists of values: one row for each combination."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from engine.exchange.base.errors import ExchangeError
from engine.rows.rows import Row, split_picks

Varied = Literal["picks", "argument", "setting", "text"]


@dataclass(frozen=True)
class Axis:
    """A list of values that vary from row to row.

    Attributes:
        kind: the kind of values.
        name: the parameter or the setting; "" for picks and text.
        values: the values; a pick is a possibly empty list of modules as one text.
    """

    kind: Varied
    name: str
    values: tuple[str, ...]


def grid_size(axes: Sequence[Axis]) -> int:
    """Returns the number of rows; 0 without axes."""
    return math.prod(len(axis.values) for axis in axes) if axes else 0


def grid_rows(axes: Sequence[Axis]) -> Iterator[Row]:
    """Yields the rows of a grid; the last axis changes fastest.

    Raises:
        ExchangeError: an axis has no values, a value repeats, or two axes have one parameter or setting.
    """
    _require_sound(axes)
    for number, values in enumerate(itertools.product(*(axis.values for axis in axes)), 1):
        picks: list[str] = []
        texts: list[str] = []
        named: dict[Varied, dict[str, Any]] = {"argument": {}, "setting": {}}
        for axis, value in zip(axes, values, strict=True):
            if axis.kind == "picks":
                picks += split_picks(value)
            elif axis.kind == "text":
                texts.append(value)
            else:
                named[axis.kind][axis.name] = value
        yield Row(
            number,
            number,
            picks=tuple(picks),
            arguments=named["argument"],
            text="\n".join(texts),
            settings=named["setting"],
            named=False,
        )


def _require_sound(axes: Sequence[Axis]) -> None:
    if not axes:
        raise ExchangeError("Nothing varies yet. Choose something that differs between rows.")
    seen: set[tuple[Varied, str]] = set()
    for axis in axes:
        name = axis.name or {"picks": "modules", "text": "new text"}.get(axis.kind, axis.kind)
        if not axis.values:
            raise ExchangeError(f"{name!r} has no value. Choose one, or remove it.")
        if len(set(axis.values)) < len(axis.values):
            raise ExchangeError(f"{name!r} has a value twice. Choose each value once.")
        if axis.kind != "picks" and (axis.kind, axis.name) in seen:
            raise ExchangeError(f"{name!r} is chosen twice. Put all its values into one list.")
        seen.add((axis.kind, axis.name))
