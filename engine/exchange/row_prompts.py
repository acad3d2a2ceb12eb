"""The prompt that a row of a batch spells: its picks, arguments and text over a schema."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from engine.exchange.errors import ExchangeError
from engine.exchange.rows import Row
from engine.pml import Argument, Import, Prompt, Schema, Text
from engine.pml.diagnostics import NOWHERE, quote
from engine.pml.spelling import Speller
from engine.pml.whitespace import normalise
from engine.pml.writer import write_prompt

_SHOWN = 5  # possible readings that a sentence names


@dataclass
class _Picked:
    """A module that a row imports, and what it imports inside it."""

    arguments: dict[str, str] = field(default_factory=dict)
    inside: dict[str, _Picked] = field(default_factory=dict)


def prompt_text(row: Row, schema: Schema) -> str:
    """Returns the document of a row.

    A module is picked by its path or by any end of it that belongs to it alone, and so is a parameter. An
    argument picks its module too, as in the language. Text begins a line behind the imports, with the white
    space of a document: none at its ends, none in lines of nothing else.

    Raises:
        ExchangeError: the row has a fault, or names what the schema does not have, or what it has several of.
        WriteError: a text holds what no document may hold.
    """
    if row.fault:
        raise ExchangeError(row.fault)
    if row.schema and row.schema != schema.name:
        raise ExchangeError(
            f"The row is written for the schema {quote(row.schema)}, and this one is {quote(schema.name)}. "
            "Answer it with a batch of its own."
        )
    if row.prompt is not None:
        if "<" not in row.prompt:
            raise ExchangeError(
                "The prompt is no document. Write <prompt>…</prompt>, or picks, arguments and text instead."
            )
        return row.prompt
    root = _Picked()
    taken = set()
    for name in row.picks:
        path = _module(name, schema)
        if path in taken:
            raise ExchangeError(f"The module {quote(path)} is picked twice. Pick it once.")
        taken.add(path)
        _place(root, path)
    for path, name, value in _arguments(row, schema):
        given = _place(root, path).arguments
        if name in given:
            raise ExchangeError(f"The argument {quote(f'{path}/{name}')} is given twice. Give it once.")
        given[name] = _lines(value)
    children: list[Any] = _imports(root)
    words = normalise(_lines(row.text))
    if words:
        children += [Text("\n", NOWHERE, seam=True), Text(words, NOWHERE)]
    return write_prompt(Prompt(schema.name or None, tuple(children), NOWHERE))


def _lines(text: str) -> str:
    """A text with the line ends that a document has."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _place(root: _Picked, path: str) -> _Picked:
    for name in path.split("/"):
        root = root.inside.setdefault(name, _Picked())
    return root


def _imports(picked: _Picked) -> list[Any]:
    return [
        Import(
            name,
            tuple(Argument(key, value, NOWHERE) for key, value in one.arguments.items()),
            tuple(_imports(one)),
            NOWHERE,
            NOWHERE,
        )
        for name, one in picked.inside.items()
    ]


def _arguments(row: Row, schema: Schema) -> Iterable[tuple[str, str, str]]:
    """The path of the module, the name and the value of each argument."""
    known = [f"{module.path}/{param.name}" for module in schema.modules() for param in module.params()]
    for key, value in row.arguments.items():
        if isinstance(value, str):
            path, _, name = _meant(key, known, "parameter", schema).rpartition("/")
            yield path, name, value
            continue
        path = _module(key, schema)
        own = [one for one in known if one.rpartition("/")[0] == path]
        for name, inner in value.items():
            if f"{path}/{name}" not in own:
                near = Speller().nearest(name, [one.rpartition("/")[2] for one in own])
                advice = f"It has {quote(near)}." if near else "Use one that it has."
                raise ExchangeError(f"The module {quote(path)} has no parameter {quote(name)}. {advice}")
            yield path, name, inner


def _module(name: str, schema: Schema) -> str:
    return _meant(name, list(schema.index.by_path), "module", schema)


def _meant(given: str, known: list[str], kind: str, schema: Schema) -> str:
    """The one path that a name or an end of a path stands for."""
    if given in known:
        return given
    found = [path for path in known if path.endswith(f"/{given}")]
    if len(found) == 1:
        return found[0]
    if found:
        shown = " or ".join(quote(path) for path in found[:_SHOWN])
        raise ExchangeError(f"{quote(given)} could be several {kind}s. Write {shown}.")
    near = Speller().nearest(given, [*known, *(path.rpartition("/")[2] for path in known)])
    advice = (
        f"Did you mean {quote(near)}?"
        if near
        else f"Use one that it has, or {quote('_' + given)} for a note."
    )
    if not near and kind == "module":
        advice = "Use one that it has."
    raise ExchangeError(f"The schema {quote(schema.name)} has no {kind} {quote(given)}. {advice}")
