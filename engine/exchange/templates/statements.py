"""Statements of templates: how they are spelled, what they set, and what they would write."""

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
    "Assign": "{% set %} to what is no constant",
    "AssignBlock": "{% set %} of a block",
    "With": "{% with %}",
}


def spelling(node: nodes.Node) -> str:
    """How a statement begins."""
    kind = type(node).__name__
    return _SPELLING.get(kind, kind.lower())


def written_in(node: nodes.Node) -> tuple[str, ...]:
    """The variables whose values stand in the text that a statement makes."""
    names = [
        path
        for output in node.find_all(nodes.Output)
        for part in output.nodes
        for one in (part, *part.find_all((nodes.Name, nodes.Getattr, nodes.Getitem)))
        if (path := path_of(one)) is not None
    ]
    whole = [one for one in names if not any(other.startswith(f"{one}.") for other in names)]
    return tuple(dict.fromkeys(whole))


def target_of(target: nodes.Name | nodes.NSRef) -> str:
    """The variable that a statement sets."""
    return f"{target.name}.{target.attr}" if isinstance(target, nodes.NSRef) else target.name


def set_in(node: nodes.Node) -> list[str]:
    """The variables that a statement sets for what follows it."""
    found = [target_of(one) for one in node.find_all(nodes.NSRef)]
    match node:
        case nodes.Assign(target=target) | nodes.AssignBlock(target=target):
            found += [
                one.name for one in (target, *target.find_all(nodes.Name)) if isinstance(one, nodes.Name)
            ]
        case nodes.Import(target=name) | nodes.Macro(name=name):
            found.append(name)
        case nodes.FromImport(names=names):
            found += [one if isinstance(one, str) else one[1] for one in names]
    return list(dict.fromkeys(found))


def silent(body: list[nodes.Node]) -> bool:
    """Whether a branch sets variables and writes nothing but white space."""
    sets = any(isinstance(one, _SETS) or any(one.find_all(_SETS)) for one in body)
    return sets and all(map(_is_silent, body))


def _is_silent(node: nodes.Node) -> bool:
    match node:
        case nodes.If(body=body, elif_=others, else_=rest):
            return all(map(_is_silent, [*body, *(inner for one in others for inner in one.body), *rest]))
        case nodes.Output(nodes=parts):
            return all(isinstance(one, nodes.TemplateData) and not one.data.strip() for one in parts)
    return isinstance(node, _SETS)
