"""Option types with common error messages: ranges, names, paths, sizes, ages."""

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
    """A whole number within the range of a setting."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parses `5`."""
        declared = Setting(_name(param), 0, "", "", least=self.min, most=self.max)
        return int(_checked(self, declared, value, int, param, ctx))


class Number(click.FloatRange):
    """A number within the range of a setting."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parses `0.5`."""
        declared = Setting(_name(param), 0.0, "", "", least=self.min, most=self.max, above=self.min_open)
        return float(_checked(self, declared, value, float, param, ctx))


class Name(click.Choice[str]):
    """One of several names."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Parses a name."""
        declared = Setting(_name(param), "", "", "", choices=dict.fromkeys(self.choices, ""))
        return str(_checked(self, declared, value, str, param, ctx))


class Origin(click.ParamType[str]):
    """An origin as browsers send it."""

    name = "origin"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Parses `http://localhost:3000`, optionally with a trailing slash."""
        text = str(value).strip()
        match = _ORIGIN.fullmatch(text)
        if text == "null":  # the origin of a local file
            return text
        if match is None:
            words = "is not a site. Write it as http://localhost:3000, with its scheme and with no path."
            self.fail(f"{reprlib.repr(text)} {words}", param, ctx)
        scheme, host, port = match[1].lower(), match[2], match[3]
        usual = {"http": "80", "https": "443"}.get(scheme)
        if usual is not None:
            host = host.lower()
        return f"{scheme}://{host}" + (f":{int(port)}" if port and port != usual else "")


class UserPath(click.Path):
    """A path; an initial `~` means the home folder."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Parses `~/folder`; an empty path does not mean the working folder."""
        if not value:
            self.fail("The path is empty. Write one, such as ./name.", param, ctx)
        return super().convert(os.path.expanduser(value), param, ctx)  # noqa: PTH111 (`-` stays as it is)


DOCUMENT: Final = UserPath(readable=False)  # a text file, or `-`; reading it reports its errors


class Size(click.ParamType[int]):
    """A number of bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Parses `500`, `20GB`, `1.5GiB`."""
        if isinstance(value, int):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?i?)b?", str(value).strip().lower())
        if match is None or match[2] == "i":
            self.fail(f"{value!r} is not a size; write one like 500MB, 20GB or 1.5GiB.", param, ctx)
        size = float(match[1]) * (_BINARY | _SIZES)[match[2]]
        if size >= 2**63:
            self.fail(f"{reprlib.repr(str(value))} is too large.", param, ctx)
        return int(size)


class Age(click.ParamType[float]):
    """A number of seconds.

    Args:
        none: whether `none` is allowed and means infinity.
    """

    name = "age"

    def __init__(self, *, none: bool = False) -> None:
        self._none = none

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parses `90s`, `12h`, `30d`, `2w`."""
        if isinstance(value, float):
            return value
        if self._none and str(value).strip().lower() == "none":
            return math.inf
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([smhdw])", str(value).strip().lower())
        if match is None:
            more = ", or none" if self._none else ""
            self.fail(f"{value!r} is not an age; write one like 12h, 30d or 2w{more}.", param, ctx)
        return float(match[1]) * _AGES[match[2]]


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
        parsed = read(value)
    except ValueError:
        parsed = value  # report the original text
    try:
        return declared.checked(parsed)
    except SettingsError as error:
        kind.fail(str(error), param, ctx)


def days(seconds: float) -> str:
    """Formats an age: `90 s`, `12 h`, `30 d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
