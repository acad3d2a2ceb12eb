"""What a client has written, as it is told again: cut where it is long."""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST = 80
"""Characters of a value of a client's that are told again."""
_QUOTED = re.compile(
    rf"""(?<!\w)(?:'(?:[^'\\]|\\.){{{LONGEST + 1},}}'|"(?:[^"\\]|\\.){{{LONGEST + 1},}}")(?!\w)"""
)


def cut(text: str) -> str:
    """Returns a text, or its beginning."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def shown(value: object) -> str:
    """Returns a value as messages show it: texts in quotes, numbers as they are, of all else what it is."""
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case int() | float():
            return cut(str(value))
        case str():
            return repr(cut(value))
    return "a list" if isinstance(value, list | tuple) else "an object"


def brief(sentence: str) -> str:
    """Returns a sentence, of which quotations are cut: the engine's own repeat names whole."""
    return _QUOTED.sub(lambda found: f"{cut(found[0][:-1])}{found[0][-1]}", sentence)


def listed(names: Sequence[str], last: str = "and") -> str:
    """Returns names side by side, as in "a, b and c"."""
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
