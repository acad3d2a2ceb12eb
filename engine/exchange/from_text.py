"""A text or a Markdown file as a schema: a module for each of its sections."""

from __future__ import annotations

import re
from typing import Final

from engine.exchange.errors import ExchangeError
from engine.exchange.imported import (
    Imported,
    apart,
    first_words,
    imports,
    module,
    require_characters,
    role,
    text,
)
from engine.exchange.sections import Section, Split, by_headings
from engine.pml import Prompt, Schema
from engine.pml.diagnostics import NOWHERE
from engine.programs.naming import legible, unique

ENDINGS: Final = (".md", ".markdown", ".mdx", ".rst", ".txt", ".text")

_LEAST: Final = 80  # a section with fewer characters stays with what follows
_MOST: Final = 8_000
_LONGEST_NAME: Final = 60
_JINJA: Final = re.compile(r"\{%|\{\{")
_FIELD: Final = re.compile(r"(?<!\{)\{[A-Za-z_]\w*\}(?!\})")


def is_template(content: str) -> bool:
    """Whether a text has marks of Jinja."""
    return _JINJA.search(content) is not None


def from_text(content: str, name: str, split: Split | None = None) -> Imported:
    """Makes modules of the sections of a text, in a turn of the user; the prompt imports all of them.

    Between two sections is a blank line; where it is cut by tokens, what the text has there.

    Args:
        content: the text.
        name: name of the schema.
        split: how it is cut; by default at its headings.

    Raises:
        ExchangeError: it holds what no document may hold, or too many sections.
    """
    require_characters(content, "the text")
    content = content.replace("\r\n", "\n").strip("\n")
    by_tokens = split is not None and split.most is not None
    sections = split(content) if split and by_tokens else by_headings(content, long=0, short=_LEAST)
    if len(sections) > _MOST:
        raise ExchangeError(
            f"it has {len(sections):,} sections, and a schema takes {_MOST:,}; split the file"
        )
    taken: dict[str, int] = {}
    modules = [
        module(
            _name(one, name, taken, only=len(sections) == 1),
            text(one.text if by_tokens else one.text.rstrip("\n")),
        )
        for one in sections
    ]
    notes: list[str] = []
    if found := _FIELD.search(content):
        notes.append(
            f"{found[0]} stands as text; for a parameter write <param name=… len=…/> in its place, or "
            "{{ … }} and --from jinja"
        )
    body = tuple(modules) if by_tokens else apart(modules)
    schema = Schema(name, (role("user", body),), (), NOWHERE)
    return Imported(schema, Prompt(name, imports([one.name for one in modules]), NOWHERE), tuple(notes))


def _name(section: Section, fallback: str, taken: dict[str, int], *, only: bool) -> str:
    if section.title and not only:
        return unique(legible(section.title)[:_LONGEST_NAME], taken, 0)
    return unique(fallback, taken, 0) if only else first_words(section.text, "part", taken)
