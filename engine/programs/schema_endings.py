"""Adjusts the separators at the end of containers, to match a document."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.pml import Module, Role, Schema, Text, Union
from engine.pml.whitespace.separators import ended, own_seam
from engine.programs.source.errors import ProgramError


def ended_children(children: list[Any], path: str, adds: bool) -> tuple[Any, ...]:
    """Returns the children of a container; the last one has only an implied separator.

    White space before an end tag or turn is ignored. A separator there is read only if the prompt `adds`
    text.

    Raises:
        ProgramError: a document would have other separators.
    """
    if adds and children and _is_seam(children[-1]):
        raise ProgramError("new words cannot follow a separator; write it as text")
    trimmed = [
        without_seam(child) if place + 1 == len(children) or isinstance(children[place + 1], Role) else child
        for place, child in enumerate(children)
        if not (_is_seam(child) and (place + 1 == len(children) or isinstance(children[place + 1], Role)))
    ]
    result = ended(trimmed)
    if children and isinstance(children[-1], Module | Union):
        actual, implied = _own(children[-1]), _own(result[-1])
        if path and any(actual):
            message = f"nothing follows the last separator in the module {path!r}"
            raise ProgramError(f"{message}; remove it, or write with p.module({path!r}, seam=…):")
        if adds and actual != implied:
            raise ProgramError(_unlike(implied))
    return result


def has_seams(schema: Schema) -> bool:
    """Whether a schema has any separator."""
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop()
        if _is_seam(node):
            return True
        pending.extend(node.members if isinstance(node, Union) else getattr(node, "children", ()))
    return False


def without_seam(node: Any) -> Any:
    """Returns a node without its separator; a union without those of its members."""
    if isinstance(node, Union):
        return replace(node, members=tuple(without_seam(member) for member in node.members))
    if isinstance(node, Module) and own_seam(node) is not None:
        return replace(node, children=node.children[:-1])
    return node


def _unlike(implied: list[str]) -> str:
    """Returns the fix if new words follow a module with a different separator than those before."""
    seam = max(implied, key=len)
    if not seam:
        return "new words follow the only module with a separator; write the separator as text"
    return (
        f"new words follow the last module, which has the separator of the one before; write p.seam({seam!r})"
    )


def _own(node: Any) -> list[str]:
    modules = node.members if isinstance(node, Union) else (node,)
    return [seam.text if (seam := own_seam(module)) else "" for module in modules]


def _is_seam(node: Any) -> bool:
    return isinstance(node, Text) and node.seam
