"""Converts a text or a Markdown file to a schema with a module for each section."""

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

_LEAST: Final = 80  # a section with fewer characters joins the next
_MOST: Final = 8_000
_LONGEST_NAME: Final = 60
_BLANK_LINES: Final = re.compile(r"(?:[ \t\r]*\n)*")
_JINJA: Final = re.compile(r"\{%|\{\{")
_FIELD: Final = re.compile(r"(?<!\{)\{[A-Za-z_]\w*\}(?!\})")


def is_template(content: str) -> bool:
    """Returns whether a text has Jinja markup."""
    return _JINJA.search(content) is not None


def from_text(content: str, name: str, split: Split | None = None, *, least: int = _LEAST) -> Imported:
    """Makes modules of the sections of a text, in a user turn; the prompt imports all of them.

    By default, the text is cut at headings; a section with fewer than `least` characters joins the next.
    Sections stay separated by a line break or one blank line, as in the text. Sections cut by tokens
    keep all white space. Blank lines at the ends of the text are removed.

    Raises:
        ExchangeError: it has invalid characters, or too many sections.
    """
    require_characters(content, "the text")
    content = _without_blank_ends(content.replace("\r\n", "\n"))
    by_tokens = split is not None and split.most is not None
    sections = split(content) if split and by_tokens else by_headings(content, long=0, short=least)
    if len(sections) > _MOST:
        raise ExchangeError(
            f"it has {len(sections):,} sections, and a schema takes {_MOST:,}; split the file"
        )
    taken: dict[str, int] = {}
    names = [_name(item, name, taken, only=len(sections) == 1) for item in sections]
    texts = [item.text if by_tokens else _ended(item.text) for item in sections]
    modules = [module(*item) for item in zip(names, map(text, texts), strict=True)]
    notes: list[str] = []
    if field := _FIELD.search(content):
        notes.append(
            f"{field[0]} is plain text; for a parameter, write <param name=… len=…/> instead, or "
            "{{ … }} with --from jinja"
        )
    seams = [separator(item.text[len(own) :]) for item, own in zip(sections, texts, strict=True)]
    body = tuple(modules) if by_tokens else apart(modules, seams)
    schema = Schema(name, (role("user", body),), (), NOWHERE)
    return Imported(schema, Prompt(name, imports(names), NOWHERE), tuple(notes))


def _without_blank_ends(content: str) -> str:
    """The text without blank lines at its ends; the first line stays indented."""
    begins = _BLANK_LINES.match(content)
    return _ended(content[begins.end() if begins else 0 :])


def _ended(content: str) -> str:
    """The text without line breaks and blank lines at its end."""
    last = len(content.rstrip(SPACE))
    line_break = content.find("\n", last)
    return content if line_break < 0 else content[:line_break]


def _name(section: Section, fallback: str, taken: dict[str, int], *, only: bool) -> str:
    if section.title and not only:
        return unique(legible(section.title)[:_LONGEST_NAME], taken, 0)
    return unique(fallback, taken, 0) if only else first_words(section.text, "part", taken)
