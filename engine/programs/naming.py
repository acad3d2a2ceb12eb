"""Names of modules: legible, valid, and unique where they stand."""

from __future__ import annotations

import re
from typing import Final

from engine.pml import NAME, RESERVED

_LONGEST: Final = 40


def legible(words: str) -> str:
    """A valid name from some words; a valid name stays as it is."""
    if NAME.fullmatch(words) and words not in RESERVED:
        return words
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", words).strip("-.")
    if len(name) > _LONGEST:
        name = name[:_LONGEST].rpartition("-")[0] or name[:_LONGEST]
    if not name:
        return "part"
    if not NAME.fullmatch(name):
        name = f"_{name}"
    return f"{name}-part" if name in RESERVED else name


def unique(name: str, taken: dict[str, int], line: int) -> str:
    """The name, numbered where another module has it already; it is then taken."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}-{number}"
    taken[found] = line
    return found
