"""Converts a Jinja template to a schema. The template is parsed by jinja2 and never rendered.

If the first line is a role and a colon, each such line begins a turn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.imported import Imported
from engine.exchange.templates.from_templates import TemplateTurn, from_turns, role_turns

DEFAULT_LENGTH: Final = 32  # tokens of a parameter, because templates give no length

_INSIDE: Final = "lines that name roles are inside template blocks, so they are read as text"


def from_jinja(source: str, name: str, length: int = DEFAULT_LENGTH) -> Imported:
    """Converts a template for jinja2's default settings; `length` is that of each parameter, in tokens.

    Raises:
        ExchangeError: it is not valid Jinja, or a schema cannot express any of it.
    """
    turns = role_turns(source, None)
    if turns:
        try:
            return from_turns(turns, name, length)
        except ExchangeError:
            whole = from_turns((TemplateTurn(None, source),), name, length)
            return replace(whole, notes=(*whole.notes, _INSIDE))
    return from_turns((TemplateTurn(None, source),), name, length)
