"""The export formats of a schema or of one of its prompts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from engine.exchange.answer_formats import to_anthropic_format, to_openai_format
from engine.exchange.base.errors import ExchangeError
from engine.exchange.decisions import to_openai_decisions
from engine.exchange.templates.to_jinja import to_jinja
from engine.exchange.to_messages import to_anthropic, to_openai
from engine.pml import Bound, Module, Prompt, PromptError, Role, Schema, Union, bind, has_errors
from engine.pml.edit.writer import write_schema
from engine.pml.tree.conversation import conversation
from engine.programs import PromptCallError, to_program

_OF_PROMPTS: Final = ("openai", "decisions", "anthropic", "text")
_HEADINGS: Final = {"system": "System: ", "user": "User: ", "assistant": "Assistant: "}


@dataclass(frozen=True)
class Exported:
    """A schema or prompt in another format; `notes` has losses and warnings, one sentence each."""

    text: str
    filename: str
    media_type: str
    notes: tuple[str, ...] = ()


def export(form: str, schema: Schema, prompt: Prompt | None = None, base: Path | None = None) -> Exported:
    """Exports a schema, or one of its prompts.

    Args:
        form: one of `FORMS`.
        schema: the schema, without errors.
        prompt: the prompt; the forms of prompts require one, `jinja` adds its variables in a comment.
        base: the folder of the schema's `src` files, to check a program against them.

    Raises:
        ExchangeError: the format is unknown or does not support the content, or the prompt is missing.
        PromptError: the prompt does not fit the schema.
        PromptCacheError: the format does not support the schema.
    """
    if form not in _EXPORTERS:
        raise ExchangeError(f"there is no format {form!r}; use one of {', '.join(FORMS)}")
    bound = None
    if prompt is not None:
        bound = bind(schema, prompt)
        if has_errors(bound.diagnostics):
            raise PromptError(bound.diagnostics)
    elif form in _OF_PROMPTS:
        raise ExchangeError(f"{form} exports one prompt; name it, for instance with --prompt")
    exported = _EXPORTERS[form](schema, bound, base)
    notes = list[str]()
    if bound is not None and bound.questions and form not in ("pml", "decisions"):
        notes.append("the questions of the prompt are left out; the form decisions has them")
    if bound is not None and bound.format and form not in ("pml", "openai", "anthropic"):
        notes.append("the answer format of the prompt is left out; the forms openai and anthropic have it")
    return replace(exported, notes=(*exported.notes, *notes))


def _name(schema: Schema, ending: str) -> str:
    return f"{schema.name or 'schema'}{ending}"


def _pml(schema: Schema, _bound: Bound | None, _base: Path | None) -> Exported:
    copied = [module.path for module in schema.modules() if module.src is not None]
    notes = (f"the files of {', '.join(copied)} are copied into the document",) if copied else ()
    text = write_schema(_without_files(schema))
    return Exported(text, _name(schema, ".pml"), "application/xml", notes)


def _without_files(schema: Schema) -> Schema:
    """The schema with the text of `src` files copied into its modules."""
    done: dict[int, Any] = {}
    pending: list[tuple[Any, bool]] = [(schema, False)]
    while pending:
        node, ready = pending.pop()
        below = node.members if isinstance(node, Union) else node.children
        inner = [child for child in below if isinstance(child, (Module, Union, Role))]
        if not ready and inner:
            pending.append((node, True))
            pending.extend((child, False) for child in inner)
            continue
        children = tuple(done.get(id(child), child) for child in below)
        if isinstance(node, Union):
            done[id(node)] = replace(node, members=children)
        elif isinstance(node, Module):
            done[id(node)] = replace(node, children=children, src=None)
        else:
            done[id(node)] = replace(node, children=children)
    result: Schema = done[id(schema)]
    return result


def _python(schema: Schema, bound: Bound | None, base: Path | None) -> Exported:
    notes = []
    try:
        source = to_program(schema, base, bound)
    except PromptCallError as error:
        source = to_program(schema, base)
        notes.append(f"the prompt is left out: {error}")
    if any(module.src for module in schema.modules()):
        notes.append("the program reads the files of the schema; keep it in the same folder")
    return Exported(source, _name(schema, ".py"), "text/x-python", tuple(notes))


def _text(schema: Schema, bound: Bound | None, _base: Path | None) -> Exported:
    messages = conversation(bound.parts) if bound else ()
    if all(message.role is None for message in messages):
        text = "".join(message.text for message in messages)
    else:
        text = "\n\n".join(f"{_HEADINGS.get(message.role or '', '')}{message.text}" for message in messages)
    return Exported(text, _name(schema, ".txt"), "text/plain")


def _openai(schema: Schema, bound: Bound | None, _base: Path | None) -> Exported:
    body, notes = to_openai(bound.parts if bound else ())
    fields, more = to_openai_format(bound.format) if bound and bound.format else ({}, ())
    body, notes = {**body, **fields}, (*notes, *more)
    return Exported(_json(body), _name(schema, ".openai.json"), "application/json", notes)


def _decisions(schema: Schema, bound: Bound | None, _base: Path | None) -> Exported:
    body, notes = to_openai_decisions(bound.parts if bound else (), bound.questions if bound else ())
    return Exported(_json(body), _name(schema, ".decisions.json"), "application/json", notes)


def _anthropic(schema: Schema, bound: Bound | None, _base: Path | None) -> Exported:
    body, notes = to_anthropic(bound.parts if bound else ())
    fields, more = to_anthropic_format(bound.format) if bound and bound.format else ({}, ())
    body, notes = {**body, **fields}, (*notes, *more)
    return Exported(_json(body), _name(schema, ".anthropic.json"), "application/json", notes)


def _jinja(schema: Schema, bound: Bound | None, _base: Path | None) -> Exported:
    template, notes = to_jinja(schema, bound)
    return Exported(template, _name(schema, ".jinja"), "text/x-jinja", notes)


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


Exporter = Callable[[Schema, Bound | None, Path | None], Exported]
_EXPORTERS: Final[dict[str, Exporter]] = {
    "pml": _pml,
    "python": _python,
    "openai": _openai,
    "decisions": _decisions,
    "anthropic": _anthropic,
    "jinja": _jinja,
    "text": _text,
}
FORMS: Final = tuple(_EXPORTERS)  # the forms that `export` supports
