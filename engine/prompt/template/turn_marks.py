"""The text that a chat template writes around each turn of a schema, for prompts with the same turns.

A module may contain whole turns, and an optional turn without imports is omitted. So the text around a turn
can depend on the prompt: the first turn may follow system text that the template adds, or include the system
text. Turns of omitted modules get the marks that they would have with an import. With most templates, all
prompts of a schema then have the same marks and share one layout.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.pml import Param, Role, Schema, Text, Union
from engine.prompt.conversation.tools import NO_TOOLS, Tools
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.template.rendered import Rendering
from engine.prompt.template.turns import ChatError


@dataclass(frozen=True)
class Mark:
    """The text around one turn's content, and whether white space at its start and end is stripped."""

    open: str
    close: str
    trims: tuple[bool, bool]


@dataclass(frozen=True)
class TurnMarks:
    """The text around the turns of a schema.

    Attributes:
        begin: the spelling of the token that begins the text, "" for none; None if the prompt has no turn.
        marks: for each turn, in document order; None for an omitted turn outside modules.
        unfinished: the index of the turn whose end depends on the prompt; None if there is none.
    """

    begin: str | None
    marks: tuple[Mark | None, ...]
    unfinished: int | None


def optional_turns(schema: Schema) -> bool:
    """Returns whether modules of a schema contain turns."""
    return any(path for _, path in schema.index.turns)


def fixed_turns(schema: Schema) -> tuple[Role, ...]:
    """Returns the turns outside modules."""
    return tuple(turn for turn, path in schema.index.turns if not path)


def most_turns(schema: Schema) -> tuple[Role, ...]:
    """Returns the turns of a prompt that imports all modules of turns, and the first member of each union."""
    first = {
        path: union.members[0].path
        for _, path in schema.index.turns
        if (union := schema.union_of(path)) is not None
    }
    return tuple(turn for turn, path in schema.index.turns if first.get(path, path) == path)


def turns_with(schema: Schema, module: str) -> tuple[Role, ...]:
    """Returns the turns of a prompt that imports one module of turns."""
    return tuple(turn for turn, path in schema.index.turns if path in ("", module))


def turn_marks(
    schema: Schema,
    chat: ChatFormat,
    day: datetime.date,
    present: Sequence[Role] | None = None,
    tools: Tools = NO_TOOLS,
) -> TurnMarks:
    """Returns the text around the turns of a schema.

    Args:
        schema: a tree without errors.
        chat: the chat template.
        day: the date that the template may write.
        present: the turns of a prompt, in reading order; None for the turns outside modules.
        tools: the tools for the assistant.

    Raises:
        ChatError: the template refuses the turns.
        ToolsError: the template does not support tools.
    """
    number = {id(turn): place for place, (turn, _) in enumerate(schema.index.turns)}
    order = [number[id(turn)] for turn in (fixed_turns(schema) if present is None else present)]
    marks: list[Mark | None] = [None] * len(number)
    turns = _opening(schema, chat, day, order, tools) if order else None
    for place, index in enumerate(order):
        assert turns is not None
        marks[index] = _mark(turns, place)
    for absent in _absent_modules(schema, set(order)):
        for index, mark in _imagined(schema, chat, day, order, absent, tools):
            marks[index] = mark
    unfinished = order[-1] if order and not optional_turns(schema) else None
    return TurnMarks(turns.begin if turns is not None else None, tuple(marks), unfinished)


def marks_of_prompt(laid_out: TurnMarks, order: Sequence[int], rendering: Rendering) -> TurnMarks:
    """Returns the marks of one prompt, if the chat template writes others than those of the layout.

    `order` has the indexes of the prompt's turns, -1 for turns that it adds.
    """
    marks = list(laid_out.marks)
    last = max((place for place, number in enumerate(order) if number >= 0), default=-1)
    for place, number in enumerate(order):
        before = marks[number] if number >= 0 else None
        if before is not None:  # the end of the schema's last turn depends on the prompt's additions
            close = before.close if place == last else rendering.closes[place]
            marks[number] = Mark(rendering.opens[place], close, before.trims)
    return TurnMarks(rendering.begin, tuple(marks), laid_out.unfinished)


def _opening(
    schema: Schema, chat: ChatFormat, day: datetime.date, order: Sequence[int], tools: Tools
) -> Rendering:
    turns = [schema.index.turns[turn][0] for turn in order]
    return chat.opening([turn.role for turn in turns], [said_by(turn) for turn in turns], day, tools)


def said_by(node: object) -> str:
    """Returns the text of a turn with all its modules and defaults, and the first member of each union."""
    if isinstance(node, Text):
        return node.text
    if isinstance(node, Param):
        return node.default or ""
    if isinstance(node, Union):
        return said_by(node.members[0]) if node.members else ""
    return "".join(map(said_by, getattr(node, "children", ())))


def _mark(turns: Rendering, place: int) -> Mark:
    return Mark(turns.opens[place], turns.closes[place], turns.trims[place])


def _absent_modules(schema: Schema, present: set[int]) -> Iterator[list[int]]:
    """The turns of each module without present turns."""
    modules: dict[str, list[int]] = {}
    for place, (_, path) in enumerate(schema.index.turns):
        if path:
            modules.setdefault(path, []).append(place)
    yield from (places for places in modules.values() if present.isdisjoint(places))


def _imagined(
    schema: Schema,
    chat: ChatFormat,
    day: datetime.date,
    order: Sequence[int],
    absent: Sequence[int],
    tools: Tools,
) -> Iterator[tuple[int, Mark]]:
    """The marks of a module's turns as if it were imported, in its place and instead of its alternatives."""
    turns = schema.index.turns
    union = schema.union_of(turns[absent[0]][1])
    rivals = {member.path for member in union.members} if union is not None else set()
    others = [number for number in order if turns[number][1] not in rivals]
    at = next((place for place, number in enumerate(others) if number > absent[0]), len(others))
    try:
        imagined = _opening(schema, chat, day, [*others[:at], *absent, *others[at:]], tools)
    except ChatError:  # no prompt can have them together
        yield from ((number, Mark("", "", (False, False))) for number in absent)
        return
    for place, number in enumerate(absent, at):
        yield number, _mark(imagined, place)
