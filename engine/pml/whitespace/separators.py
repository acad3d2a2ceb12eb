"""Assigns the white space between modules, and selects the separators that a prompt reads.

In a schema a seam is a `Text`: the last child of the module before it (after a union, of each member), or the
sibling after a text. A prompt reads a seam if its turn has content on both sides. If two meet without text
between them, the larger one wins. The last part of a container has an implied seam, read only if a prompt
adds text after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, TypeAlias

from engine.pml.diagnostics.diagnostic import Span
from engine.pml.tree.parts import (
    ModuleEnd,
    ModuleSeam,
    ModuleStart,
    NewText,
    Part,
    RoleClose,
    RoleOpen,
    SchemaText,
    is_seam,
    part_text,
)
from engine.pml.tree.tree import Module, Text, Union
from engine.pml.whitespace.rules import SPACE, Run, separator

SEAMS: Final = ("", " ", "\n", "\n\n")  # possible separators, the smallest first

# a part of a prompt before its separators are selected
Unsettled: TypeAlias = Part | ModuleStart | ModuleEnd | ModuleSeam


def own_seam(module: Module) -> Text | None:
    """Returns the separator at the end of a module, if any."""
    last = module.children[-1] if module.children else None
    return last if isinstance(last, Text) and last.seam else None


def with_seam(node: Any, seam: str, span: Span, *, implied: bool = False) -> Any:
    """Adds the separator after a node of a schema; only modules and unions store one.

    Modules of whole turns and empty modules need no separator.
    """
    if isinstance(node, Union):
        members = tuple(with_seam(member, seam, span, implied=implied) for member in node.members)
        return replace(node, members=members)
    if not isinstance(node, Module) or not _takes_seam(node):
        return node
    children = list(node.children)
    _end_with(children, seam, span, implied=implied)
    return replace(node, children=tuple(children))


def _end_with(children: list[Any], seam: str, span: Span, *, implied: bool = False) -> None:
    """Appends a separator to children, or replaces a smaller one."""
    last = children[-1] if children else None
    if isinstance(last, Text) and last.seam:
        if implied or not larger(seam, last.text):
            return
        children.pop()
    if text := missing(seam, children[-1] if children else None):
        children.append(Text(text, span, seam=True, implied=implied))


def _takes_seam(node: Any) -> bool:
    if isinstance(node, Union):
        return any(map(_takes_seam, node.members))
    return isinstance(node, Text) or (isinstance(node, Module) and bool(node.children) and not node.turns())


def ended(children: list[Any], written: str = "") -> tuple[Any, ...]:
    """Returns the children of a container; a module at the end gets an implied separator.

    The implied separator is `written`, the last one in the source, or else that of the module or text before.
    """
    *before, last = children or [None]
    if isinstance(last, Module | Union):
        seam = next(filter(None, map(_seam_behind, reversed(before))), None)
        implied = written or seam or ""
        if implied:
            return (*before, with_seam(last, implied, last.span, implied=True))
    return tuple(children)


def _seam_behind(node: Any) -> str:
    """Returns the separator after a node as written, including the line breaks that end its text."""
    if isinstance(node, Union):
        return next(filter(None, map(_seam_behind, node.members)), "")
    if not isinstance(node, Module):
        return node.text if getattr(node, "seam", False) else ""
    seam = own_seam(node)
    if seam is None:
        return ""
    last = node.children[-2] if len(node.children) > 1 else None
    ending = last.text[len(last.text.rstrip(SPACE)) :] if isinstance(last, Text) else ""
    return separator(ending + seam.text)


def missing(seam: str, last: object) -> str:
    """Returns the part of a separator that the white space at the end of a text lacks."""
    if not isinstance(last, Text):
        return seam
    ending = last.text[len(last.text.rstrip(SPACE)) :]
    if last.seam or (ending and len(seam) <= ending.count("\n")) or (ending and seam == " "):
        return ""
    return seam[ending.count("\n") :]


def add_run(children: list[Any], run: Run) -> str:
    """Adds a text run of a schema to the children before it, and places its separators.

    Returns:
        The last separator that it writes, or "".
    """
    takes = bool(children) and _takes_seam(children[-1])
    behind = run.before if takes and not larger(_seam_behind(children[-1]), run.before) else ""
    if run.before and children and isinstance(children[-1], Text):  # the end of an included text
        _end_with(children, run.before, run.span)
    elif run.before and children:
        children[-1] = with_seam(children[-1], run.before, run.span)
    if run.text:
        children.append(Text(run.text, run.span))
    if run.after and children:
        _end_with(children, run.after, run.span)
    return run.after or behind


def larger(one: str, other: str) -> bool:
    """Whether a separator wins over another: a blank line over a line break over a space."""
    return (one.count("\n"), len(one)) > (other.count("\n"), len(other))


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def settled(items: Iterable[Unsettled]) -> list[Part]:
    """Returns the parts of a prompt with only the separators that are read."""
    parts: list[Part] = []
    pending: Part | None = None
    place = 0  # of the pending separator, before arguments without text
    beneath: tuple[Part | None, int] = (None, 0)  # pending again after an implied separator ends
    over: tuple[Part, int] | None = None  # an implied separator that has just ended
    read = began = 0  # number of texts read, and its value at the start of the turn
    starts: dict[str, int] = {}
    for item in items:
        if isinstance(item, ModuleStart):
            starts[item.path] = read
            continue
        if isinstance(item, ModuleEnd):
            over = None
            implied = isinstance(pending, SchemaText) and pending.node.implied
            if isinstance(pending, SchemaText) and implied and _parent(pending.module) == item.path:
                over = pending, place
                pending, place = beneath
            continue
        part = item.part if isinstance(item, ModuleSeam) else item
        if isinstance(part, RoleOpen | RoleClose):
            pending, began = None, read
            parts.append(part)
        elif is_seam(part):
            without = starts[item.path] if isinstance(item, ModuleSeam) else began
            if read in (without, began):
                continue
            by_rule = isinstance(part, NewText) and part.implied
            if pending is None or (not by_rule and larger(part_text(part), part_text(pending))):
                implied = isinstance(part, SchemaText) and part.node.implied
                if implied:
                    beneath = pending, place
                pending, place = part, len(parts)
                same = over is not None and part_text(over[0]) == part_text(part)
                if isinstance(item, ModuleSeam) and same and over is not None and not implied:
                    pending, place = over  # from a segment that is read anyway
        else:
            if part_text(part) and pending is not None:
                parts.insert(place, pending)
                pending = None
            read += bool(part_text(part))
            parts.append(part)
    return parts
