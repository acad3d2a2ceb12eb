"""Writes values as literals in Python, JavaScript and JSON without loss.

Invisible characters are escaped: control characters, tabs, bidirectional marks and lone surrogates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_UNSEEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\xa0\xad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ud800-\udfff\ufeff]"
)
_CLOSING = re.compile('"{3,}|"+\\Z')  # quotes that would end a triple-quoted text
_SHORT = {"\t": "\\t", "\r": "\\r"}
_WIDTH = 76  # maximum width of a list or an object on one line


class Name(str):
    """A variable's name, written without quotes."""


@dataclass(frozen=True)
class _Style:
    """The syntax of a language.

    Attributes:
        text: writes a text.
        key: writes the name of a field.
        words: none, true and false.
        indent: spaces per level.
        padding: the padding in the braces of an object on one line.
        once: whether the language has shorthand properties.
    """

    text: Callable[[str], str]
    key: Callable[[str], str]
    words: Mapping[bool | None, str]
    indent: int
    padding: str = ""
    once: bool = False


def _escaped(text: str) -> str:
    return _UNSEEN.sub(lambda match: _SHORT.get(match[0], f"\\u{ord(match[0]):04x}"), text)


def python_text(text: str) -> str:
    """Returns a Python literal; multi-line for a multi-line text."""
    escaped = _escaped(text.replace("\\", "\\\\"))
    if "\n" not in text:
        return '"{}"'.format(escaped.replace('"', '\\"'))
    return '"""{}"""'.format(_CLOSING.sub(lambda match: '\\"' * len(match[0]), escaped))


def javascript_text(text: str) -> str:
    """Returns a JavaScript literal; multi-line for a multi-line text."""
    escaped = _escaped(text.replace("\\", "\\\\"))
    if "\n" not in text:
        return '"{}"'.format(escaped.replace('"', '\\"'))
    return "`{}`".format(escaped.replace("`", "\\`").replace("${", "\\${"))


def json_text(value: Any) -> str:
    """Returns multi-line JSON without lines that start with a word, safe in a heredoc."""
    plain = json.dumps(value, ensure_ascii=False, indent=2)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", plain)


_PYTHON = _Style(python_text, python_text, {None: "None", True: "True", False: "False"}, 4)
_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_JAVASCRIPT = _Style(
    javascript_text,
    lambda name: name if _NAME.fullmatch(name) else json_text(name),
    {None: "null", True: "true", False: "false"},
    2,
    " ",
    once=True,
)


def python(value: Any, depth: int = 0) -> str:
    """Returns a value in Python.

    Args:
        value: texts, numbers, booleans, None, names, and lists and mappings of them.
        depth: the indentation level of its first line.
    """
    return _written(value, _PYTHON, depth)


def javascript(value: Any, depth: int = 0) -> str:
    """Returns a value in JavaScript, as for `python`."""
    return _written(value, _JAVASCRIPT, depth)


def _written(value: Any, style: _Style, depth: int) -> str:
    match value:
        case Name():
            return str(value)
        case str():
            return style.text(value)
        case None | bool():
            return style.words[value]
        case int() | float():
            return json.dumps(int(value) if value == int(value) else value)
        case Mapping():
            parts = [_field(name, item, style, depth + 1) for name, item in value.items()]
            return _bracketed(parts, "{}", style, depth, style.padding)
        case Sequence():
            return _bracketed([_written(item, style, depth + 1) for item in value], "[]", style, depth, "")
    raise TypeError(f"{type(value).__name__} is not a value of a program")


def _field(name: str, value: Any, style: _Style, depth: int) -> str:
    if style.once and isinstance(value, Name) and value == name:
        return name
    return f"{style.key(name)}: {_written(value, style, depth)}"


def _bracketed(parts: list[str], brackets: str, style: _Style, depth: int, padding: str) -> str:
    first, last = brackets[0], brackets[1]
    line = f"{first}{padding}{', '.join(parts)}{padding}{last}" if parts else brackets
    if len(line) + depth * style.indent <= _WIDTH and "\n" not in line:
        return line
    inner, outer = " " * style.indent * (depth + 1), " " * style.indent * depth
    return "\n".join([first, *(f"{inner}{part}," for part in parts), f"{outer}{last}"])
