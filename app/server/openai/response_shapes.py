"""Answers of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import MISSING, Field, TypeAdapter

from app.server.core.caching import MarkResult
from app.server.core.usage import Report, Usage
from app.server.http.errors import OpenAIErrorDetails
from app.server.http.shapes import Count, Reply
from app.server.openai.shapes import CompletionTokensDetails, PromptTokensDetails
from app.server.openai.wire import TTL_SECONDS

Status = Literal["in_progress", "completed", "incomplete", "failed"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
Echo = Annotated[Any, Field(description="The value of the request.")]


class InputTokens(Reply):
    """The tokens of an input."""

    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: Count


class InputTokensDetails(PromptTokensDetails):
    """Cached and stored tokens."""

    cache_write_tokens_details: dict[str, Count] | MISSING = Field(
        default=MISSING, description="Written tokens by time to live."
    )


class ResponseUsage(Reply):
    """The tokens of the request."""

    input_tokens: Count
    input_tokens_details: InputTokensDetails
    output_tokens: Count
    output_tokens_details: CompletionTokensDetails = CompletionTokensDetails()
    total_tokens: Count

    @classmethod
    def of(cls, usage: Usage, marks: Sequence[MarkResult] = ()) -> ResponseUsage:
        """Returns the tokens of a request; written ones are split by time to live, as in OpenAI's API."""
        details = InputTokensDetails(
            cached_tokens=usage.read,
            cache_write_tokens=usage.written,
            approximate_tokens=usage.approximate or MISSING,
        )
        if marks and {mark.seconds for mark in marks} <= {*TTL_SECONDS.values()}:
            written = {ttl: usage.written_for.get(seconds, 0) for ttl, seconds in TTL_SECONDS.items()}
            written[min(TTL_SECONDS, key=TTL_SECONDS.__getitem__)] += usage.written - sum(written.values())
            details.cache_write_tokens_details = {
                f"ttl_{ttl}_tokens": count for ttl, count in written.items()
            }
        return cls(
            input_tokens=usage.prompt,
            input_tokens_details=details,
            output_tokens=usage.generated,
            total_tokens=usage.prompt + usage.generated,
        )


class OutputText(Reply):
    """A part of a message."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()


class OutputMessage(Reply):
    """The assistant's message."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    status: ItemStatus
    content: list[OutputText]


class OutputFunctionCall(Reply):
    """A function call."""

    id: str
    type: Literal["function_call"] = "function_call"
    call_id: str
    name: str
    arguments: str = Field(description="A JSON text.")
    status: ItemStatus


class ReasoningText(Reply):
    """A text."""

    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


class Reasoning(Reply):
    """The reasoning before the answer."""

    id: str
    type: Literal["reasoning"] = "reasoning"
    status: ItemStatus
    summary: tuple[()] = ()
    content: list[ReasoningText]


OutputItem = OutputMessage | OutputFunctionCall | Reasoning


class ResponseError(Reply):
    """The error."""

    code: str
    message: str


class IncompleteDetails(Reply):
    """Why the answer is incomplete."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class Response(Reply):
    """The answer to an input."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    model: str
    metadata: Echo = Field(default_factory=dict)
    parallel_tool_calls: bool = True
    tool_choice: str | dict[str, Any] = "auto"
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: Echo = None
    prompt_cache_key: Echo = None
    prompt_cache_retention: Echo = None
    safety_identifier: Echo = None
    user: Echo = None
    background: Literal[False] = False
    previous_response_id: str | None = None
    reasoning: Echo
    service_tier: Literal["default"] = "default"
    store: bool = False
    temperature: float
    text: Echo
    tools: list[dict[str, Any]]
    top_logprobs: Literal[0] = 0
    top_p: float
    truncation: Literal["disabled"] = "disabled"
    prompt_cache_options: dict[str, str] | None = None
    prompt_cache_diagnostics: dict[str, str | int] | MISSING = MISSING
    status: Status
    output: list[OutputItem]
    completed_at: int | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    usage: ResponseUsage | None = None
    prompt_cache: Report | MISSING = MISSING


class Event(Reply):
    """An event of a streamed response."""

    type: str
    sequence_number: Count


class StateEvent(Event):
    """The response so far."""

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    response: Response


class ItemEvent(Event):
    """An item of the output."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: Count
    item: OutputItem


class PlacedEvent(Event):
    """An event of a part of a message."""

    item_id: str
    output_index: Count
    content_index: Count


class PartEvent(PlacedEvent):
    """A part of a message."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    part: OutputText


class TextDeltaEvent(PlacedEvent):
    """New text."""

    type: Literal["response.output_text.delta"]
    delta: str
    logprobs: tuple[()] = ()


class TextDoneEvent(PlacedEvent):
    """The complete text."""

    type: Literal["response.output_text.done"]
    text: str
    logprobs: tuple[()] = ()


class ReasoningDeltaEvent(PlacedEvent):
    """New reasoning."""

    type: Literal["response.reasoning_text.delta"]
    delta: str


class ReasoningDoneEvent(PlacedEvent):
    """The complete reasoning."""

    type: Literal["response.reasoning_text.done"]
    text: str


class ArgumentsDeltaEvent(Event):
    """New arguments of a call."""

    type: Literal["response.function_call_arguments.delta"]
    item_id: str
    output_index: Count
    delta: str


class ArgumentsDoneEvent(Event):
    """The complete arguments of a call."""

    type: Literal["response.function_call_arguments.done"]
    item_id: str
    output_index: Count
    name: str
    arguments: str


class ErrorEvent(Event):
    """The error that ended the stream, after response.failed."""

    type: Literal["error"]
    code: str | None
    message: str
    param: str | None
    error: OpenAIErrorDetails


ResponseEvent = (
    StateEvent
    | ItemEvent
    | PartEvent
    | TextDeltaEvent
    | TextDoneEvent
    | ReasoningDeltaEvent
    | ReasoningDoneEvent
    | ArgumentsDeltaEvent
    | ArgumentsDoneEvent
    | ErrorEvent
)
"""The events of a streamed response."""
EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[ResponseEvent, Field(discriminator="type")])
