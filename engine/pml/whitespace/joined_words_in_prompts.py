"""Reports words that touch in a prompt: its own text, its arguments, and adjacent imports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.pml.diagnostics.diagnostic import Edit, Reporter, Span
from engine.pml.tree.parts import NewText, Part, node_of, part_text
from engine.pml.tree.resolution import Resolution
from engine.pml.tree.tree import Prompt, Schema
from engine.pml.whitespace.joined_words import beside, words_of
from engine.pml.whitespace.joins import touching
from engine.pml.whitespace.markdown_blocks_in_prompts import check_blocks_of
from engine.pml.whitespace.prompt_places import PromptPlaces, given, path_of

_SPACE: Final = "a space or a line break"


def check_prompt(
    parts: Sequence[Part], report: Reporter, prompt: Prompt, schema: Schema, found: Resolution
) -> None:
    """Reports touching words (W613) and Markdown blocks that lose their line (W616) in a prompt.

    Texts that are adjacent in the schema are reported there.
    """
    places = PromptPlaces(prompt, schema, found)
    for left, right in touching(parts):
        _report(parts[left], parts[right], places, report)
    check_blocks_of(parts, report, places)


def _report(left: Part, right: Part, places: PromptPlaces, report: Reporter) -> None:
    """Reports two touching parts at the one that the prompt can change."""
    if isinstance(left, NewText) and isinstance(right, NewText) and places.one_text(left, right):
        return
    texts = part_text(left), part_text(right)
    words = f"words run together: {words_of(*texts)}"
    if isinstance(right, NewText):
        _add(words, right.span, beside(right.span.start, *texts), report)
    elif isinstance(left, NewText) and not places.ends_import(left):
        _add(words, left.span, beside(left.span.end, *texts), report)
    elif isinstance(left, NewText):
        report.add("W613", f"{words}; {places.behind_import(left, right, _SPACE)}", left.span)
    elif place := given(right) or given(left):
        report.add("W613", f"{words}; write a space in the schema or the argument", place)
    elif (node := node_of(left)) is not None and not places.schema.neighbours(node, node_of(right)):
        meeting = places.meeting(left, right)
        remedy = f"write {_SPACE} {places.schema.behind(node, path_of(right))} in the schema"
        report.add("W613", f"{words}, because {meeting}; {remedy}", places.import_of(left, right))


def _add(words: str, span: Span, mended: tuple[tuple[Edit, ...], str], report: Reporter) -> None:
    fix, hint = mended
    report.add("W613", f"{words}; put {hint}", span, hint, fix)
