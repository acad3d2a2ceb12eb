"""Blocks of Markdown that begin a line in the schema, and do not in what a prompt reads."""

from __future__ import annotations

from collections.abc import Sequence

from engine.pml.blocks import remedy
from engine.pml.diagnostics import Edit, Reporter, Span, quote
from engine.pml.glued import begins_block, begins_number
from engine.pml.parts import ArgumentText, NewText, Part, RoleClose, RoleOpen, is_seam, part_text
from engine.pml.prompt_places import PromptPlaces, node_of
from engine.pml.schema_places import breaks, first_words, last_words
from engine.pml.touching import meet


def check_blocks_of(parts: Sequence[Part], report: Reporter, places: PromptPlaces) -> None:
    """Reports blocks that lose the line they begin in the schema (W616), unless they touch (W613).

    Args:
        parts: as they are read.
        report: takes the faults.
        places: where they come from.
    """
    line: Part | None = None  # what stands on the same line
    last: Part | None = None  # what stands right before
    for part in parts:
        text = part_text(part)
        if isinstance(part, RoleOpen | RoleClose):
            line = last = None
        elif text:
            if line is not None and begins_block(text) and not _touch(last, part):
                _report(line, part, report, places)
            broken = breaks(text)
            line = line if broken is None else None if broken else part
            last = None if is_seam(part) else part


def _touch(left: Part | None, right: Part) -> bool:
    argument = isinstance(left, ArgumentText) or isinstance(right, ArgumentText)
    return left is not None and meet(part_text(left), part_text(right), argument=argument)


def _report(left: Part, right: Part, report: Reporter, places: PromptPlaces) -> None:
    """Reports a block behind what stands in front of it, if it begins a line in the schema."""
    node = node_of(right)
    if node is None or not places.schema.begins_line(node)[0]:
        return
    if isinstance(left, NewText) and begins_number(part_text(right)):
        return
    block, front = quote(first_words(part_text(right))), quote(last_words(part_text(left)))
    fault = (
        f"{block}{places.line(right)} begins a line in the schema and is read behind "
        f"{front}{places.line(left)} here"
    )
    if not isinstance(left, NewText):
        gone, mended = remedy(node_of(left), node, places.schema, " in the schema")
        without = f", without {gone} between them" if gone else ""
        report.add("W616", f"{fault}{without}; {mended}", places.import_of(left, right))
    elif places.ends_import(left):
        report.add("W616", f"{fault}; {places.behind_import(left, right, 'a line break')}", left.span)
    else:
        hint, end = "a line break between them", left.span.end
        report.add("W616", f"{fault}; put {hint}", left.span, hint, (Edit(Span(end, end), "\n"),))
