"""Tables of tests: a file with a row in each line, and the names of its columns in the first."""

from __future__ import annotations

import re
from pathlib import Path

_LETTERS = {"n": "\n", "t": "\t", "\\": "\\"}


def rows(path: Path) -> list[tuple[str, ...]]:
    """The rows of a table, whose columns are separated by tabs.

    A backslash escapes: \\n, \\t, \\uXXXX and \\\\.
    """
    return [tuple(map(_read, line.split("\t"))) for line in path.read_text("utf-8").splitlines()[1:]]


def _read(column: str) -> str:
    return re.sub(
        r"\\(?:u(\w{4})|(.))",
        lambda found: chr(int(found[1], 16)) if found[1] else _LETTERS[found[2]],
        column,
    )
