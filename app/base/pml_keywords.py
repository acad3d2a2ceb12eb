"""PML keywords for editors: elements, their allowed places and their attributes.

Both the studio's page and the language server use them.
"""

from __future__ import annotations

from typing import Final

from engine.pml import ROLES, Module, Param, Text

PREVIEW_LENGTH: Final = 160

ELEMENTS: Final[dict[str, str]] = {
    "schema": "the root of a schema",
    "module": "reusable text, cached once",
    "union": "a prompt takes at most one of its modules",
    "param": "a parameter that a prompt sets",
    "system": "a system turn",
    "user": "a user turn",
    "assistant": "an assistant turn",
    "scaffold": "modules that are encoded together",
    "include": "the content of another schema",
}
"""The elements of a schema, in the order of completion."""

IN_PROMPTS: Final[dict[str, str]] = {
    "prompt": "the root of a prompt",
    "arg": "an argument of several lines",
    **{role: ELEMENTS[role] for role in ROLES},
    "decide": "a question, answered with probabilities",
    "answer-format": "the format that the answer keeps to",
}
"""The elements of a prompt other than imports."""

OPTION: Final = "a possible answer"

PROMPT_ATTRIBUTES: Final[dict[str, dict[str, str]]] = {
    "prompt": {"schema": "the schema's name"},
    "arg": {"name": "the name of the parameter"},
    "decide": {"type": "predicate, choice or score", "name": "its name in results"},
    "answer-format": {"type": "json, choice or regex", "src": "a JSON Schema in this folder"},
    "option": {"value": "the label that the model scores, or the answer"},
}
"""The attributes of elements in prompts; the first one is required, except for a prompt."""

ATTRIBUTES: Final[dict[str, dict[str, str]]] = {
    "schema": {"name": "its name in prompts"},
    "module": {
        "name": "its name in prompts",
        "cache": '"false": never stored',
        "src": "read its text from a file",
    },
    "union": {"scaffold": "name of a member"},
    "include": {"src": "a schema in this folder"},
    "param": {
        "name": "its name in prompts",
        "len": "its maximum length in tokens",
        "default": "its default value",
        "scaffold": "its placeholder while the module is encoded",
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
"""Required attributes of elements."""

HOLDS: Final[dict[str, tuple[str, ...]]] = {
    "schema": ("module", "union", *ROLES, "scaffold", "include"),
    "module": ("module", "union", "param", "include"),
    "union": ("module",),
    **dict.fromkeys(ROLES, ("module", "union", "include")),
}
"""The allowed children of elements in a schema."""

EMPTY: Final = ("include", "param", "scaffold")  # empty elements


def preview(module: Module) -> str:
    """Returns the start of the module's own text, on one line."""
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
