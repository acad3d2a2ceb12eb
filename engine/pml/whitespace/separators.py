"""Seams: to whom the white space between modules belongs, and which of it a prompt reads.

In a schema a seam is a `Text`: the last child of the module that it follows (after a union, of each
member), or it stands behind the text that it follows. A prompt reads a seam where something stands on either
side of it within one turn. Where two meet because nothing was read between them, the larger one stands. What
ends its container has an implied seam, read where a prompt puts something behind it there.
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

SEAMS: Final = ("", " ", "\n", "\n\n")
"""What white space can make, the smallest first."""

Unsettled: TypeAlias = Part | ModuleStart | ModuleEnd | ModuleSeam
"""A part of a prompt before it is known which seams are read."""


def own_seam(module: Module) -> Text | None:
    """The seam that a module brings along."""
    last = module.children[-1] if module.children else None
    return last if isinstance(last, Text) and last.seam else None


def with_seam(node: Any, seam: str, span: Span, *, implied: bool = False) -> Any:
    """A node of a schema with the seam that follows it; only modules and unions have one of their own.

    Beside a module of whole turns there is nothing to set apart, and behind an empty one neither.
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
    """Puts white space behind children: a seam of its own, or one in the place of a smaller one."""
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
    """The children of a container; the last of them, if it is a module, with the seam that is implied for it.

    That is the seam of the module before it, or of the text before it.

    Args:
        children: the children so far.
        written: the last seam as it is written, of which a text that ends with line breaks needs a part only.
    """
    *before, last = children or [None]
    if isinstance(last, Module | Union):
        seam = next(filter(None, map(_seam_behind, reversed(before))), None)
        implied = written or seam or ""
        if implied:
            return (*before, with_seam(last, implied, last.span, implied=True))
    return tuple(children)


def _seam_behind(node: Any) -> str:
    """The seam behind a node as a document writes it: with the line breaks that end its text."""
    if isinstance(node, Union):
        return next(filter(None, map(_seam_behind, node.members)), "")
    if not isinstance(node, Module):
        return node.text if getattr(node, "seam", False) else ""
    seam = own_seam(node)
    if seam is None:
        return ""
    last = node.children[-2] if len(node.children) > 1 else None
    there = last.text[len(last.text.rstrip(SPACE)) :] if isinstance(last, Text) else ""
    return separator(there + seam.text)


def missing(seam: str, last: object) -> str:
    """What of a seam does not yet stand at the end of a text that keeps its white space."""
    if not isinstance(last, Text):
        return seam
    there = last.text[len(last.text.rstrip(SPACE)) :]
    if last.seam or (there and len(seam) <= there.count("\n")) or (there and seam == " "):
        return ""
    return seam[there.count("\n") :]


def add_run(children: list[Any], run: Run) -> str:
    """Adds a text run of a schema to the children before it, with its seams where they belong.

    Returns:
        The last seam that it writes; empty where it writes none.
    """
    takes = bool(children) and _takes_seam(children[-1])
    behind = run.before if takes and not larger(_seam_behind(children[-1]), run.before) else ""
    if run.before and children and isinstance(children[-1], Text):  # the end of what was included
        _end_with(children, run.before, run.span)
    elif run.before and children:
        children[-1] = with_seam(children[-1], run.before, run.span)
    if run.text:
        children.append(Text(run.text, run.span))
    if run.after and children:
        _end_with(children, run.after, run.span)
    return run.after or behind


def larger(one: str, other: str) -> bool:
    """Whether a seam stands where it meets another: a blank line before a line break before a space."""
    return (one.count("\n"), len(one)) > (other.count("\n"), len(other))


def _parent(path: str) -> str:
    """The path of the module round a module; "" for an outermost one."""
    return path.rpartition("/")[0]


def settled(items: Iterable[Unsettled]) -> list[Part]:
    """The parts of a prompt with those seams only that are read."""
    found: list[Part] = []
    pending: Part | None = None
    place = 0  # of the pending seam, before arguments without text
    beneath: tuple[Part | None, int] = (None, 0)  # what is pending again where an implied seam has ended
    over: tuple[Part, int] | None = None  # an implied seam that has just ended
    read = began = 0  # texts read so far, and when the turn began
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
            found.append(part)
        elif is_seam(part):
            without = starts[item.path] if isinstance(item, ModuleSeam) else began
            if read in (without, began):
                continue
            by_rule = isinstance(part, NewText) and part.implied
            if pending is None or (not by_rule and larger(part_text(part), part_text(pending))):
                implied = isinstance(part, SchemaText) and part.node.implied
                if implied:
                    beneath = pending, place
                pending, place = part, len(found)
                same = over is not None and part_text(over[0]) == part_text(part)
                if isinstance(item, ModuleSeam) and same and over is not None and not implied:
                    pending, place = over  # read from a segment that is read anyway
        else:
            if part_text(part) and pending is not None:
                found.insert(place, pending)
                pending = None
            read += bool(part_text(part))
            found.append(part)
    return found
