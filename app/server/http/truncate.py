"""Shortens client values for messages."""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST = 80  # maximum length of a repeated client value, in characters
_QUOTED = re.compile(
    rf"""(?<!\w)(?:'(?:[^'\\]|\\.){{{LONGEST + 1},}}'|"(?:[^"\\]|\\.){{{LONGEST + 1},}}")(?!\w)"""
)


def cut(text: str) -> str:
    """Returns a text, truncated if necessary."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def shown(value: object) -> str:
    """Returns a value for messages: strings quoted, numbers as they are, other values by their type."""
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case int() | float():
            return cut(str(value))
        case str():
            return repr(cut(value))
    return "a list" if isinstance(value, list | tuple) else "an object"


def brief(sentence: str) -> str:
    """Returns a message with truncated quotations, because the engine repeats whole names."""
    return _QUOTED.sub(lambda match: f"{cut(match[0][:-1])}{match[0][-1]}", sentence)


def listed(names: Sequence[str], last: str = "and") -> str:
    """Joins names as in "a, b and c"."""
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
