"""Adds separators between the parts of a schema, like the white space of a document."""

from __future__ import annotations

import re
from typing import Any

from engine.pml import Module, Param, Role, Text, Union
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.whitespace.rules import SPACE
from engine.pml.whitespace.separators import ended, missing, with_seam


def set_apart(children: list[Any], seam: str) -> tuple[Any, ...]:
    """Returns the children of a schema or a turn with separators between them; adjacent texts are joined."""
    return _with_seams(_joined(children, seam), seam)


def set_apart_inside(children: list[Any], seam: str) -> tuple[Any, ...]:
    """Returns the children of a module with separators around modules but not between texts and parameters.

    Without a separator or modules, texts stay unchanged.
    """
    joined = _joined(children, "")
    if not seam or not any(isinstance(child, Module | Union) for child in joined):
        return tuple(joined)
    parts: list[Any] = []
    for place, child in enumerate(joined):
        if isinstance(child, Text):
            text = re.sub(r"(?<=\n)[ \t\r]+(?=\n)", "", child.text)
            text = text if place and isinstance(joined[place - 1], Param) else text.lstrip(SPACE)
            followed = place + 1 < len(joined) and isinstance(joined[place + 1], Param)
            child = Text(text if followed else text.rstrip(SPACE), NOWHERE)
        if not isinstance(child, Text) or child.text:
            parts.append(child)
    return _with_seams(parts, seam)


def _joined(children: list[Any], between: str) -> list[Any]:
    joined: list[Any] = []
    for child in children:
        if isinstance(child, Text) and joined and isinstance(joined[-1], Text):
            joined[-1] = Text(joined[-1].text + between + child.text, NOWHERE)
        else:
            joined.append(child)
    return joined


def _with_seams(children: list[Any], seam: str) -> tuple[Any, ...]:
    result: list[Any] = []
    for child in children:
        last = result[-1] if result else None
        if isinstance(last, Module | Union) and not isinstance(child, Role):
            result[-1] = with_seam(last, seam, NOWHERE)
        elif isinstance(last, Text | Param) and isinstance(child, Module | Union):
            text = missing(seam, last)
            result += [Text(text, NOWHERE, seam=True)] if text else []
        result.append(child)
    return ended(result)
