"""Sizes and ages as people write them: `20GB`, `512MiB`, `30d`, `12h`."""

from __future__ import annotations

import math
import re
from typing import Any

import click

_SIZES = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_BINARY = {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Size(click.ParamType[int]):
    """A number of bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Reads `500`, `20GB`, `1.5GiB`."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?i?)b?", str(value).strip().lower())
        if found is None or found[2] == "i":
            self.fail(f"{value!r} is no size; write one like 500MB, 20GB or 1.5GiB.", param, ctx)
        return int(float(found[1]) * (_BINARY | _SIZES)[found[2]])


class Age(click.ParamType[float]):
    """A number of seconds.

    Args:
        none: whether `none` may stand for no bound, and is infinity.
    """

    name = "age"

    def __init__(self, *, none: bool = False) -> None:
        self._none = none

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Reads `90s`, `12h`, `30d`, `2w`."""
        if isinstance(value, float):
            return value
        if self._none and str(value).strip().lower() == "none":
            return math.inf
        found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([smhdw])", str(value).strip().lower())
        if found is None:
            more = ", or none" if self._none else ""
            self.fail(f"{value!r} is no age; write one like 12h, 30d or 2w{more}.", param, ctx)
        return float(found[1]) * _AGES[found[2]]


def days(seconds: float) -> str:
    """Returns an age in words: `90 s`, `12 h`, `30 d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
