"""Builds a prompt that imports a whole schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.tree.tree import Argument, Import, Module, Prompt, Role, Schema, Union


def prompt_importing(schema: Schema) -> Prompt:
    """Returns a prompt that imports every module (of a union the first), with {name} for each parameter."""
    made: dict[str, Import] = {}
    left_out = {
        member.path
        for module in schema.modules()
        if (union := schema.union_of(module.path)) is not None
        for member in union.members[1:]
    }
    for module in reversed(schema.modules()):
        below = (made[inner.path] for inner in _modules(module.children) if inner.path not in left_out)
        values = {param.name: Argument(param.name, f"{{{param.name}}}", NOWHERE) for param in module.params()}
        made[module.path] = Import(module.name, tuple(values.values()), tuple(below), NOWHERE, NOWHERE)
    imports = tuple(made[inner.path] for inner in _modules(schema.children) if inner.path not in left_out)
    return Prompt(schema.name, imports, NOWHERE)


def _modules(children: Iterable[object]) -> Iterator[Module]:
    """Yields the modules among some nodes, including those in unions and turns."""
    for child in children:
        if isinstance(child, Union):
            yield from child.members
        elif isinstance(child, Role):
            yield from _modules(child.children)
        elif isinstance(child, Module):
            yield child
