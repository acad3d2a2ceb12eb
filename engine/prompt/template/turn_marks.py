"""What a chat template writes round each turn of a schema, for prompts that have the same turns of it.

A module may bring whole turns, and a turn of which a prompt imports nothing does not exist. So what stands
round a turn can depend on the prompt: the first turn may follow a system text that the template adds, or take
the system text in. Turns of modules that are left out are marked as if their module were imported too. With
most templates every prompt of a schema has the same marks then, and one layout does for all of them.
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
    """What stands round one turn.

    Attributes:
        open: the text before its content.
        close: the text after it.
        trims: whether the template strips white space at the start of the content, and at its end.
    """

    open: str
    close: str
    trims: tuple[bool, bool]


@dataclass(frozen=True)
class TurnMarks:
    """What stands round the turns of a schema.

    Attributes:
        begin: the spelling of the token that begins the text, "" for none; None where the prompt has no turn.
        marks: for each turn, in document order; None for one outside modules that does not exist.
        unfinished: the number of the turn whose end is left to the prompt; None where each has its own end.
    """

    begin: str | None
    marks: tuple[Mark | None, ...]
    unfinished: int | None


def optional_turns(schema: Schema) -> bool:
    """Whether modules of a schema bring turns."""
    return any(path for _, path in schema.index.turns)


def fixed_turns(schema: Schema) -> tuple[Role, ...]:
    """The turns that no module brings."""
    return tuple(turn for turn, path in schema.index.turns if not path)


def most_turns(schema: Schema) -> tuple[Role, ...]:
    """The turns of a prompt that imports all modules of turns, of a union the first."""
    first = {
        path: union.members[0].path
        for _, path in schema.index.turns
        if (union := schema.union_of(path)) is not None
    }
    return tuple(turn for turn, path in schema.index.turns if first.get(path, path) == path)


def turns_with(schema: Schema, module: str) -> tuple[Role, ...]:
    """The turns of a prompt that imports one module of turns.

    Args:
        schema: a tree without errors.
        module: the path of the module.
    """
    return tuple(turn for turn, path in schema.index.turns if path in ("", module))


def turn_marks(
    schema: Schema,
    chat: ChatFormat,
    day: datetime.date,
    present: Sequence[Role] | None = None,
    tools: Tools = NO_TOOLS,
) -> TurnMarks:
    """Returns what stands round the turns of a schema.

    Args:
        schema: a tree without errors.
        chat: the chat template.
        day: the date that the template may write.
        present: the turns that a prompt has, in the order in which they are read; None for those of no
            module.
        tools: what the assistant may call.

    Raises:
        ChatError: the template refuses the turns that are present.
        ToolsError: it has no place for tools.
    """
    number = {id(turn): place for place, (turn, _) in enumerate(schema.index.turns)}
    order = [number[id(turn)] for turn in (fixed_turns(schema) if present is None else present)]
    marks: list[Mark | None] = [None] * len(number)
    turns = _opening(schema, chat, day, order, tools) if order else None
    for place, one in enumerate(order):
        assert turns is not None
        marks[one] = _mark(turns, place)
    for absent in _absent_modules(schema, set(order)):
        for one, mark in _imagined(schema, chat, day, order, absent, tools):
            marks[one] = mark
    unfinished = order[-1] if order and not optional_turns(schema) else None
    return TurnMarks(turns.begin if turns is not None else None, tuple(marks), unfinished)


def marks_of_prompt(laid_out: TurnMarks, order: Sequence[int], rendering: Rendering) -> TurnMarks:
    """Returns the marks of one prompt, where the chat template writes others than those of the layout.

    Args:
        laid_out: the marks of the schema's turns as they are mostly written.
        order: the numbers of the prompt's turns, -1 of turns that it adds itself.
        rendering: what the template writes for the prompt.
    """
    marks = list(laid_out.marks)
    last = max((place for place, one in enumerate(order) if one >= 0), default=-1)
    for place, one in enumerate(order):
        before = marks[one] if one >= 0 else None
        if before is not None:  # how the schema's last turn ends depends on what the prompt adds
            close = before.close if place == last else rendering.closes[place]
            marks[one] = Mark(rendering.opens[place], close, before.trims)
    return TurnMarks(rendering.begin, tuple(marks), laid_out.unfinished)


def _opening(
    schema: Schema, chat: ChatFormat, day: datetime.date, order: Sequence[int], tools: Tools
) -> Rendering:
    turns = [schema.index.turns[one][0] for one in order]
    return chat.opening([one.role for one in turns], [said_by(one) for one in turns], day, tools)


def said_by(node: object) -> str:
    """What a turn says if all its modules are imported, of a union the first, with their defaults."""
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
    """The turns of each module of which none is present."""
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
    """The marks of a module's turns if it were imported too, in its place and instead of its rivals."""
    turns = schema.index.turns
    union = schema.union_of(turns[absent[0]][1])
    rivals = {member.path for member in union.members} if union is not None else set()
    others = [one for one in order if turns[one][1] not in rivals]
    at = next((place for place, one in enumerate(others) if one > absent[0]), len(others))
    try:
        found = _opening(schema, chat, day, [*others[:at], *absent, *others[at:]], tools)
    except ChatError:  # no prompt can have them beside these
        yield from ((one, Mark("", "", (False, False))) for one in absent)
        return
    for place, one in enumerate(absent, at):
        yield one, _mark(found, place)
