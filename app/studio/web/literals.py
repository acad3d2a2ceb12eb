"""Values as they are written in a program, in Python, JavaScript and JSON: any text comes out as it went in.

What nobody sees in an editor, or what a terminal takes for a key, is escaped: control characters, tabs, marks
that turn the direction of writing, halves of surrogate pairs.
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
_CLOSING = re.compile('"{3,}|"+\\Z')  # quotes that would end a text between three of them
_SHORT = {"\t": "\\t", "\r": "\\r"}
_WIDTH = 76  # characters that a list or an object may take in one line


class Name(str):
    """The name of a variable, which is written as it is."""


@dataclass(frozen=True)
class _Style:
    """How a language writes values.

    Attributes:
        text: writes a text.
        key: writes the name of a field.
        words: none, true and false.
        indent: spaces for each depth.
        padding: what stands within the braces of an object in one line.
        once: whether a field whose value is the variable of its name is written once.
    """

    text: Callable[[str], str]
    key: Callable[[str], str]
    words: Mapping[bool | None, str]
    indent: int
    padding: str = ""
    once: bool = False


def _escaped(text: str) -> str:
    return _UNSEEN.sub(lambda found: _SHORT.get(found[0], f"\\u{ord(found[0]):04x}"), text)


def python_text(text: str) -> str:
    """A literal of Python; of several lines where the text has several."""
    escaped = _escaped(text.replace("\\", "\\\\"))
    if "\n" not in text:
        return '"{}"'.format(escaped.replace('"', '\\"'))
    return '"""{}"""'.format(_CLOSING.sub(lambda found: '\\"' * len(found[0]), escaped))


def javascript_text(text: str) -> str:
    """A literal of JavaScript; of several lines where the text has several."""
    escaped = _escaped(text.replace("\\", "\\\\"))
    if "\n" not in text:
        return '"{}"'.format(escaped.replace('"', '\\"'))
    return "`{}`".format(escaped.replace("`", "\\`").replace("${", "\\${"))


def json_text(value: Any) -> str:
    """JSON in several lines, none of which begins with a word: no end of a shell's document is met in it."""
    plain = json.dumps(value, ensure_ascii=False, indent=2)
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", plain)


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
    """A value in Python.

    Args:
        value: texts, numbers, true, false, none, names, and lists and mappings of them.
        depth: how deep its first line stands.
    """
    return _written(value, _PYTHON, depth)


def javascript(value: Any, depth: int = 0) -> str:
    """A value in JavaScript, as for `python`."""
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
            parts = [_field(name, one, style, depth + 1) for name, one in value.items()]
            return _bracketed(parts, "{}", style, depth, style.padding)
        case Sequence():
            return _bracketed([_written(one, style, depth + 1) for one in value], "[]", style, depth, "")
    raise TypeError(f"{type(value).__name__} is no value of a program")


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
