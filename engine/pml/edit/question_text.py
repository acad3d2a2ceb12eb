"""Reads and writes the question of a prompt, which is its last text."""

from __future__ import annotations

from inspect import cleandoc

from engine.pml.edit.prompt_source import Page, PromptEditError, walk
from engine.pml.tree.tree import Schema
from engine.pml.whitespace.rules import SPACE
from engine.pml.xml.elements import Chars, Element
from engine.pml.xml.entities import forbidden_character
from engine.pml.xml.escaping import escaped_text
from engine.pml.xml.names import ROLES


def question_of(prompt_source: str, schema: Schema) -> str:
    """Returns the question of a prompt without indentation; "" if it has no text.

    Raises:
        PromptEditError: the source has no `<prompt>` element.
    """
    run = _last_run(Page(prompt_source, schema))
    return cleandoc("".join(piece.text for piece in run if piece.kind != "comment")).strip(SPACE)


def set_question(prompt_source: str, schema: Schema, text: str) -> str:
    """Returns the source of a prompt with another last text, which is its question.

    The last text lies between two tags, in a turn or directly in the prompt; white space at its ends stays.
    In a prompt without text, the new text goes to the end of its last turn, or to its own end.

    Raises:
        PromptEditError: the text has a character that XML forbids, or the source is too broken to edit.
    """
    if forbidden_character(text) is not None:
        raise PromptEditError("The text has a character that XML forbids. Remove it.")
    page = Page(prompt_source, schema)
    if run := _last_run(page):
        raw = prompt_source[run[0].span.start : run[-1].span.end]
        start = run[0].span.start + len(raw) - len(raw.lstrip(SPACE))
        end = run[-1].span.end - (len(raw) - len(raw.rstrip(SPACE)))
        return page.replace(start, end, escaped_text(text))
    host = page.sound(_hosts(page)[-1])
    if host.empty_tag:
        start = host.open_span.end - len("/>")
        return page.replace(start, host.open_span.end, f">{escaped_text(text)}</{host.tag}>")
    end = host.inner().end
    return page.replace(end, end, escaped_text(text))


def _hosts(page: Page) -> list[Element]:
    """Returns the elements whose text is new: the prompt and its turns."""
    return [element for element in walk(page.root) if element is page.root or element.tag in ROLES]


def _last_run(page: Page) -> list[Chars]:
    runs = [run for host in _hosts(page) for run in _runs(host)]
    return max(runs, key=lambda run: run[0].span.start, default=[])


def _runs(host: Element) -> list[list[Chars]]:
    """Returns the ranges of text between elements, except those of white space and comments only."""
    runs: list[list[Chars]] = [[]]
    for child in host.children:
        if isinstance(child, Element):
            runs.append([])
        else:
            runs[-1].append(child)
    return [run for run in runs if any(piece.kind != "comment" and piece.text.strip(SPACE) for piece in run)]
