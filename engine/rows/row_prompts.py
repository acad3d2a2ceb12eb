"""Builds the prompt of a batch row: its picks, arguments and text over a schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.exchange.base.errors import ExchangeError
from engine.pml import Argument, Import, Prompt, Schema, Text, parse_prompt, set_argument, set_pick
from engine.pml.diagnostics.diagnostic import NOWHERE, quote
from engine.pml.diagnostics.spelling import Speller
from engine.pml.edit.question_text import set_question
from engine.pml.edit.writer import write_prompt
from engine.pml.whitespace.rules import normalise
from engine.rows.row_extras import CellError
from engine.rows.rows import Row

_SHOWN = 5  # possible meanings in a message


@dataclass
class _Picked:
    """A module that a row imports, and its inner imports."""

    arguments: dict[str, str] = field(default_factory=dict)
    inside: dict[str, _Picked] = field(default_factory=dict)


def prompt_text(row: Row, schema: Schema, over: str | None = None) -> str:
    """Returns the document of a row.

    Modules and parameters are named by their path or by any unique end of it. An argument also imports its
    module, as in the language. Text begins on the line after the imports, with a document's white space: none
    at its ends, none on blank lines.

    Args:
        row: the row.
        schema: the schema of all rows.
        over: a prompt that the row changes: its picks are added, and its text replaces the last text. None
            for an independent row.

    Raises:
        CellError: a cell has an unknown or an ambiguous name.
        ExchangeError: the row is invalid, or is for another schema.
        PromptEditError: the prompt cannot be changed this way.
        WriteError: a text contains invalid characters.
    """
    if row.fault:
        raise CellError(row.column, row.fault) if row.column else ExchangeError(row.fault)
    if row.schema and row.schema != schema.name:
        raise CellError(
            "schema",
            f"The row is for the schema {quote(row.schema)}, not {quote(schema.name)}. "
            "Put it into a separate batch.",
        )
    if row.prompt is not None:
        if "<" not in row.prompt:
            raise CellError(
                "prompt",
                "The prompt is not a document. Write <prompt>…</prompt>, or use picks, arguments and text.",
            )
        return row.prompt
    return _alone(row, schema) if over is None else _changed(row, schema, over)


def modules_of(source: str) -> list[str]:
    """Returns the paths of all modules that a prompt imports, in order; empty if it cannot be parsed."""
    tree = parse_prompt(source).tree
    found: list[str] = []
    pending: list[tuple[Any, str]] = [(tree, "")] if tree is not None else []
    while pending:
        node, path = pending.pop()
        if isinstance(node, Import):
            path = f"{path}/{node.name}".lstrip("/")
            found.append(path)
        pending += [(child, path) for child in reversed(getattr(node, "children", ()))]
    return found


def _alone(row: Row, schema: Schema) -> str:
    root = _Picked()
    for path, on in _picks(row, schema):
        if not on:
            raise CellError(
                "picks",
                f"{quote('-' + path)} omits a module, but there is no prompt to omit it from.",
            )
        _place(root, path)
    for path, name, value in _arguments(row, schema):
        arguments = _place(root, path).arguments
        if name in arguments:
            raise CellError(name, f"The argument {quote(f'{path}/{name}')} is given twice. Give it once.")
        arguments[name] = _lines(value)
    children: list[Any] = _imports(root)
    words = normalise(_lines(row.text))
    if words:
        children += [Text("\n", NOWHERE, seam=True, implied=not children), Text(words, NOWHERE)]
    return write_prompt(Prompt(schema.name or None, tuple(children), NOWHERE))


def _changed(row: Row, schema: Schema, over: str) -> str:
    source = over
    for path, on in _picks(row, schema):
        source = set_pick(source, schema, path, on)
    for path, name, value in _arguments(row, schema):
        source = set_argument(source, schema, path, name, _lines(value))
    words = normalise(_lines(row.text))
    return set_question(source, schema, words) if words else source


def _picks(row: Row, schema: Schema) -> Iterator[tuple[str, bool]]:
    """The paths that a row names, each once, and whether each is picked or omitted."""
    taken = set()
    chosen: dict[int, str] = {}  # the picked member of each union
    for name in row.picks:
        try:
            path = _module(name.removeprefix("-"), schema)
        except ExchangeError as error:
            raise CellError("picks", str(error)) from None
        if path in taken:
            raise CellError("picks", f"The module {quote(path)} is picked twice. Pick it once.")
        taken.add(path)
        on = not name.startswith("-")
        if on:
            _choose(path, schema, chosen)
        yield path, on


def _choose(path: str, schema: Schema, chosen: dict[int, str]) -> None:
    """Notes a picked module and the modules around it; two members of one union are an error."""
    parts = path.split("/")
    for end in range(1, len(parts) + 1):
        member = "/".join(parts[:end])
        union = schema.union_of(member)
        other = member if union is None else chosen.setdefault(id(union), member)
        if other != member:
            message = f"{quote(other)} and {quote(member)} are in the same choice. Keep one."
            raise CellError("picks", message)


def _lines(text: str) -> str:
    """The text with a document's line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _place(root: _Picked, path: str) -> _Picked:
    for name in path.split("/"):
        root = root.inside.setdefault(name, _Picked())
    return root


def _imports(picked: _Picked) -> list[Any]:
    return [
        Import(
            name,
            tuple(Argument(key, value, NOWHERE) for key, value in child.arguments.items()),
            tuple(_imports(child)),
            NOWHERE,
            NOWHERE,
        )
        for name, child in picked.inside.items()
    ]


def _arguments(row: Row, schema: Schema) -> Iterable[tuple[str, str, str]]:
    """The module path, name and value of each argument."""
    known = [f"{module.path}/{param.name}" for module in schema.modules() for param in module.params()]
    for key, value in row.arguments.items():
        if isinstance(value, str):
            try:
                path, _, name = _meant(key, known, "parameter", schema).rpartition("/")
            except ExchangeError as error:
                raise CellError(key, str(error)) from None
            yield path, name, value
            continue
        try:
            path = _module(key, schema)
        except ExchangeError as error:
            raise CellError("arguments", str(error)) from None
        siblings = [known_path for known_path in known if known_path.rpartition("/")[0] == path]
        for name, inner in value.items():
            if f"{path}/{name}" not in siblings:
                near = Speller().nearest(name, [known_path.rpartition("/")[2] for known_path in siblings])
                advice = _advice(
                    near, [known_path.rpartition("/")[2] for known_path in siblings], "parameter"
                )
                message = f"The module {quote(path)} has no parameter {quote(name)}. {advice}"
                raise CellError("arguments", message)
            yield path, name, inner


def _module(name: str, schema: Schema) -> str:
    return _meant(name, list(schema.index.by_path), "module", schema)


def _meant(given: str, known: list[str], kind: str, schema: Schema) -> str:
    """The only path that matches a name or an end of a path."""
    if given in known:
        return given
    matches = [path for path in known if path.endswith(f"/{given}")]
    if len(matches) == 1:
        return matches[0]
    if matches:
        shown = " or ".join(quote(path) for path in matches[:_SHOWN])
        raise ExchangeError(f"{quote(given)} could be several {kind}s. Write {shown}.")
    near = Speller().nearest(given, [*known, *(path.rpartition("/")[2] for path in known)])
    names = known if kind == "parameter" else [path.rpartition("/")[2] for path in known]
    advice = _advice(near, names, kind)
    if not near and kind == "parameter":
        advice += f" Write {quote('_' + given)} for a note."
    raise ExchangeError(f"The schema {quote(schema.name)} has no {kind} {quote(given)}. {advice}")


def _advice(near: str | None, known: list[str], kind: str) -> str:
    """The nearest name, or else the first of the known ones."""
    if near:
        return f"Did you mean {quote(near)}?"
    shown = ", ".join(map(quote, known[:_SHOWN])) or f"no {kind}s"
    return f"It has {shown}{' and more' if len(known) > _SHOWN else ''}."
