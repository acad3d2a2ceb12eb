"""Answers of Anthropic's Messages API."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import MISSING, Field

from app.server.anthropic.message_blocks import TTL_SECONDS
from app.server.core.usage import Read, Report, Usage, Written
from app.server.http.errors import AnthropicError
from app.server.http.shapes import Count, Reply
from app.server.recent.why import Why

StopReason = Literal["end_turn", "stop_sequence", "max_tokens", "tool_use", "model_context_window_exceeded"]


class TokenCount(Reply):
    """The tokens of a prompt."""

    input_tokens: Count


class CacheCreation(Reply):
    """Written tokens by time to live."""

    ephemeral_5m_input_tokens: Count
    ephemeral_1h_input_tokens: Count


class MessageUsage(Reply):
    """The tokens of a request."""

    input_tokens: Count = Field(description="Prompt tokens neither read nor written.")
    cache_creation_input_tokens: Written
    cache_read_input_tokens: Read
    cache_creation: CacheCreation
    output_tokens: Count
    approximate_input_tokens: Count | MISSING = Field(
        default=MISSING,
        description="Read tokens that were computed behind other text.",
    )

    @classmethod
    def of(cls, usage: Usage) -> MessageUsage:
        """Returns the tokens of a request in this form."""
        hour = usage.written_for.get(TTL_SECONDS["1h"], 0)
        return cls(
            input_tokens=usage.rest,
            cache_creation_input_tokens=usage.written,
            cache_read_input_tokens=usage.read,
            cache_creation=CacheCreation(
                ephemeral_5m_input_tokens=usage.written - hour, ephemeral_1h_input_tokens=hour
            ),
            output_tokens=usage.generated,
            approximate_input_tokens=usage.approximate or MISSING,
        )


class CacheMissReason(Reply):
    """The reason."""

    type: str
    cache_missed_input_tokens: Count | MISSING = MISSING
    explanation: Why | MISSING = Field(default=MISSING, description="The first difference, and what to do.")


class Diagnosis(Reply):
    """The difference from the earlier request."""

    cache_miss_reason: CacheMissReason | None


class TextBlock(Reply):
    """A text."""

    type: Literal["text"] = "text"
    text: str


class ThinkingBlock(Reply):
    """The reasoning before the answer."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: Literal[""] = ""


class ToolUseBlock(Reply):
    """A tool call."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]


Block = TextBlock | ThinkingBlock | ToolUseBlock


class Ending(Reply):
    """The reason of the end."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageHead(Reply):
    """The answer to a conversation, before its content."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[Block] = Field(default_factory=list)
    stop_reason: None = None
    stop_sequence: None = None
    usage: MessageUsage
    diagnostics: Diagnosis | MISSING = MISSING


class Message(Ending, MessageHead):  # type: ignore[misc]  # the reason replaces null
    """The answer to a conversation."""

    prompt_cache: Report | MISSING = MISSING


class MessageStart(Reply):
    """The message, before its content."""

    type: Literal["message_start"] = "message_start"
    message: MessageHead


class Signal(Reply):
    """The stream is open, or ends."""

    type: Literal["ping", "message_stop"]


class BlockStart(Reply):
    """The start of a block."""

    type: Literal["content_block_start"] = "content_block_start"
    index: Count
    content_block: Block


class TextDelta(Reply):
    """New text."""

    type: Literal["text_delta"] = "text_delta"
    text: str


class ThinkingDelta(Reply):
    """New reasoning."""

    type: Literal["thinking_delta"] = "thinking_delta"
    thinking: str


class ArgumentsDelta(Reply):
    """New arguments."""

    type: Literal["input_json_delta"] = "input_json_delta"
    partial_json: str


class BlockDelta(Reply):
    """New content of a block."""

    type: Literal["content_block_delta"] = "content_block_delta"
    index: Count
    delta: TextDelta | ThinkingDelta | ArgumentsDelta


class BlockStop(Reply):
    """The end of a block."""

    type: Literal["content_block_stop"] = "content_block_stop"
    index: Count


class MessageDelta(Reply):
    """The stop reason and the usage."""

    type: Literal["message_delta"] = "message_delta"
    delta: Ending
    usage: MessageUsage
    prompt_cache: Report | MISSING = MISSING


MessageEvent = MessageStart | Signal | BlockStart | BlockDelta | BlockStop | MessageDelta | AnthropicError
"""The events of a streamed message."""
