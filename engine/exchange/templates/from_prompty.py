"""Converts a Prompty file to a schema: the inputs in its head, and turns that are templates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from engine.base.strict_json import text_of
from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.imported import Imported
from engine.exchange.base.notes import Notes
from engine.exchange.base.yaml_files import parsed_yaml
from engine.exchange.templates.from_templates import Form, TemplateTurn, from_turns, role_turns

HEAD: Final = re.compile(r"\A\s*---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_FORMS: Final[Mapping[str, Form]] = {
    **dict.fromkeys(("jinja", "jinja2", "nunjucks"), "jinja"),
    "mustache": "mustache",
}
_READ: Final = frozenset({"template", "inputs", "sample"})
_DESCRIBES: Final = frozenset({"name", "description", "authors", "author", "version", "tags"})


def is_prompty(source: str) -> bool:
    """Returns whether a text has a YAML head followed by lines that name roles."""
    head = HEAD.match(source)
    return head is not None and bool(role_turns(source[head.end() :], "system"))


def from_prompty(source: str, name: str, length: int) -> Imported:
    """Reads a Prompty file; `length` is that of each parameter, in tokens.

    Raises:
        ExchangeError: its head is invalid YAML, its turns are invalid templates, or there is no turn.
    """
    head = HEAD.match(source)
    if head is None:
        raise ExchangeError(
            "this is not a Prompty file: it does not begin with a head between two lines of ---"
        )
    settings = parsed_yaml(head[1])
    if settings is None:
        settings = {}
    if not isinstance(settings, dict):
        raise ExchangeError(
            "the head of this Prompty file is not a mapping; write name: …, model: …, inputs: …"
        )
    notes = Notes()
    defaults = _defaults(settings, notes)
    for key in settings:
        if key in _DESCRIBES:
            notes.count("field", "of the head left out (a schema has only a file name)", str(key))
        elif key not in _READ:
            notes.count("field", "of the head left out (settings belong to a run)", str(key))
    body = source[head.end() :]
    for key in _inputs(settings):
        if re.search(rf"\b{re.escape(str(key))}\b", body) is None:
            notes.count("input", "left out (no text uses it)", str(key))
    form = _form(settings)
    above = source.count("\n", 0, head.end())
    turns = role_turns(body, "system", above) or (TemplateTurn("user", body.strip()),)
    turns = tuple(replace(turn, form=form) for turn in turns)
    return from_turns(turns, name, length, defaults=defaults, notes=notes)


def _form(given: dict[Any, Any]) -> Form:
    template = given.get("template")
    kind = template.get("format", template.get("type")) if isinstance(template, dict) else template
    if isinstance(kind, dict):
        kind = kind.get("kind")
    form = _FORMS.get(str(kind or "jinja2").lower())
    if form is None:
        known = "use jinja2 or mustache"
        raise ExchangeError(f"the template format {str(kind)[:40]!r} is unknown; {known}")
    return form


def _defaults(given: dict[Any, Any], notes: Notes) -> dict[str, str]:
    """The defaults of inputs; samples are no defaults and are noted."""
    defaults: dict[str, str] = {}
    for key, spec in _inputs(given).items():
        if isinstance(spec, dict):
            if (text := text_of(spec.get("default"))) is not None:
                defaults[str(key)] = text
            if spec.get("sample") is not None:
                notes.count("sample", "of an input left out (pass it as an argument)", str(key))
    samples = given.get("sample")
    for key in samples if isinstance(samples, dict) else {}:
        notes.count("sample", "of an input left out (pass it as an argument)", str(key))
    return defaults


def _inputs(given: dict[Any, Any]) -> dict[Any, Any]:
    inputs = given.get("inputs")
    if isinstance(inputs, list):
        inputs = {item.get("name"): item for item in inputs if isinstance(item, dict)}
    return inputs if isinstance(inputs, dict) else {}
