"""Converts conversations to a schema and a prompt that gives the same text.

The last user turn is new text; everything before it is the schema. If a turn has several blocks, each becomes
a module. Documents and results of tools always do. Blank lines separate them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from engine.exchange.answer_formats import taken_format
from engine.exchange.base.bodies import asks, rows, turns
from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.imported import BLANK_LINE, Imported, first_words, imports, module, role, text
from engine.exchange.base.json_files import parsed_json
from engine.exchange.base.notes import Notes
from engine.exchange.base.turns import Block, Turn
from engine.exchange.decisions import read_questions
from engine.pml import Module, Prompt, Schema, Text
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.whitespace.rules import SPACE, normalise
from engine.pml.whitespace.separators import ended, own_seam, with_seam
from engine.programs.compile.naming import legible, unique

_SHORT: Final = 60


def picked(found: list[Any], row: int, noun: str, notes: Notes) -> Any:
    """Returns one of several items, because a schema is made of one.

    Raises:
        ExchangeError: there is no such row.
    """
    if not 1 <= row <= len(found):
        available = f"it has {len(found):,}; give --row 1 to {len(found)}"
        raise ExchangeError(f"there is no {noun} {row}: {available}")
    if len(found) > 1:
        notes.say(f"it has {len(found):,} {noun}s, and number {row} is imported; --row gives another")
    return found[row - 1]


def from_messages(source: str, name: str, row: int = 1) -> Imported:
    """Reads a conversation from JSON.

    The source is a list of messages, the body of a request to a chat service, a row of a data set, or lines
    or a list of these; `row` counts from 1.

    Raises:
        ExchangeError: it is not JSON, has no messages, or a message is invalid.
    """
    return from_conversation(parsed_json(source), name, row)


def from_conversation(value: Any, name: str, row: int = 1) -> Imported:
    """Reads a conversation from a parsed document.

    Raises:
        ExchangeError: there are no messages, or a message is invalid.
    """
    notes = Notes()
    several = rows(value)
    body = value if several is None else picked(several, row, "conversation", notes)
    answer, body = taken_format(body, notes)
    turns_read = _joined(turns(body, notes), notes)
    if not turns_read:
        nothing = "the messages have no text for a schema"
        raise ExchangeError("; ".join([nothing, *notes.told()[:3]]))
    found = _build(turns_read, name, notes)
    if asks(body) and (lost := notes.told("block", "document")):
        raise ExchangeError(f"questions are about text and JSON; {'; '.join(lost)}")
    if found.prompt is None:
        return found
    questions = read_questions(body) if asks(body) else ()
    return replace(found, prompt=replace(found.prompt, questions=questions, format=answer))


def _joined(found: Iterable[Turn], notes: Notes) -> list[Turn]:
    """The turns with content; a tool's result joins the user turn before it."""
    result: list[Turn] = []
    for turn in found:
        last = result[-1] if result else None
        if not turn.blocks:
            notes.left_out(turn.where, turn.role)
        elif last is not None and last.role == turn.role and turn.result:
            result[-1] = replace(last, blocks=(*last.blocks, *turn.blocks))
        else:
            result.append(turn)
    return result


def _build(found: list[Turn], name: str, notes: Notes) -> Imported:
    *earlier, last = found
    taken: dict[str, int] = {}
    names: list[str] = []
    children: list[Any] = []
    tail: tuple[Any, ...] = ()
    if last.role != "user":
        earlier = found
        notes.say("the last turn is not a user turn, so the prompt adds no text")
    elif len(last.blocks) == 1 and not last.blocks[0].alone:
        tail = (role("user", text(last.blocks[0].text)),)
    children.extend(role(turn.role, _contents(turn.blocks, taken, names)) for turn in earlier)
    if last.role == "user" and not tail:
        *before, words = last.blocks
        if words.alone:
            before = [*before, words]
            notes.say("the last user turn ends with a module, so the prompt adds no text")
        made = _modules(tuple(before), taken, names)
        if not words.alone:
            tail = _new_text(words.text, made[-1], _seam(before[-1].text, words.text))
        children.append(role("user", made))
    schema = Schema(name, tuple(children), (), NOWHERE)
    return Imported(schema, Prompt(name, (*imports(names), *tail), NOWHERE), notes.told())


def _contents(found: tuple[Block, ...], taken: dict[str, int], names: list[str]) -> tuple[Any, ...]:
    if len(found) == 1 and not found[0].alone:
        return text(found[0].text)
    return _modules(found, taken, names)


def _seam(before: str, after: str) -> str:
    """The separator between two blocks: a blank line unless white space separates them already."""
    return "" if before[-1:] in SPACE or after[:1] in SPACE else BLANK_LINE


def _new_text(words: str, before: Module, seam: str) -> tuple[Text, ...]:
    """The last words of a turn, separated from the module before them, which may have its own separator."""
    if seam and normalise(words) == words:
        return (Text(seam, NOWHERE, seam=True), *text(words))
    return text(words if own_seam(before) else seam + words)


def _modules(found: tuple[Block, ...], taken: dict[str, int], names: list[str]) -> tuple[Any, ...]:
    """A module for each block, with the separator before the next."""
    made: list[Module] = []
    for block in found:
        if block.title:
            names.append(unique(legible(block.title[:_SHORT]), taken, 0))
        else:
            names.append(first_words(block.text, "part", taken))
        made.append(module(names[-1], text(block.text)))
    for place, (block, after) in enumerate(pairwise(found)):
        made[place] = with_seam(made[place], _seam(block.text, after.text), NOWHERE)
    return ended(made)
