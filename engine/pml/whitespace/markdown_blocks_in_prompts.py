"""Reports Markdown blocks that begin a line in the schema but not in a prompt."""

from __future__ import annotations

from collections.abc import Sequence

from engine.pml.diagnostics.diagnostic import Edit, Reporter, Span, quote
from engine.pml.tree.parts import NewText, Part, node_of, part_text
from engine.pml.whitespace.joins import off_their_line
from engine.pml.whitespace.markdown_blocks import remedy
from engine.pml.whitespace.prompt_places import PromptPlaces
from engine.pml.whitespace.schema_places import first_words, last_words


def check_blocks_of(parts: Sequence[Part], report: Reporter, places: PromptPlaces) -> None:
    """Reports blocks that lose their line (W616), unless they touch the text before (W613)."""
    for left, right in off_their_line(parts, places.schema):
        _report(parts[left], parts[right], report, places)


def _report(left: Part, right: Part, report: Reporter, places: PromptPlaces) -> None:
    node = node_of(right)
    assert node is not None
    block, front = quote(first_words(part_text(right))), quote(last_words(part_text(left)))
    fault = (
        f"{block}{places.line(right)} begins a line in the schema but follows {front}{places.line(left)} here"
    )
    before = node_of(left)
    if before is not None:
        gone, mended = remedy(before, node, places.schema, " in the schema")
        without = f", without {gone} between them" if gone else ""
        report.add("W616", f"{fault}{without}; {mended}", places.import_of(left, right))
    elif isinstance(left, NewText) and places.ends_import(left):
        report.add("W616", f"{fault}; {places.behind_import(left, right, 'a line break')}", left.span)
    else:
        assert isinstance(left, NewText)
        hint, end = "a line break between them", left.span.end
        report.add("W616", f"{fault}; put {hint}", left.span, hint, (Edit(Span(end, end), "\n"),))
