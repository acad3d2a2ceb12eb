"""Blocks of Anthropic's messages as turns of texts, and which of them are marked."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from app.server.anthropic.document_blocks import DOCUMENTS, text_of
from app.server.core.request import Block, Mark, Message, named
from app.server.core.tool_defs import Definitions
from app.server.core.tool_use import call_of
from app.server.http.bodies import Many
from app.server.http.errors import INVALID, ApiError, unsupported
from app.server.http.truncate import shown
from app.server.openai.wire import Wire
from engine.prompt.conversation.tools import ToolCall

Role = Literal["user", "assistant", "system"]
MOST_MARKS = 4
TTL_SECONDS = {"5m": 300.0, "1h": 3600.0}
BILLING = "x-anthropic-billing-header:"
"""How a block begins that one client puts first in its system text, another one in each request."""


class CacheControl(Wire):
    """Marks the end of what is to be kept."""

    type: Literal["ephemeral"] = "ephemeral"
    ttl: Literal["5m", "1h"] | None = None


class ContentBlock(Wire):
    """A block of a message or of the system text."""

    type: str
    text: str | None = None
    cache_control: CacheControl | None = None
    module: str | dict[str, Any] | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: str | Many[dict[str, Any]] | None = None
    source: str | dict[str, Any] | None = None
    title: str | None = None
    context: str | None = None
    citations: Any = None


class BlockReader:
    """Reads messages made of blocks, and the marks on them; results may refer to definitions of tools.

    Args:
        definitions: the tools of the request.

    Attributes:
        messages: those that were read.
    """

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self.messages: list[Message] = []
        self._blocks = 0
        self._marks: list[tuple[int, CacheControl, str]] = []

    def read(self, role: Role, content: str | list[ContentBlock], where: str) -> None:
        """Reads a message; results of tools become turns of their own before it.

        Args:
            role: who speaks.
            content: what is said.
            where: the field.

        Raises:
            ApiError: a block is none that a model of texts reads here, or something in it is wrong.
        """
        given = [ContentBlock(type="text", text=content)] if isinstance(content, str) else content
        said: list[Block] = []
        calls: list[ToolCall] = []
        results = False
        for number, block in enumerate(given):
            at = f"{where}.{number}"
            if block.type == "tool_result" and role == "user" and not said:
                self._result(block, at)
                results = True
            elif block.type == "tool_use" and role == "assistant":
                calls.append(call_of(block.name, block.input, block.id, at))
                self._note(block.cache_control, self._blocks + len(said), at)
            elif block.type == "text":
                if calls:
                    raise unsupported(at, "text of the assistant stands before its calls of tools.")
                if role == "system" and (block.text or "").startswith(BILLING):
                    continue
                said.append(self._text(block, block.text, role, self._blocks + len(said), at))
            elif block.type in DOCUMENTS and role == "user":
                text = text_of(vars(block), at)
                said.append(self._text(block, text, role, self._blocks + len(said), at))
            elif block.type == "tool_result" and role == "user":
                raise ApiError(INVALID, "Results of tools stand before all other blocks of a message.", at)
            elif block.type not in ("thinking", "redacted_thinking") or role != "assistant":
                raise unsupported(
                    f"{at}.type", f"the model reads text, and this is {shown(block.type)} here."
                )
        if said or calls or not results:
            self._blocks += len(said) + bool(calls)
            self.messages.append(Message(role, tuple(said), tuple(calls)))

    def _text(self, block: ContentBlock, text: str | None, role: Role, number: int, at: str) -> Block:
        if text is None:
            raise ApiError(INVALID, "There is no text in this block.", f"{at}.text")
        if block.cache_control is not None and not text:
            raise ApiError(INVALID, "An empty block cannot be marked.", f"{at}.cache_control")
        self._note(block.cache_control, number, at)
        return Block(text, named(block.module, role, f"{at}.module"))

    def _result(self, block: ContentBlock, at: str) -> None:
        """Reads what a tool has answered: a turn of its own."""
        content = block.content or ""  # a result without content has a block too, which a mark can stand at
        given = [{"type": "text", "text": content}] if isinstance(content, str) else content
        said = []
        for number, part in enumerate(given):
            place = f"{at}.content.{number}"
            self._note(_control(part, place), self._blocks + number, place)
            if part.get("type") == "tool_reference":
                said.append(Block(self._definitions.text(part.get("tool_name"), f"{place}.tool_name")))
                continue
            if part.get("type") in DOCUMENTS:
                said.append(Block(text_of(part, place)))
                continue
            if part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise unsupported(f"{place}.type", "the model reads text.")
            said.append(Block(part["text"]))
        self.messages.append(Message("tool", tuple(said), call_id=block.tool_use_id or ""))
        self._blocks += len(said)
        self._note(block.cache_control, self._blocks - 1, at)

    def _note(self, control: CacheControl | None, number: int, at: str) -> None:
        if control is not None:
            self._marks.append((number, control, f"{at}.cache_control"))

    def mark_tools(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Notes marks on definitions of tools, which the template writes with the first block.

        Args:
            tools: the definitions.

        Raises:
            ApiError: a mark is none.
        """
        for number, tool in enumerate(tools):
            place = f"tools.{number}"
            self._note(_control(tool, place), 0, place)

    def mark_last(self, control: CacheControl) -> None:
        """Marks the last block, as a request does that is marked as a whole.

        Args:
            control: the mark.

        Raises:
            ApiError: the block is marked otherwise.
        """
        known = next((one for block, one, _ in self._marks if block == self._blocks - 1), None)
        if known is None:
            self._marks.append((self._blocks - 1, control, "cache_control"))
        elif _seconds(known) != _seconds(control):
            raise ApiError(INVALID, "The last block is marked already, with another ttl.", "cache_control")

    def marks(self) -> tuple[Mark, ...]:
        """Returns the marks.

        Raises:
            ApiError: there are too many, or a longer time to live follows a shorter one.
        """
        if len(self._marks) > MOST_MARKS:
            where = self._marks[MOST_MARKS][2]
            raise ApiError(
                INVALID,
                f"{len(self._marks)} blocks have cache_control; a maximum of {MOST_MARKS} may have it.",
                where,
            )
        found = [Mark(block, _seconds(one), where) for block, one, where in self._marks]
        for before, after in itertools.pairwise(found):
            if after.seconds > before.seconds:
                raise ApiError(
                    INVALID,
                    "A ttl of 1h must not come after a ttl of 5m: put longer ones first.",
                    f"{after.param}.ttl",
                )
        return tuple(found)


def _control(given: Mapping[str, Any], where: str) -> CacheControl | None:
    """The mark of something that was not read as a body's part before.

    Raises:
        ApiError: it is none.
    """
    if given.get("cache_control") is None:
        return None
    try:
        return CacheControl.model_validate(given["cache_control"])
    except ValueError:
        words = 'It must be {"type": "ephemeral"}, with a ttl of "5m" or "1h" if any.'
        raise ApiError(INVALID, words, f"{where}.cache_control") from None


def _seconds(control: CacheControl) -> float:
    return TTL_SECONDS[control.ttl or "5m"]
