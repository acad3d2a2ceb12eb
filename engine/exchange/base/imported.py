"""What an import gives, and the nodes it is made of."""

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

BLANK_LINE: Final = "\n\n"
"""The seam that sets documents apart."""

_FIRST_WORDS: Final = re.compile(r"\w+")


@dataclass(frozen=True)
class Imported:
    """A schema from another form.

    Attributes:
        schema: the schema. The spans of its nodes point nowhere, as it was never a document.
        prompt: the prompt that spells what was imported; None where the source holds none.
        notes: what was left out or needs attention, a sentence each.
        kind: what the source was read as.
        always: names of the modules that the source has in every prompt, where it holds no prompt itself.
    """

    schema: Schema
    prompt: Prompt | None
    notes: tuple[str, ...] = ()
    kind: str = ""
    always: tuple[str, ...] = ()


def text(value: str) -> tuple[Text, ...]:
    """A text as the children of an element: none where it is empty."""
    return (Text(value, NOWHERE),) if value else ()


def apart(children: Sequence[Any], seams: Sequence[str] = ()) -> tuple[Any, ...]:
    """Modules as the children of a container, set apart from each other.

    The last one has the seam that is implied for it, as in a document.

    Args:
        children: the modules.
        seams: what stands behind each; by default a blank line.
    """
    *before, last = children or (None,)
    if last is None:
        return ()
    behind = seams or [BLANK_LINE] * len(children)
    return ended(
        [*(with_seam(child, seam, NOWHERE) for child, seam in zip(before, behind, strict=False)), last]
    )


def module(name: str, children: tuple[Any, ...]) -> Module:
    """A module at the top of a schema."""
    return Module(name, name, children, True, None, NOWHERE, NOWHERE)


def role(name: RoleName, children: tuple[Any, ...]) -> Role:
    """A turn."""
    return Role(name, children, NOWHERE)


def imports(names: Sequence[str]) -> tuple[Import, ...]:
    """Imports of modules at the top of a schema."""
    return tuple(Import(name, (), (), NOWHERE, NOWHERE) for name in names)


def first_words(content: str, fallback: str, taken: dict[str, int]) -> str:
    """A name for a module from the first words of its text."""
    words = _FIRST_WORDS.findall(content[:200])[:3]
    return unique(legible("-".join(words).lower() or fallback), taken, 0)


def require_characters(content: str, where: str) -> str:
    """The text, if a document may hold it.

    Raises:
        ExchangeError: it holds a control character or half of a surrogate pair.
    """
    bad = forbidden_character(content)
    if bad is not None:
        raise ExchangeError(f"{where} holds {bad!r}, which no document may hold; remove it")
    return content
