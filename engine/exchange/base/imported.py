"""The result of an import and its nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.exchange.base.errors import ExchangeError
from engine.pml import Import, Module, Prompt, Role, RoleName, Schema, Text
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.whitespace.separators import ended, with_seam
from engine.pml.xml.entities import forbidden_character
from engine.programs.compile.naming import legible, unique

BLANK_LINE: Final = "\n\n"  # the separator of documents

_FIRST_WORDS: Final = re.compile(r"\w+")


@dataclass(frozen=True)
class Imported:
    """A schema from another form.

    Attributes:
        schema: the schema. Its spans are empty, because it is not from a document.
        prompt: the prompt that gives the imported text; None if the source has none.
        notes: omissions and warnings, one sentence each.
        kind: the kind of the source.
        always: for a source without a prompt, the names of modules that are always part of its text.
    """

    schema: Schema
    prompt: Prompt | None
    notes: tuple[str, ...] = ()
    kind: str = ""
    always: tuple[str, ...] = ()


def text(value: str) -> tuple[Text, ...]:
    """Returns a text as children of an element; an empty text gives none."""
    return (Text(value, NOWHERE),) if value else ()


def apart(children: Sequence[Any], seams: Sequence[str] = ()) -> tuple[Any, ...]:
    """Returns modules as children of a container, with separators (by default blank lines) between them.

    The last module has its implied separator, as in a document.
    """
    *before, last = children or (None,)
    if last is None:
        return ()
    behind = seams or [BLANK_LINE] * len(children)
    return ended(
        [*(with_seam(child, seam, NOWHERE) for child, seam in zip(before, behind, strict=False)), last]
    )


def module(name: str, children: tuple[Any, ...]) -> Module:
    """Returns a top-level module."""
    return Module(name, name, children, True, None, NOWHERE, NOWHERE)


def role(name: RoleName, children: tuple[Any, ...]) -> Role:
    """Returns a turn."""
    return Role(name, children, NOWHERE)


def imports(names: Sequence[str]) -> tuple[Import, ...]:
    """Returns imports of top-level modules."""
    return tuple(Import(name, (), (), NOWHERE, NOWHERE) for name in names)


def first_words(content: str, fallback: str, taken: dict[str, int]) -> str:
    """Returns a module name from the first words of its text."""
    words = _FIRST_WORDS.findall(content[:200])[:3]
    return unique(legible("-".join(words).lower() or fallback), taken, 0)


def require_characters(content: str, where: str) -> str:
    """Returns the text if a document may contain it.

    Raises:
        ExchangeError: it contains a control character or half of a surrogate pair.
    """
    bad = forbidden_character(content)
    if bad is not None:
        raise ExchangeError(f"{where} contains {bad!r}, which documents cannot contain; remove it")
    return content
