"""The elements of PML, their attributes, and the rule for names."""

from __future__ import annotations

import re
from typing import Final

ROLES: Final = ("system", "user", "assistant")  # elements for turns of the conversation

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
}  # elements of a schema and their attributes, without xml:space and xml:lang

ELEMENTS: Final = (
    *ATTRIBUTES,
    "prompt",
    "arg",
    "decide",
    "answer-format",
)  # `parameter` is a synonym of `param`

RESERVED: Final = frozenset((*ELEMENTS, "parameter"))  # names that modules cannot have

# elements of HTML, without likely names of modules
HTML: Final = re.compile(
    "a|abbr|b|blockquote|br|dd|del|div|dl|dt|em|h[1-6]|hr|i|img|ins|kbd|li|ol|p|pre|s|span|strong|sub|sup|"
    "table|tbody|td|th|thead|tr|u|ul"
)

HTML_ATTRIBUTES: Final = re.compile(
    "align|alt|class|colspan|dir|height|href|id|lang|rel|rowspan|src|style|target|title|width"
)

_START: Final = (
    "A-Z_a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_FURTHER: Final = "\\-.0-9\u00b7\u0300-\u036f\u203f\u2040"

# a name in XML 1.0, fifth edition, without colons
NAME: Final = re.compile(f"[{_START}][{_START}{_FURTHER}]*")

NAME_RULE: Final = "begin with a letter of any script or _, continue with letters, digits, '_', '.', '-'"

PATH: Final = re.compile(r"[^ \t\r\n]+")  # paths may contain white space of Unicode that XML allows in names

CACHE: Final = ("true", "false")
SPACE_MODES: Final = ("default", "preserve")
