"""Answers of OpenAI's Chat Completions and Completions APIs."""

from __future__ import annotations

from typing import Literal

from pydantic import MISSING, Field

from app.server.core.usage import Read, Report, Usage, Written
from app.server.http.shapes import Count, Reply
from app.server.openai.logprobs import ChatLogprobs, TextLogprobs

FinishReason = Literal["stop", "length", "tool_calls"]


class PromptTokensDetails(Reply):
    """Cached and stored tokens."""

    cached_tokens: Read
    cache_write_tokens: Written
    approximate_tokens: Count | MISSING = Field(
        default=MISSING, description="Read tokens that were computed behind other text."
    )


class CompletionTokensDetails(Reply):
    """Details of the answer."""

    reasoning_tokens: Literal[0] = 0


class CompletionUsage(Reply):
    """The tokens of a request."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails = CompletionTokensDetails()

    @classmethod
    def of(cls, usage: Usage) -> CompletionUsage:
        """Returns the tokens of a request in this form."""
        return cls(
            prompt_tokens=usage.prompt,
            completion_tokens=usage.generated,
            total_tokens=usage.prompt + usage.generated,
            prompt_tokens_details=PromptTokensDetails(
                cached_tokens=usage.read,
                cache_write_tokens=usage.written,
                approximate_tokens=usage.approximate or MISSING,
            ),
        )


class Generated(Reply):
    """An answer, or a part of it."""

    id: str
    created: int = Field(description="Seconds since 1970.")
    model: str


class Function(Reply):
    """The function of a call."""

    name: str
    arguments: str = Field(description="A JSON text.")


class FunctionCall(Reply):
    """A function call."""

    id: str
    type: Literal["function"] = "function"
    function: Function


class FunctionCallDelta(FunctionCall):
    """A complete function call."""

    index: Count


class AssistantMessage(Reply):
    """The assistant's message."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | MISSING = Field(default=MISSING, description="The reasoning before the answer.")
    tool_calls: list[FunctionCall] | MISSING = MISSING


class ChatChoice(Reply):
    """An answer."""

    index: Count = 0
    message: AssistantMessage
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None = None


class ChatCompletion(Generated):
    """The answer to a conversation."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: list[ChatChoice]
    usage: CompletionUsage
    prompt_cache: Report | MISSING = MISSING


class ChatDelta(Reply):
    """New content."""

    role: Literal["assistant"] | MISSING = MISSING
    content: str | MISSING = MISSING
    refusal: MISSING | None = MISSING
    reasoning_content: str | MISSING = MISSING
    tool_calls: list[FunctionCallDelta] | MISSING = MISSING


class ChatChunkChoice(Reply):
    """New content of an answer; its last chunk has the stop reason."""

    index: Count = 0
    delta: ChatDelta
    finish_reason: FinishReason | None = None
    logprobs: ChatLogprobs | None = None


class ChatCompletionChunk(Generated):
    """A part of a streamed answer."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: list[ChatChunkChoice]
    usage: CompletionUsage | MISSING | None = Field(
        default=MISSING, description="With `stream_options.include_usage`: null except in the last chunk."
    )
    prompt_cache: Report | MISSING = MISSING


class CompletionChoice(Reply):
    """The continuation of a prompt."""

    index: Count = 0
    text: str
    finish_reason: Literal["stop", "length"] | None = None
    logprobs: TextLogprobs | None = None


class Completion(Generated):
    """The continuation of a text, or a part of it in a stream."""

    object: Literal["text_completion"] = "text_completion"
    choices: list[CompletionChoice]
    usage: CompletionUsage | MISSING | None = MISSING
    prompt_cache: Report | MISSING = MISSING
