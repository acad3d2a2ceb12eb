"""Converts the blocks of Anthropic's messages to turns, and reads their cache marks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from app.server.anthropic.document_blocks import DOCUMENTS, text_of
from app.server.core.request import Block, Mark, Message, named
from app.server.core.tool_defs import Definitions
from app.server.core.tool_use import call_of
from app.server.http.bodies import Many
from app.server.http.errors import INVALID, ApiError, unsupported
from app.server.http.shapes import optional
from app.server.http.truncate import shown
from app.server.openai.wire import MODULE, TTL, Wire
from engine.prompt.conversation.tools import ToolCall

Role = Literal["user", "assistant", "system"]
MOST_MARKS = 4
TTL_SECONDS = {"5m": 300.0, "1h": 3600.0}
BILLING = "x-anthropic-billing-header:"
"""The start of a system block that one client sends first and changes with each request."""


class CacheControl(Wire):
    """Marks the end of a prefix to store."""

    type: Literal["ephemeral"] = optional("The kind of mark.", "ephemeral")
    ttl: Literal["5m", "1h"] | None = optional(TTL)


class ContentBlock(Wire):
    """A block of a message or of the system text."""

    type: str = Field(description="The kind of block.")
    text: str | None = optional("The text.")
    cache_control: CacheControl | None = optional("Stores the prefix up to here.")
    module: str | dict[str, Any] | None = optional(MODULE)
    id: str | None = optional("The id of the call.")
    name: str | None = optional("The name of the tool, in a block of type `tool_use`.")
    input: Any = optional("The arguments, in a block of type `tool_use`.")
    tool_use_id: str | None = optional("The call of this result, in a block of type `tool_result`.")
    content: str | Many[dict[str, Any]] | None = optional("A `tool_result`, or texts of a `search_result`.")
    source: str | dict[str, Any] | None = optional("Texts of a `document`, or origin of a `search_result`.")
    title: str | None = optional("The title of a `document` or `search_result`, placed before its text.")
    context: str | None = optional("Metadata of a `document`, placed before its text.")
    citations: Any = optional('On documents, `{"enabled": true}` is rejected; ignored otherwise.')


class BlockReader:
    """Reads messages with blocks and cache marks; tool results may refer to tool definitions.

    Attributes:
        messages: the messages read so far.
    """

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self.messages: list[Message] = []
        self._blocks = 0
        self._marks: list[tuple[int, CacheControl, str]] = []

    def read(self, role: Role, content: str | list[ContentBlock], where: str) -> None:
        """Reads a message; its tool results become separate turns before it.

        Raises:
            ApiError: a block is invalid or not supported.
        """
        blocks = [ContentBlock(type="text", text=content)] if isinstance(content, str) else content
        texts: list[Block] = []
        calls: list[ToolCall] = []
        results = False
        for number, block in enumerate(blocks):
            at = f"{where}.{number}"
            if block.type == "tool_result" and role == "user" and not texts:
                self._result(block, at)
                results = True
            elif block.type == "tool_use" and role == "assistant":
                calls.append(call_of(block.name, block.input, block.id, at))
                self._note(block.cache_control, self._blocks + len(texts), at)
            elif block.type == "text":
                if calls:
                    raise unsupported(at, "text of the assistant must come before its tool calls.")
                if role == "system" and (block.text or "").startswith(BILLING):
                    continue
                texts.append(self._text(block, block.text, role, self._blocks + len(texts), at))
            elif block.type in DOCUMENTS and role == "user":
                text = text_of(vars(block), at)
                texts.append(self._text(block, text, role, self._blocks + len(texts), at))
            elif block.type == "tool_result" and role == "user":
                raise ApiError(INVALID, "Tool results must come before all other blocks of a message.", at)
            elif block.type not in ("thinking", "redacted_thinking") or role != "assistant":
                raise unsupported(f"{at}.type", f"the model reads text, not {shown(block.type)} here.")
        if texts or calls or not results:
            self._blocks += len(texts) + bool(calls)
            self.messages.append(Message(role, tuple(texts), tuple(calls)))

    def _text(self, block: ContentBlock, text: str | None, role: Role, number: int, at: str) -> Block:
        if text is None:
            raise ApiError(INVALID, "This block has no text.", f"{at}.text")
        if block.cache_control is not None and not text:
            raise ApiError(INVALID, "An empty block cannot be marked.", f"{at}.cache_control")
        self._note(block.cache_control, number, at)
        return Block(text, named(block.module, role, f"{at}.module"))

    def _result(self, block: ContentBlock, at: str) -> None:
        """Reads a tool result as a separate turn."""
        content = block.content or ""  # an empty result still needs a block for a mark
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        results = []
        for number, part in enumerate(parts):
            place = f"{at}.content.{number}"
            self._note(_control(part, place), self._blocks + number, place)
            if part.get("type") == "tool_reference":
                results.append(Block(self._definitions.text(part.get("tool_name"), f"{place}.tool_name")))
                continue
            if part.get("type") in DOCUMENTS:
                results.append(Block(text_of(part, place)))
                continue
            if part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise unsupported(f"{place}.type", "the model reads text.")
            results.append(Block(part["text"]))
        self.messages.append(Message("tool", tuple(results), call_id=block.tool_use_id or ""))
        self._blocks += len(results)
        self._note(block.cache_control, self._blocks - 1, at)

    def _note(self, control: CacheControl | None, number: int, at: str) -> None:
        if control is not None:
            self._marks.append((number, control, f"{at}.cache_control"))

    def mark_tools(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Reads marks on tools, which the template writes with the first block; raises ApiError."""
        for number, tool in enumerate(tools):
            place = f"tools.{number}"
            self._note(_control(tool, place), 0, place)

    def mark_last(self, control: CacheControl) -> None:
        """Marks the last block; raises ApiError if it has a different mark."""
        known = next((control for block, control, _ in self._marks if block == self._blocks - 1), None)
        if known is None:
            self._marks.append((self._blocks - 1, control, "cache_control"))
        elif _seconds(known) != _seconds(control):
            raise ApiError(INVALID, "The last block is already marked with another ttl.", "cache_control")

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
        marks = [Mark(block, _seconds(control), where) for block, control, where in self._marks]
        for before, after in itertools.pairwise(marks):
            if after.seconds > before.seconds:
                raise ApiError(
                    INVALID,
                    "A ttl of 1h must not come after a ttl of 5m: put longer ones first.",
                    f"{after.param}.ttl",
                )
        return tuple(marks)


def _control(given: Mapping[str, Any], where: str) -> CacheControl | None:
    """Parses the mark of a raw object."""
    if given.get("cache_control") is None:
        return None
    try:
        return CacheControl.model_validate(given["cache_control"])
    except ValueError:
        words = 'It must be {"type": "ephemeral"}, optionally with a ttl of "5m" or "1h".'
        raise ApiError(INVALID, words, f"{where}.cache_control") from None


def _seconds(control: CacheControl) -> float:
    return TTL_SECONDS[control.ttl or "5m"]
