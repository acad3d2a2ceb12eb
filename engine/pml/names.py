"""The words of PML: its elements, their attributes, and the rule for names."""

from __future__ import annotations

import re
from typing import Final

ROLES: Final = ("system", "user", "assistant")
"""Elements that stand for a turn of the conversation."""

ATTRIBUTES: Final[dict[str, tuple[str, ...]]] = {
    "schema": ("name",),
    "module": ("name", "cache", "src"),
    "union": ("scaffold",),
    "param": ("name", "len", "length", "default", "scaffold"),
    "system": (),
    "user": (),
    "assistant": (),
    "scaffold": ("modules",),
}
"""The elements of a schema and the attributes of each, besides xml:space and xml:lang."""

ELEMENTS: Final = (*ATTRIBUTES, "prompt", "arg")
"""Every element of PML, `parameter` being another way to write `param`."""

RESERVED: Final = frozenset((*ELEMENTS, "parameter"))
"""Names that no module can have."""

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
NAME_RULE: Final = "begin with a letter or _, go on with letters, digits, '_', '.', '-'"

CACHE: Final = ("true", "false")
SPACE_MODES: Final = ("default", "preserve")
