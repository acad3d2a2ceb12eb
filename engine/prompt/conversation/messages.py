"""Builds a bound prompt from a conversation of messages that consist of blocks. Needs no tokenizer.

Each message is a turn. A blank line separates two blocks of a message unless white space already does. The
blank line belongs to neither block and is read before the second. A block without text has no tokens.

A message of the assistant may end with tool calls, and the role "tool" gives their results. The chat template
decides how both are written. Results are read in the order of their calls, because most templates write no
ids.

A block is tokenized on its own if another block follows in its message; all other text is tokenized together.

Named blocks are modules of a schema made for the conversation. The modules stand next to each other without
text outside, so a segment has the same name in any order and in any conversation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, get_args

from engine.base.errors import SettingsError
from engine.pml import Bound, NewText, Part, Prompt, Role, RoleClose, RoleOpen, Schema, SchemaText, Text
from engine.pml.diagnostics.diagnostic import NOWHERE
from engine.pml.tree.tree import TurnName
from engine.prompt.conversation.named_blocks import Block, Modules, modules_of
from engine.prompt.conversation.tools import ToolCall, ToolsError, call_fields, result_fields

NAME = "conversation"  # schema name of conversations in the list of the store
_ROLES = get_args(TurnName)
_NAMING = ("system", "user")
_BLANK_LINE = "\n\n"


@dataclass(frozen=True)
class Message:
    """One turn of a conversation.

    Attributes:
        role: "system", "user", "assistant", or "tool" for the result of a call.
        blocks: the content, in order.
        calls: the tool calls of the assistant, after its blocks.
        call_id: the id of the call that a result answers.
        name: the function that a result comes from.
    """

    role: TurnName
    blocks: tuple[Block, ...]
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    name: str = ""

    @property
    def fields(self) -> str:
        """Returns the message without role and blocks as JSON; "" if nothing remains.

        Raises:
            ToolsError: the calls are invalid, or the role cannot have calls.
        """
        if self.calls and self.role != "assistant":
            raise ToolsError(
                f"A message with the role {self.role} has tool calls; only assistant messages can have them."
            )
        if (self.call_id or self.name) and self.role != "tool":
            raise ToolsError(f"A message with the role {self.role} names a call; only tool results can.")
        return result_fields(self.call_id, self.name) if self.role == "tool" else call_fields(self.calls)


@dataclass(frozen=True)
class Blocks:
    """The places of a conversation's blocks in its bound prompt.

    Attributes:
        ends: for each block, in reading order, the place of its part; None without text. The tool calls of a
            message are one more block, which ends with the turn.
        settled: the places of parts whose last token never depends on later text.
    """

    ends: tuple[int | None, ...]
    settled: frozenset[int]


@dataclass(frozen=True)
class Spelled:
    """A prompt whose parts are bound already, such as a conversation; `bound` has them in reading order.

    `blocks` is None for a prompt over a schema.
    """

    prompt: Prompt
    bound: Bound
    blocks: Blocks | None


def spell(messages: Sequence[Message], *, movable: bool = True) -> Spelled:
    """Builds a bound prompt from a conversation.

    Args:
        messages: the turns, in order.
        movable: whether segments can be relocated; otherwise named blocks are plain text.

    Raises:
        SettingsError: there is no message, a message is invalid, or names or results do not match.
        ToolsError: tool calls are invalid or misplaced.
    """
    _require(messages)
    modules = modules_of([block for message in messages for block in message.blocks])
    speller = _Speller(modules if movable else Modules())
    for message in _with_results(messages):
        speller.add(message)
    prompt = Prompt(NAME, tuple(speller.turns), NOWHERE)
    modules = speller.modules
    schema = Schema(NAME, modules.tree, (), NOWHERE)
    blocks = Blocks(tuple(speller.ends), frozenset(speller.settled))
    imports = tuple(path for path, _ in modules.places.values())
    return Spelled(prompt, Bound(schema, tuple(speller.parts), imports, ()), blocks)


class _Speller:
    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.turns: list[Role] = []
        self.parts: list[Part] = []
        self.ends: list[int | None] = []
        self.settled: list[int] = []

    def add(self, message: Message) -> None:
        texts = tuple(Text(block.text, NOWHERE) for block in message.blocks if block.text)
        turn = Role(message.role, texts, NOWHERE, message.fields)
        self.turns.append(turn)
        self._put(RoleOpen(turn.role, turn, new=True))
        before = ""
        rest = len(texts)
        for block in message.blocks:
            if not block.text:
                self.ends.append(None)
                continue
            if before and not (before[-1].isspace() or block.text[0].isspace()):
                self._put(NewText(_BLANK_LINE, NOWHERE, seam=True))
            rest -= 1
            self.ends.append(len(self.parts))
            self._put(self._part(block), settled=rest > 0)
            before = block.text
        if message.calls:
            self.ends.append(len(self.parts))
        self._put(RoleClose(turn.role, turn, new=True))

    def _part(self, block: Block) -> Part:
        if block.module is not None and block.module.name in self.modules.places:
            path, text = self.modules.places[block.module.name]
            return SchemaText(text, path)
        return NewText(block.text, NOWHERE)

    def _put(self, part: Part, *, settled: bool = False) -> None:
        if settled:
            self.settled.append(len(self.parts))
        self.parts.append(part)


def _with_results(messages: Sequence[Message]) -> Iterator[Message]:
    """Yields the turns in reading order: results in the order of their calls, with function names.

    Raises:
        SettingsError: several calls do not have exactly one result each.
    """
    names: dict[str, str] = {}
    calls: list[ToolCall] = []
    for are_results, run in groupby(messages, key=lambda turn: turn.role == "tool"):
        if are_results:
            yield from _paired(list(run), calls, names)
            calls = []
            continue
        for message in run:
            calls = calls if message.role == "assistant" else []
            calls += message.calls
            names |= {call.id: call.name for call in message.calls if call.id}
            yield message


def _paired(results: list[Message], calls: list[ToolCall], names: Mapping[str, str]) -> Iterator[Message]:
    """Yields results in the order of their calls, or in their own order if an id is missing."""
    wanted, sent = Counter(call.id for call in calls), Counter(result.call_id for result in results)
    if len(calls) > 1 and "" not in wanted | sent:
        for unpaired, why in ((sent - wanted, "is not a call of the turn"), (wanted - sent, "has no result")):
            if unpaired:
                raise SettingsError(
                    f"The assistant calls {len(calls)} tools at once, and {next(iter(unpaired))!r} {why}. "
                    "Send one result for each call after them, with its id."
                )
        order = sorted(range(len(calls)), key=lambda number: calls[number].id)
        answers = dict(zip(order, sorted(results, key=lambda reply: reply.call_id), strict=True))
        results = [answers[number] for number in range(len(calls))]
        names = {}
    placed = [call.name for call in calls] if len(calls) == len(results) else [""] * len(results)
    for result, name in zip(results, placed, strict=True):
        yield result if result.name else replace(result, name=names.get(result.call_id, name))


def _require(messages: object) -> None:
    """Raises an error unless this is a conversation."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes) or not messages:
        raise SettingsError(
            "A conversation is a list of messages, and there is at least one: "
            '[Message("user", (Block("Hi"),))].'
        )
    for number, message in enumerate(messages, 1):
        if not isinstance(message, Message):
            raise SettingsError(
                f"Message {number} is {type(message).__name__}; it must be a Message of a role and blocks."
            )
        if message.role not in _ROLES:
            raise SettingsError(
                f"The role of message {number} is {message.role!r}; it must be one of {', '.join(_ROLES)}."
            )
        blocks: Any = message.blocks
        if not isinstance(blocks, Sequence) or isinstance(blocks, str):
            raise SettingsError(f'The blocks of message {number} must be a list: (Block("Hi"),).')
        for place, block in enumerate(blocks, 1):
            if not isinstance(block, Block) or not isinstance(block.text, str):
                raise SettingsError(
                    f'Block {place} of message {number} must be a Block of a text: Block("Hi").'
                )
            if block.module is not None and message.role not in _NAMING:
                raise SettingsError(
                    f"Block {place} of message {number} has a name, and its role is {message.role!r}. Only "
                    f"blocks of {' and '.join(_NAMING)} can have one."
                )
