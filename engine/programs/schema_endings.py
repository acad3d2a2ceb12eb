"""The seams at the end of what a program's schema holds, as a document of it has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.pml import Module, Role, Schema, Text, Union
from engine.pml.whitespace.separators import ended, own_seam
from engine.programs.source.errors import ProgramError


def ended_children(children: list[Any], path: str, adds: bool) -> tuple[Any, ...]:
    """The children of a container, of which the last has no seam but that which is implied for it.

    White space before an end tag, and before a turn, is nothing. What is said there is not read either, but
    where the prompt adds text.

    Args:
        children: the children as the program gives them.
        path: the module that holds them; empty for a schema or a turn.
        adds: whether a prompt adds its text behind them.

    Raises:
        ProgramError: something is set apart in another way than in a document.
    """
    if adds and children and _is_seam(children[-1]):
        raise ProgramError("new words follow a seam, which has to be text there; write it into the text")
    found = [
        without_seam(child) if place + 1 == len(children) or isinstance(children[place + 1], Role) else child
        for place, child in enumerate(children)
        if not (_is_seam(child) and (place + 1 == len(children) or isinstance(children[place + 1], Role)))
    ]
    result = ended(found)
    if children and isinstance(children[-1], Module | Union):
        said, implied = _own(children[-1]), _own(result[-1])
        if path and any(said):
            message = f"nothing follows the last seam in the module {path!r}, so it is none"
            raise ProgramError(f"{message}; remove it, or write with p.module({path!r}, seam=…):")
        if adds and said != implied:
            raise ProgramError(_unlike(implied))
    return result


def has_seams(schema: Schema) -> bool:
    """Whether anything in a schema has a seam."""
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        if _is_seam(node):
            return True
        pending.extend(node.members if isinstance(node, Union) else getattr(node, "children", ()))
    return False


def without_seam(node: Any) -> Any:
    """A node without its own seam; a union without those of its members."""
    if isinstance(node, Union):
        return replace(node, members=tuple(without_seam(member) for member in node.members))
    if isinstance(node, Module) and own_seam(node) is not None:
        return replace(node, children=node.children[:-1])
    return node


def _unlike(implied: list[str]) -> str:
    """What to do where new words follow a module that is set apart in another way than those before it."""
    seam = max(implied, key=len)
    if not seam:
        return (
            "new words follow the one module with a seam, which no document can say; write the seam as text"
        )
    return f"new words follow the last module, which is set apart as that before it; write p.seam({seam!r})"


def _own(node: Any) -> list[str]:
    modules = node.members if isinstance(node, Union) else (node,)
    return [seam.text if (seam := own_seam(module)) else "" for module in modules]


def _is_seam(node: Any) -> bool:
    return isinstance(node, Text) and node.seam
