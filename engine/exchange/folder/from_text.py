"""A text or a Markdown file as a schema: a module for each of its sections."""

from __future__ import annotations

import re
from typing import Final

from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.imported import (
    Imported,
    apart,
    first_words,
    imports,
    module,
    require_characters,
    role,
    text,
)
from engine.exchange.folder.sections import Section, Split, by_headings
from engine.pml import Prompt, Schema
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.whitespace.rules import SPACE, separator
from engine.programs.compile.naming import legible, unique

ENDINGS: Final = (".md", ".markdown", ".mdx", ".rst", ".txt", ".text")

_LEAST: Final = 80  # a section with fewer characters stays with what follows
_MOST: Final = 8_000
_LONGEST_NAME: Final = 60
_BLANK_LINES: Final = re.compile(r"(?:[ \t\r]*\n)*")
_JINJA: Final = re.compile(r"\{%|\{\{")
_FIELD: Final = re.compile(r"(?<!\{)\{[A-Za-z_]\w*\}(?!\})")


def is_template(content: str) -> bool:
    """Whether a text has marks of Jinja."""
    return _JINJA.search(content) is not None


def from_text(content: str, name: str, split: Split | None = None) -> Imported:
    """Makes modules of the sections of a text, in a turn of the user; the prompt imports all of them.

    Between two sections is what the text has there, a line break or a blank line, of several blank lines one;
    where it is cut by tokens, all of it. Blank lines at the ends of the text are left out.

    Args:
        content: the text.
        name: name of the schema.
        split: how it is cut; by default at its headings.

    Raises:
        ExchangeError: it holds what no document may hold, or too many sections.
    """
    require_characters(content, "the text")
    content = _without_blank_ends(content.replace("\r\n", "\n"))
    by_tokens = split is not None and split.most is not None
    sections = split(content) if split and by_tokens else by_headings(content, long=0, short=_LEAST)
    if len(sections) > _MOST:
        raise ExchangeError(
            f"it has {len(sections):,} sections, and a schema takes {_MOST:,}; split the file"
        )
    taken: dict[str, int] = {}
    names = [_name(one, name, taken, only=len(sections) == 1) for one in sections]
    texts = [one.text if by_tokens else _ended(one.text) for one in sections]
    modules = [module(*one) for one in zip(names, map(text, texts), strict=True)]
    notes: list[str] = []
    if found := _FIELD.search(content):
        notes.append(
            f"{found[0]} stands as text; for a parameter write <param name=… len=…/> in its place, or "
            "{{ … }} and --from jinja"
        )
    seams = [separator(one.text[len(own) :]) for one, own in zip(sections, texts, strict=True)]
    body = tuple(modules) if by_tokens else apart(modules, seams)
    schema = Schema(name, (role("user", body),), (), NOWHERE)
    return Imported(schema, Prompt(name, imports(names), NOWHERE), tuple(notes))


def _without_blank_ends(content: str) -> str:
    """A text without the blank lines at its ends; the indentation of its first line stays."""
    begins = _BLANK_LINES.match(content)
    return _ended(content[begins.end() if begins else 0 :])


def _ended(content: str) -> str:
    """A text without the line break and the blank lines that end it."""
    last = len(content.rstrip(SPACE))
    line_break = content.find("\n", last)
    return content if line_break < 0 else content[:line_break]


def _name(section: Section, fallback: str, taken: dict[str, int], *, only: bool) -> str:
    if section.title and not only:
        return unique(legible(section.title)[:_LONGEST_NAME], taken, 0)
    return unique(fallback, taken, 0) if only else first_words(section.text, "part", taken)
