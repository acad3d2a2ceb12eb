"""What options take, refused in one voice: numbers and names within their range, sizes, ages."""

from __future__ import annotations

import math
import os
import re
import reprlib
from collections.abc import Callable
from typing import Any, Final

import click

from engine.base.errors import SettingsError
from engine.inference.setting import Setting

_SIZES = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_BINARY = {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}
_ORIGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}))?/?")
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Whole(click.IntRange):
    """A whole number within a range, refused in the words of a setting's declaration."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Reads `5`."""
        declared = Setting(_name(param), 0, "", "", least=self.min, most=self.max)
        return int(_checked(self, declared, value, int, param, ctx))


class Number(click.FloatRange):
    """A number within a range, refused in the words of a setting's declaration."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Reads `0.5`."""
        declared = Setting(_name(param), 0.0, "", "", least=self.min, most=self.max, above=self.min_open)
        return float(_checked(self, declared, value, float, param, ctx))


class Name(click.Choice[str]):
    """One of several names, refused in the words of a setting's declaration."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Reads one of the names."""
        declared = Setting(_name(param), "", "", "", choices=dict.fromkeys(self.choices, ""))
        return str(_checked(self, declared, value, str, param, ctx))


class Origin(click.ParamType[str]):
    """A site whose pages may do something, as browsers name it."""

    name = "origin"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Reads `http://localhost:3000`, with a slash at its end or without."""
        text = str(value).strip()
        found = _ORIGIN.fullmatch(text)
        if text == "null":  # of a page in a file
            return text
        if found is None:
            words = "is no site. Write each as http://localhost:3000, with its scheme and with no path."
            self.fail(f"{reprlib.repr(text)} {words}", param, ctx)
        scheme, host, port = found[1].lower(), found[2], found[3]
        usual = {"http": "80", "https": "443"}.get(scheme)
        if usual is not None:
            host = host.lower()
        return f"{scheme}://{host}" + (f":{int(port)}" if port and port != usual else "")


class UserPath(click.Path):
    """A path, in which `~` at the beginning is the home folder."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Reads `~/folder`; an empty path is not the working folder."""
        if not value:
            self.fail("The path is empty. Write one, such as ./name.", param, ctx)
        return super().convert(os.path.expanduser(value), param, ctx)  # noqa: PTH111 (`-` stays as it is)


DOCUMENT: Final = UserPath(readable=False)
"""A file of text, or `-`; what is wrong with it is said where it is read."""


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
        size = float(found[1]) * (_BINARY | _SIZES)[found[2]]
        if size >= 2**63:
            self.fail(f"{reprlib.repr(str(value))} is more than any disk holds.", param, ctx)
        return int(size)


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


def _name(param: click.Parameter | None) -> str:
    return (param.name if param is not None else None) or "it"


def _checked(
    kind: click.ParamType[Any],
    declared: Setting,
    value: Any,
    read: Callable[[Any], object],
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> Any:
    try:
        found = read(value)
    except ValueError:
        found = value  # what is no number is refused as it was written
    try:
        return declared.checked(found)
    except SettingsError as error:
        kind.fail(str(error), param, ctx)


def days(seconds: float) -> str:
    """Returns an age in words: `90 s`, `12 h`, `30 d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
