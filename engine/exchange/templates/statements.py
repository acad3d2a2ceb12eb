"""Statements of templates: their spelling, the variables that they set, and their output."""

from __future__ import annotations

from typing import Final

from jinja2 import nodes

from engine.exchange.templates.expressions import path_of

_SETS: Final = (nodes.Assign, nodes.AssignBlock)
_SPELLING: Final = {
    "For": "{% for %}",
    "Macro": "{% macro %}",
    "CallBlock": "{% call %}",
    "FilterBlock": "{% filter %}",
    "Include": "{% include %}",
    "Import": "{% import %}",
    "FromImport": "{% from … import %}",
    "Extends": "{% extends %}",
    "Assign": "{% set %} to a value that is no constant",
    "AssignBlock": "{% set %} of a block",
    "With": "{% with %}",
}


def spelling(node: nodes.Node) -> str:
    """Returns the beginning of a statement, for messages."""
    kind = type(node).__name__
    return _SPELLING.get(kind, kind.lower())


def written_in(node: nodes.Node) -> tuple[str, ...]:
    """Returns the variables that a statement writes."""
    names = [
        path
        for output in node.find_all(nodes.Output)
        for part in output.nodes
        for name in (part, *part.find_all((nodes.Name, nodes.Getattr, nodes.Getitem)))
        if (path := path_of(name)) is not None
    ]
    whole = [name for name in names if not any(other.startswith(f"{name}.") for other in names)]
    return tuple(dict.fromkeys(whole))


def target_of(target: nodes.Name | nodes.NSRef) -> str:
    """Returns the variable that a statement sets."""
    return f"{target.name}.{target.attr}" if isinstance(target, nodes.NSRef) else target.name


def set_in(node: nodes.Node) -> list[str]:
    """Returns the variables that a statement sets for later statements."""
    variables = [target_of(leaf) for leaf in node.find_all(nodes.NSRef)]
    match node:
        case nodes.Assign(target=target) | nodes.AssignBlock(target=target):
            variables += [
                leaf.name for leaf in (target, *target.find_all(nodes.Name)) if isinstance(leaf, nodes.Name)
            ]
        case nodes.Import(target=name) | nodes.Macro(name=name):
            variables.append(name)
        case nodes.FromImport(names=names):
            variables += [item if isinstance(item, str) else item[1] for item in names]
    return list(dict.fromkeys(variables))


def silent(body: list[nodes.Node]) -> bool:
    """Returns whether a branch sets variables and writes only white space."""
    sets = any(isinstance(statement, _SETS) or any(statement.find_all(_SETS)) for statement in body)
    return sets and all(map(_is_silent, body))


def _is_silent(node: nodes.Node) -> bool:
    match node:
        case nodes.If(body=body, elif_=others, else_=rest):
            return all(map(_is_silent, [*body, *(inner for other in others for inner in other.body), *rest]))
        case nodes.Output(nodes=parts):
            return all(isinstance(part, nodes.TemplateData) and not part.data.strip() for part in parts)
    return isinstance(node, _SETS)
