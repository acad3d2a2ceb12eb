"""Finds bad joins between parts of a bound prompt: touching words, and Markdown blocks after other text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.pml.diagnostics.diagnostic import quote
from engine.pml.tree.parts import (
    ArgumentText,
    NewText,
    Part,
    RoleClose,
    RoleOpen,
    is_seam,
    node_of,
    part_text,
)
from engine.pml.tree.tree import Schema
from engine.pml.whitespace.joined_text import begins_block, begins_number
from engine.pml.whitespace.joined_words import beside, meet, words_of
from engine.pml.whitespace.schema_places import SchemaPlaces, breaks, first_words, last_words


def touching(parts: Sequence[Part]) -> Iterator[tuple[int, int]]:
    """Yields the indexes of touching parts (W613)."""
    last: int | None = None
    for place, part in enumerate(parts):
        if isinstance(part, RoleOpen | RoleClose) or is_seam(part):
            last = None
        elif part_text(part):
            if last is not None and _touch(parts[last], part):
                yield last, place
            last = place


def off_their_line(parts: Sequence[Part], schema: SchemaPlaces) -> Iterator[tuple[int, int]]:
    """Yields blocks that begin a line in the schema but not here (W616).

    Touching parts are left out; `touching` yields them.

    Yields:
        The indexes of the part before the block on its line, and of the block.
    """
    line: int | None = None  # the part before on the same line
    last: Part | None = None  # the part directly before
    for place, part in enumerate(parts):
        text = part_text(part)
        if isinstance(part, RoleOpen | RoleClose):
            line = last = None
        elif text:
            apart = line is not None and begins_block(text) and not (last and _touch(last, part))
            if line is not None and apart and _moved(parts[line], part, schema):
                yield line, place
            broken = breaks(text)
            line = line if broken is None else None if broken else place
            last = None if is_seam(part) else part


def meetings(parts: Sequence[Part], schema: Schema) -> dict[int, str]:
    """Returns a sentence for each bad join, by the index of the later part."""
    problems = {}
    for left, right in off_their_line(parts, SchemaPlaces(schema)):
        front, block = last_words(part_text(parts[left])), first_words(part_text(parts[right]))
        problems[right] = (
            f"{quote(block)} begins a line in the schema but follows {quote(front)} here; put a line "
            "break between them"
        )
    for left, right in touching(parts):
        texts = part_text(parts[left]), part_text(parts[right])
        problems[right] = f"words run together: {words_of(*texts)}; put {beside(0, *texts)[1]}"
    return problems


def _touch(left: Part, right: Part) -> bool:
    argument = isinstance(left, ArgumentText) or isinstance(right, ArgumentText)
    return meet(part_text(left), part_text(right), argument=argument)


def _moved(front: Part, block: Part, schema: SchemaPlaces) -> bool:
    """Whether a block begins a line in the schema; a number after new text may not be a list."""
    node = node_of(block)
    number = isinstance(front, NewText) and begins_number(part_text(block))
    return node is not None and schema.begins_line(node)[0] and not number
