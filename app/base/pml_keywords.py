"""The words that editors of PML offer and explain: elements, where they may stand, their attributes.

The studio's page and the language server both take them from here.
"""

from __future__ import annotations

from typing import Final

from engine.pml import ROLES, Module, Param, Text

PREVIEW_LENGTH: Final = 160

ELEMENTS: Final[dict[str, str]] = {
    "schema": "the root of a schema",
    "module": "reusable text, cached once",
    "union": "a prompt takes at most one of its modules",
    "param": "a blank that a prompt fills",
    "system": "a system turn",
    "user": "a user turn",
    "assistant": "an assistant turn",
    "scaffold": "modules that are encoded together",
    "include": "the content of another schema",
}
"""The elements of a schema, in the order in which they are offered."""

IN_PROMPTS: Final[dict[str, str]] = {
    "prompt": "the root of a prompt",
    "arg": "an argument of several lines",
    **{role: ELEMENTS[role] for role in ROLES},
}
"""The elements of a prompt that are no imports."""

ATTRIBUTES: Final[dict[str, dict[str, str]]] = {
    "schema": {"name": "what prompts call it"},
    "module": {
        "name": "what prompts call it",
        "cache": '"false": never stored',
        "src": "read its text from a file",
    },
    "union": {"scaffold": "name of a member"},
    "include": {"src": "a schema beside this one"},
    "param": {
        "name": "what prompts call it",
        "len": "the most tokens it may take",
        "default": "used where a prompt gives none",
        "scaffold": "stands in while the module is encoded",
    },
    "scaffold": {"modules": "paths, space-separated"},
}

REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "schema": ("name",),
    "module": ("name",),
    "include": ("src",),
    "param": ("name", "len"),
    "scaffold": ("modules",),
}
"""Attributes that an element cannot do without."""

HOLDS: Final[dict[str, tuple[str, ...]]] = {
    "schema": ("module", "union", *ROLES, "scaffold", "include"),
    "module": ("module", "union", "param", "include"),
    "union": ("module",),
    **dict.fromkeys(ROLES, ("module", "union", "include")),
}
"""The elements that may stand directly in another, in a schema."""

EMPTY: Final = ("include", "param", "scaffold")
"""Elements that hold nothing."""


def preview(module: Module) -> str:
    """The start of the module's own text, on one line."""
    words: list[str] = []
    for child in module.contents():
        if isinstance(child, Text):
            words += child.text.split()
        elif isinstance(child, Param):
            words.append(f"[{child.name}]")
        if sum(map(len, words)) > PREVIEW_LENGTH:
            break
    line = " ".join(words)
    return line if len(line) <= PREVIEW_LENGTH else line[: PREVIEW_LENGTH - 1].rstrip() + "…"
