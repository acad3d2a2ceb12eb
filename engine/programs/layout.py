"""How the pieces that a schema is put together from are set apart: as by the white space of a document."""

from __future__ import annotations

import re
from typing import Any

from engine.pml import Module, Param, Role, Text, Union
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.whitespace.rules import SPACE
from engine.pml.whitespace.separators import ended, missing, with_seam


def set_apart(children: list[Any], seam: str) -> tuple[Any, ...]:
    """The children of a schema or a turn with a seam between them.

    Args:
        children: texts, modules, unions, and turns, beside which nothing is read.
        seam: the white space; texts that neighbour are one text, with it in between.
    """
    return _with_seams(_joined(children, seam), seam)


def set_apart_inside(children: list[Any], seam: str) -> tuple[Any, ...]:
    """The children of a module: texts and parameters stay one after another, modules are set apart.

    Args:
        children: texts, parameters, modules, and unions.
        seam: the white space. Without modules, or where it is empty, the texts stay as they are.
    """
    joined = _joined(children, "")
    if not seam or not any(isinstance(child, Module | Union) for child in joined):
        return tuple(joined)
    found: list[Any] = []
    for place, child in enumerate(joined):
        if isinstance(child, Text):
            text = re.sub(r"(?<=\n)[ \t\r]+(?=\n)", "", child.text)
            text = text if place and isinstance(joined[place - 1], Param) else text.lstrip(SPACE)
            followed = place + 1 < len(joined) and isinstance(joined[place + 1], Param)
            child = Text(text if followed else text.rstrip(SPACE), NOWHERE)
        if not isinstance(child, Text) or child.text:
            found.append(child)
    return _with_seams(found, seam)


def _joined(children: list[Any], between: str) -> list[Any]:
    """The children with neighbouring texts as one, as a document has them."""
    found: list[Any] = []
    for child in children:
        if isinstance(child, Text) and found and isinstance(found[-1], Text):
            found[-1] = Text(found[-1].text + between + child.text, NOWHERE)
        else:
            found.append(child)
    return found


def _with_seams(children: list[Any], seam: str) -> tuple[Any, ...]:
    found: list[Any] = []
    for child in children:
        last = found[-1] if found else None
        if isinstance(last, Module | Union) and not isinstance(child, Role):
            found[-1] = with_seam(last, seam, NOWHERE)
        elif isinstance(last, Text | Param) and isinstance(child, Module | Union):
            text = missing(seam, last)
            found += [Text(text, NOWHERE, seam=True)] if text else []
        found.append(child)
    return ended(found)
