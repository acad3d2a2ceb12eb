"""Anthropic's Messages API and its token counts."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import MISSING, Field

from app.server.anthropic import shapes
from app.server.anthropic.cache_diagnostics import diagnosis
from app.server.anthropic.message_blocks import BlockReader, CacheControl, ContentBlock, Role
from app.server.core.answer_formats import format_of
from app.server.core.limits import few_messages
from app.server.core.request import Asked, Caller, Defaults, sampling_of, scoped, setting, settings_from
from app.server.core.running import Running, Thought
from app.server.core.service import Service
from app.server.core.tool_defs import Definitions, all_of
from app.server.core.tool_use import (
    Said,
    forced_of,
    identified,
    reasoning_of,
    require_one_call,
    strict_of,
    with_variables,
)
from app.server.core.usage import Usage
from app.server.http.bodies import BodyRoute, Many, Whole
from app.server.http.errors import INVALID, ApiError, error_of, unsupported
from app.server.http.openapi_responses import errors, stream_of
from app.server.http.shapes import optional
from app.server.http.streams import EventStream, event, gone
from app.server.http.truncate import cut
from app.server.openai.bodies import MESSAGES, TOOL_CHOICE, SampledBody, ToolsBody
from app.server.openai.chat import caller_of, report_if_wanted
from app.server.openai.includes import includes_report
from app.server.openai.responses import STREAMED
from app.server.openai.wire import CONTENT, Wire, refuse_what_is_not_built, require_no_module
from engine.base.events import Answer, Delta, Finished, FirstToken
from engine.prompt.template.thinking import OFF, Thinking

MOST_STOPS = 64
CHOICES = ("auto", "any", "tool", "none")
# Unsupported fields that would change the answer, with their neutral values; adds to the common ones.
REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "container": ((), "the server runs no code."),
    "mcp_servers": (([],), "the server contacts no other service."),
    "compaction": ((), "the server does not edit conversations."),
    "thread": ((), "the server stores no conversations; send all of it as messages."),
}
USUAL_EFFORT = "high"
CLEARS_THINKING = "clear_thinking_"
STOPPED: Mapping[str, shapes.StopReason] = {
    "eos": "end_turn",
    "stop": "stop_sequence",
    "length": "max_tokens",
}


class MessageParam(Wire):
    """A message of the conversation."""

    role: Role = Field(description="The role.")
    content: str | Many[ContentBlock] = Field(description=CONTENT)


class CountBody(ToolsBody):
    """A request to count the tokens of a prompt."""

    messages: Many[MessageParam] = Field(description=MESSAGES)
    system: str | Many[ContentBlock] | None = optional("The system text, or its blocks.")
    cache_control: CacheControl | None = optional("Stores the prefix up to the last block.")
    tool_choice: dict[str, Any] | None = optional(TOOL_CHOICE)
    thinking: dict[str, Any] | None = optional(
        "`enabled`, `adaptive` or `disabled`, for a chat template that has reasoning. No budget is enforced."
    )
    output_config: dict[str, Any] | None = optional("`format`: `json_schema` with a JSON Schema.")
    output_format: dict[str, Any] | None = optional("An older name of `output_config.format`.")


class DiagnosticsParam(Wire):
    """Requests a cache miss explanation against an earlier request."""

    previous_message_id: str | None = optional("The id of the earlier answer.")


class MessagesBody(CountBody, SampledBody):
    """A Messages API request."""

    max_tokens: Whole = Field(ge=0, description="Longest answer in tokens; 0 only computes the prompt.")
    temperature: float | None = setting("temperature", "anthropic")
    stop_sequences: Many[str] | None = optional("Up to 64 texts. The answer ends before the first of them.")
    diagnostics: DiagnosticsParam | None = optional("Requests an explanation of a cache miss.")

    @property
    def compared(self) -> str | None:
        """The id of the answer with which the request is compared."""
        return self.diagnostics.previous_message_id if self.diagnostics else None


def asked_of(body: CountBody, defaults: Defaults, caller: Caller) -> Asked:
    """Converts a request body; raises ApiError if a field is invalid or not supported."""
    refuse_what_is_not_built(body, defaults, REFUSED)
    choice = body.tool_choice or {"type": "auto"}
    if choice.get("type") not in CHOICES:
        raise ApiError(INVALID, f"The types are {', '.join(CHOICES)}.", "tool_choice.type")
    tools = body.tools if choice.get("type") != "none" else None
    single = bool(tools) and choice.get("disable_parallel_tool_use") is True
    _refuse_parts_of_fields(body)
    if not body.messages and body.prompt_cache is None:
        raise ApiError(INVALID, "There are no messages.", "messages")
    definitions = Definitions(body.tools or [], used=bool(tools))
    forced = tuple[str, ...]()
    if choice.get("type") in ("any", "tool"):
        every = all_of(definitions.first, definitions.deferred)
        name = choice.get("name", "") if choice["type"] == "tool" else None
        forced = forced_of(every, name, "tool_choice")
    require_one_call(single, forced, "tool_choice.disable_parallel_tool_use")
    reader = BlockReader(definitions)
    reader.mark_tools(tools or [])
    if body.system:
        reader.read("system", body.system, "system")
    for number, message in enumerate(body.messages):
        require_no_module(message, f"messages.{number}")
        reader.read(message.role, message.content, f"messages.{number}.content")
    if isinstance(body, MessagesBody) and body.max_tokens:
        _require_a_question(body.messages)
    if body.cache_control is not None:
        reader.mark_last(body.cache_control)
    sampling = dict[str, tuple[str, Any]]()
    if isinstance(body, MessagesBody):
        if body.stop_sequences and len(body.stop_sequences) > MOST_STOPS:
            raise ApiError(INVALID, f"The maximum is {MOST_STOPS} stop sequences.", "stop_sequences")
        form = format_of((body.output_config or {}).get("format"), "output_config.format")
        if form[1] is None:
            form = format_of(body.output_format, "output_format")
        sampling = {
            **sampling_of(body),
            "stop": ("stop_sequences", body.stop_sequences or None),
            "max_new_tokens": ("max_tokens", body.max_tokens or None),
            "grammar": form,
        }
        if body.max_tokens == 0 and body.stream:
            raise ApiError(
                INVALID, "max_tokens of 0 only warms the cache, so there is nothing to stream.", "stream"
            )
    over = None if body.prompt_cache is None else body.prompt_cache.over(caller.owner)
    return Asked(
        body.model,
        scoped(settings_from(sampling, defaults, "anthropic"), over),
        tuple(reader.messages),
        tools=with_variables(
            definitions.first,
            {**_reasoning(body, defaults.thinking), **(body.chat_template_kwargs or {})},
        ),
        deferred=definitions.deferred,
        forced=forced,
        strict=strict_of(tools or ()),
        marks=reader.marks(),
        warm=isinstance(body, MessagesBody) and body.max_tokens == 0,
        salt=caller.salt,
        report=includes_report(getattr(body, "include", None)) or caller.report,
        over=over,
        previous=body.compared if isinstance(body, MessagesBody) else None,
    )


def _require_a_question(messages: Sequence[MessageParam]) -> None:
    """Rejects a prefilled answer, because the template would close it and start a new one."""
    if messages and messages[-1].role == "assistant":
        where = f"messages.{len(messages) - 1}"
        raise unsupported(where, "prefilled answers are not supported. The last message must be the user's.")


def _refuse_parts_of_fields(body: CountBody) -> None:
    """Rejects unsupported parts of fields, unless they have no effect."""
    for name, value in _parts(body, "output_config"):
        if name not in ("format", "effort"):
            raise unsupported(f"output_config.{cut(name)}", "the model has one effort only.")
        if name == "format" and not isinstance(value, Mapping):
            raise ApiError(INVALID, "It must be an object.", "output_config.format")
    for name, value in _parts(body, "context_management"):
        if name != "edits" or not _clear_thinking(value):
            raise unsupported(f"context_management.{cut(name)}", "the server does not edit conversations.")


def _reasoning(body: CountBody, thinking: Thinking) -> dict[str, Any]:
    """The chat template variables of `thinking` and the effort; raises ApiError if one has no effect."""
    effort = (body.output_config or {}).get("effort")
    variables = {} if effort == USUAL_EFFORT and not thinking.levels else {"effort": effort}
    found = reasoning_of(variables.get("effort"), thinking, "output_config.effort")
    match (body.thinking or {}).get("type"):
        case None | "adaptive":
            return found
        case "disabled":
            return {**found, **(thinking.variables(OFF) or {})} if thinking.switch else found
        case "enabled" if thinking.switch:
            return {**found, thinking.switch: True}
        case "enabled" if thinking:
            return found
    words = "the model does not think. Send adaptive or disabled, or remove the field."
    raise unsupported("thinking", words)


def _parts(body: CountBody, name: str) -> Iterator[tuple[str, Any]]:
    """The parts of a field that have a value."""
    content = getattr(body, name, None) or {}
    if not isinstance(content, Mapping):
        raise ApiError(INVALID, "It must be an object.", name)
    yield from ((part, value) for part, value in content.items() if value)


def _clear_thinking(edits: object) -> bool:
    """Whether all edits only remove reasoning of earlier turns, which the model never reads."""
    return isinstance(edits, list) and all(
        isinstance(edit, Mapping) and str(edit.get("type")).startswith(CLEARS_THINKING) for edit in edits
    )


def stop_reason(answer: Answer) -> shapes.StopReason:
    """Converts a stop reason to Anthropic's."""
    return "model_context_window_exceeded" if answer.cut_short else STOPPED[answer.stopped]


def routes(service: Service) -> APIRouter:
    """Returns the endpoints."""
    router = APIRouter(route_class=BodyRoute, strict_content_type=False)

    @router.post(
        "/v1/messages/count_tokens",
        dependencies=[Depends(few_messages(lambda: service.engine, "messages"))],
        responses=errors("anthropic"),
    )
    async def count_message_tokens(body: CountBody, request: Request) -> shapes.TokenCount:
        """Counts the tokens of a prompt."""
        asked = asked_of(body, service.defaults, caller_of(service, request))
        tokens = await service.counted(asked, request.state.client, gone(request))
        return shapes.TokenCount(input_tokens=tokens)

    @router.post(
        "/v1/messages",
        dependencies=[Depends(few_messages(lambda: service.engine, "messages"))],
        response_model=shapes.Message,
        response_description=STREAMED,
        responses=stream_of(shapes.MessageEvent) | errors("anthropic"),
    )
    async def create_message(body: MessagesBody, request: Request) -> shapes.Message | EventStream:
        """Creates a message."""
        caller = caller_of(service, request, body.cache_salt)
        asked = asked_of(body, service.defaults, caller)
        running = await service.begin(asked, request.state.noted, gone(request))
        head: dict[str, Any] = {"id": f"msg_{secrets.token_hex(12)}", "model": body.model}
        running.named(head["id"], request.state.request_id)
        diagnosed = partial(diagnosis, running, wanted=body.diagnostics is not None)
        if body.stream:
            events = _events(running, head, diagnosed, request.state.request_id)
            return EventStream(events, running.close)
        try:
            answer = await running.answer(gone(request))
        finally:
            running.close()
        parts, usage = await running.parts(answer), Usage.of(answer)
        return shapes.Message(
            **head,
            content=_content(parts),
            **vars(_ending(answer, parts)),
            usage=shapes.MessageUsage.of(usage),
            diagnostics=diagnosed(),
            prompt_cache=report_if_wanted(running, answer),
        )

    return router


def _content(said: Said) -> list[shapes.Block]:
    blocks: list[shapes.Block] = []
    if said.thought:
        blocks.append(shapes.ThinkingBlock(thinking=said.thought))
    if said.text:
        blocks.append(shapes.TextBlock(text=said.text))
    calls = identified(said.calls, "toolu_")
    return [
        *blocks,
        *(shapes.ToolUseBlock(id=call.id, name=call.name, input={**call.arguments}) for call in calls),
    ]


def _ending(answer: Answer, said: Said) -> shapes.Ending:
    calls = said.calls and answer.stopped != "length"  # a cut answer may lack calls
    return shapes.Ending(stop_reason="tool_use" if calls else stop_reason(answer), stop_sequence=answer.stop)


async def _events(
    running: Running,
    head: dict[str, Any],
    diagnosed: Callable[[], shapes.Diagnosis | MISSING],
    request_id: str,
) -> AsyncIterator[bytes]:
    def as_events(*events: shapes.MessageEvent) -> bytes:
        return b"".join(event(data, data.type) for data in events)

    at_end = bool(running.asked.tools)  # calls can be parsed only at the end
    opening, blocks = b"", _Blocks()
    try:
        async for step in running.events():
            if isinstance(step, FirstToken):
                usage = Usage.of(step)
                message = shapes.MessageHead(
                    **head, usage=shapes.MessageUsage.of(usage), diagnostics=diagnosed()
                )
                opening = as_events(shapes.MessageStart(message=message))
                if not at_end and not running.thinks:
                    opening += as_events(*blocks.begin("text"))
                opening += as_events(shapes.Signal(type="ping"))
                if at_end or not running.text_follows():
                    yield opening
                    opening = b""
            elif isinstance(step, Delta) and step.text and not at_end:
                begun = blocks.begin("text")
                yield opening + as_events(*begun, blocks.delta(shapes.TextDelta(text=step.text)))
                opening = b""
            elif isinstance(step, Thought):
                begun = blocks.begin("thinking")
                yield as_events(*begun, blocks.delta(shapes.ThinkingDelta(thinking=step.text)))
            elif isinstance(step, Finished):
                parts = await running.parts(step.answer)
                if at_end:
                    for number, block in enumerate(_content(parts)):
                        yield as_events(*_of_block(number, block))
                else:
                    yield as_events(*blocks.end())
                last = shapes.MessageDelta(
                    delta=_ending(step.answer, parts),
                    usage=shapes.MessageUsage.of(Usage.of(step.answer)),
                    prompt_cache=report_if_wanted(running, step.answer),
                )
                yield as_events(last, shapes.Signal(type="message_stop"))
    except Exception as error:
        yield opening + as_events(error_of(error, request_id).in_anthropic(request_id))


class _Blocks:
    """Numbers the blocks of a stream: reasoning, then text."""

    def __init__(self) -> None:
        self._kind, self._index = "", -1

    def begin(self, kind: Literal["text", "thinking"]) -> list[shapes.MessageEvent]:
        """Returns the events that begin a block, unless it has begun."""
        if kind == self._kind:
            return []
        ended = self.end()
        self._kind, self._index = kind, self._index + 1
        empty = shapes.TextBlock(text="") if kind == "text" else shapes.ThinkingBlock(thinking="")
        return [*ended, shapes.BlockStart(index=self._index, content_block=empty)]

    def delta(self, delta: shapes.TextDelta | shapes.ThinkingDelta) -> shapes.BlockDelta:
        """Returns the event of new content."""
        return shapes.BlockDelta(index=self._index, delta=delta)

    def end(self) -> list[shapes.MessageEvent]:
        """Returns the event that ends the current block, if any."""
        return [shapes.BlockStop(index=self._index)] if self._kind else []


def _of_block(index: int, block: shapes.Block) -> Iterator[shapes.MessageEvent]:
    """Yields the events of a complete block."""
    empty: shapes.Block
    delta: shapes.TextDelta | shapes.ThinkingDelta | shapes.ArgumentsDelta
    match block:
        case shapes.TextBlock():
            empty, delta = shapes.TextBlock(text=""), shapes.TextDelta(text=block.text)
        case shapes.ThinkingBlock():
            empty, delta = shapes.ThinkingBlock(thinking=""), shapes.ThinkingDelta(thinking=block.thinking)
        case shapes.ToolUseBlock():
            spelled = json.dumps(block.input, ensure_ascii=False)
            empty, delta = block.model_copy(update={"input": {}}), shapes.ArgumentsDelta(partial_json=spelled)
    yield shapes.BlockStart(index=index, content_block=empty)
    yield shapes.BlockDelta(index=index, delta=delta)
    yield shapes.BlockStop(index=index)
