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
    "include": ("src",),
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

_START: Final = (
    "A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_FURTHER: Final = "\\-.0-9\u00b7\u0300-\u036f\u203f\u2040"

NAME: Final = re.compile(f"[{_START}][{_START}{_FURTHER}]*")
"""A name as XML 1.0 has it in its fifth edition, without the colon."""

NAME_RULE: Final = "begin with a letter of any script or _, go on with letters, digits, '_', '.', '-'"

PATH: Final = re.compile(r"[^ \t\r\n]+")
"""A path in a list of paths; some of what is white space to Unicode, and not to XML, may stand in names."""

CACHE: Final = ("true", "false")
SPACE_MODES: Final = ("default", "preserve")
