"""Builds the schema of a compiled program, and a prompt from values for its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.pml import (
    NAME,
    Argument,
    Import,
    Module,
    Param,
    Prompt,
    Role,
    Scaffold,
    Schema,
    Text,
    Union,
)
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.programs.compile.naming import legible, unique
from engine.programs.compile.outline import Compiled, ModuleNode, Node, Say, Seam, Turn, UnionNode
from engine.programs.schema_endings import ended_children
from engine.programs.source.expressions import Const, Ref, evaluate, text_of
from engine.programs.source.parameters import Arg, Parameter


def build_schema(compiled: Compiled) -> Schema:
    """Returns the schema of a program. Its nodes have no spans, because there is no document.

    Raises:
        ProgramError: a separator is at a place without one in documents.
    """
    adds = bool(compiled.tail) and compiled.tail[0].role is None
    body = _body(compiled.body, "", adds)
    if compiled.opened is not None:
        body = (Role(compiled.opened, body, NOWHERE),)
    if compiled.system is not None:
        text = (Text(compiled.system, NOWHERE),) if compiled.system else ()
        body = (Role("system", text, NOWHERE), *body)
    scaffolds = tuple(Scaffold(paths, NOWHERE) for paths in compiled.scaffolds)
    return Schema(compiled.name, body, scaffolds, NOWHERE)


def build_prompt(compiled: Compiled, values: Mapping[str, Any]) -> Prompt:
    """Returns the prompt of a program for the values of its parameters, by Python name."""
    children: list[Any] = list(_imports(compiled.body, values))
    for turn in compiled.tail:
        text = "".join(text_of(evaluate(part, values)) for part in turn.parts)
        inner = (Text(text, NOWHERE),) if text else ()
        children.extend(inner if turn.role is None else (Role(turn.role, inner, NOWHERE),))
    return Prompt(compiled.name, tuple(children), NOWHERE)


def _body(body: tuple[Node, ...], path: str, adds: bool) -> tuple[Any, ...]:
    """Returns the children of a schema or module; `adds` if a prompt may add text after them."""
    return ended_children(list(_nodes(body, path, adds, _Slots())), path, adds)


def _nodes(body: tuple[Node, ...], path: str, adds: bool, slots: _Slots) -> Iterator[Any]:
    for item in _contents(body, slots):
        match item:
            case str():
                yield Text(item, NOWHERE)
            case Seam(text):
                yield Text(text, NOWHERE, seam=True)
            case ModuleNode():
                yield _module(item, path)
            case UnionNode(members, scaffold):
                yield Union(tuple(_module(member, path) for member in members), scaffold, NOWHERE)
            case Turn(role, inner):
                last = adds and item is body[-1]
                yield Role(role, ended_children(list(_nodes(inner, path, last, slots)), "", last), NOWHERE)
            case _Slot():
                yield _param(item)


def _module(block: ModuleNode, above: str) -> Module:
    path = f"{above}/{block.name}" if above else block.name
    children = _body(block.body, path, False)
    if block.seam and children and not isinstance(children[-1], Role):
        children = (*children, Text(block.seam, NOWHERE, seam=True))
    return Module(block.name, path, children, block.cache, block.src, NOWHERE, NOWHERE)


@dataclass(frozen=True)
class _Slot:
    """A place of a parameter, with its name in the module; `repeats` if an earlier place is the same."""

    name: str
    ref: Ref
    repeats: bool


def _param(slot: _Slot) -> Param:
    parameter, arg = slot.ref.parameter, slot.ref.arg
    if arg is None:
        raise TypeError(f"{parameter.name} has no length")
    return Param(slot.name, arg.length, parameter.default, arg.scaffold, NOWHERE, repeats=slot.repeats)


@dataclass
class _Slots:
    """The parameter names of one module.

    Attributes:
        taken: the used names.
        names: the name of each argument.
    """

    taken: dict[str, int] = field(default_factory=dict)
    names: dict[tuple[str, Parameter, Arg | None], str] = field(default_factory=dict)


def _contents(
    body: tuple[Node, ...], slots: _Slots
) -> Iterator[str | _Slot | Seam | ModuleNode | UnionNode | Turn]:
    """Yields the content of a body: adjacent constants as one text, and parameters with their names."""
    taken, names = slots.taken, slots.names
    pending = ""
    for node in body:
        for part in node.parts if isinstance(node, Say) else (node,):
            if isinstance(part, Const):
                pending += text_of(part.value)
                continue
            if pending:
                yield pending
                pending = ""
            if isinstance(part, Ref):
                words = _slot_name(part)
                known = names.get((words, part.parameter, part.arg))
                name = names[words, part.parameter, part.arg] = known or unique(words, taken, 0)
                yield _Slot(name, part, known is not None)
            elif isinstance(part, (Seam, ModuleNode, UnionNode, Turn)):
                yield part
    if pending:
        yield pending


def _slot_name(ref: Ref) -> str:
    name = ref.name or (ref.arg.name if ref.arg else None) or ref.parameter.name
    return name if NAME.fullmatch(name) else legible(name)


def _imports(body: tuple[Node, ...], values: Mapping[str, Any]) -> Iterator[Import]:
    for node in body:
        match node:
            case ModuleNode():
                if evaluate(node.condition, values):
                    yield _import(node, values)
            case UnionNode(members):
                chosen = next((member for member in members if evaluate(member.condition, values)), None)
                if chosen is not None:
                    yield _import(chosen, values)
            case Turn(body=inner):
                yield from _imports(inner, values)


def _import(block: ModuleNode, values: Mapping[str, Any]) -> Import:
    arguments = []
    slots = _Slots()
    turns = [turn.body for turn in block.body if isinstance(turn, Turn)]
    for item in (item for body in turns or (block.body,) for item in _contents(body, slots)):
        if isinstance(item, _Slot) and not item.repeats:
            parameter = item.ref.parameter
            text = text_of(values[parameter.name])
            if text != text_of(parameter.default):
                arguments.append(Argument(item.name, text, NOWHERE))
    inner = tuple(_imports(block.body, values))
    return Import(block.name, tuple(arguments), inner, NOWHERE, NOWHERE)
