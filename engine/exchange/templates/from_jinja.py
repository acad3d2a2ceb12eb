"""A Jinja template as a schema. The template is parsed by jinja2 and never rendered.

Where the first line is a role and a colon, each such line begins a turn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.imported import Imported
from engine.exchange.templates.from_templates import TemplateTurn, from_turns, role_turns

DEFAULT_LENGTH: Final = 32
"""Tokens of a parameter, as a template does not say how long a value may be."""

_INSIDE: Final = "lines that name roles stand inside of blocks of the template, so they are read as text"


def from_jinja(source: str, name: str, length: int = DEFAULT_LENGTH) -> Imported:
    """Reads a template.

    Args:
        source: the template, for jinja2's default settings.
        name: name of the schema.
        length: length of the parameters, in tokens.

    Raises:
        ExchangeError: it is not valid Jinja, or nothing in it has a counterpart.
    """
    turns = role_turns(source, None)
    if turns:
        try:
            return from_turns(turns, name, length)
        except ExchangeError:
            whole = from_turns((TemplateTurn(None, source),), name, length)
            return replace(whole, notes=(*whole.notes, _INSIDE))
    return from_turns((TemplateTurn(None, source),), name, length)
