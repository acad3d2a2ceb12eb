"""OpenAI's Chat Completions API."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter, Depends, Request
from pydantic import MISSING, Field

from app.server.core.answer_formats import format_of
from app.server.core.limits import few_messages
from app.server.core.request import MOST_DRAWS, Asked, Caller, Defaults, draws_of, scoped, setting
from app.server.core.running import Running, Thought
from app.server.core.service import Service
from app.server.core.tool_use import Said, call_of, identified, reasoning_of, tools_of, with_variables
from app.server.core.usage import Report, report_of
from app.server.http.bodies import BodyRoute, Many, Whole
from app.server.http.errors import INVALID, ApiError, error_of, unsupported
from app.server.http.openapi_responses import errors, stream_of
from app.server.http.shapes import optional
from app.server.http.streams import DONE, EventStream, event, gone
from app.server.openai import shapes
from app.server.openai.bodies import DRAWS, EFFORT, FORMAT, MESSAGES, STREAM_OPTIONS, ConversingBody
from app.server.openai.includes import includes_report
from app.server.openai.logprobs import ChatLogprobs, TokenTexts, chat_logprobs, require_alternatives
from app.server.openai.wire import (
    CONTENT,
    ROLES,
    Conversation,
    Part,
    Wire,
    finish_reason,
    refuse_what_is_not_built,
    require_no_module,
    require_stream,
    settings_of_body,
)
from engine.base.events import Answer, Delta, Finished, FirstToken, TokenLogprob
from engine.pml.tree.tree import TurnName
from engine.prompt.conversation.tools import ToolCall

STREAMED = "The complete answer; with `stream`, events `data: …`, the last one `data: [DONE]`."
TURNS: Mapping[str, TurnName] = {**ROLES, "tool": "tool"}


class ChatMessage(Wire):
    """A message of the conversation."""

    role: str = Field(description="The role.")
    content: str | Many[Part] | None = optional(CONTENT)
    refusal: str | None = optional("The assistant's refusal.")
    tool_calls: Many[dict[str, Any]] | None = optional("The assistant's function calls.")
    tool_call_id: str | None = optional("The call of this result, in a message with the role `tool`.")


class StreamOptions(Wire):
    """Options of a stream."""

    include_usage: bool = optional("Whether a final event has the usage of the request.", False)


class ChatBody(ConversingBody):
    """A Chat Completions request."""

    messages: Many[ChatMessage] = Field(description=MESSAGES)
    max_tokens: Whole | None = setting("max_new_tokens")
    max_completion_tokens: Whole | None = setting("max_new_tokens")
    n: Whole | None = optional(DRAWS, 1)
    response_format: dict[str, Any] | None = optional(FORMAT)
    stream_options: StreamOptions | None = optional(STREAM_OPTIONS)
    reasoning_effort: str | None = optional(EFFORT)
    logprobs: bool | None = optional("Whether to return the log-probability of each token of the answer.")
    top_logprobs: Whole | None = optional("Alternatives for each token, 0 to 20; requires `logprobs`.")

    @property
    def alternatives(self) -> int | None:
        """The number of alternatives; None without log-probabilities."""
        require_alternatives(self.top_logprobs, "top_logprobs")
        if self.top_logprobs and not self.logprobs:
            raise ApiError(INVALID, "It requires logprobs to be true.", "top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None


def asked_of(body: ChatBody, defaults: Defaults, caller: Caller) -> Asked:
    """Converts a request body; raises ApiError if a field is invalid or not supported."""
    refuse_what_is_not_built(body, defaults)
    require_stream(body)
    tools = tools_of(body.offered())
    if not body.messages and body.prompt_cache is None:
        raise ApiError(INVALID, "There are no messages.", "messages")
    conversation = Conversation(TURNS)
    for number, message in enumerate(body.messages):
        where = f"messages[{number}]"
        _refuse_parts_of(message, where)
        require_no_module(message, where)
        calls = _calls(message, f"{where}.tool_calls")
        content = message.refusal if message.content is None else message.content
        conversation.read(message.role, content, where, calls=calls, answers=message.tool_call_id or "")
    longest = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    form = format_of(body.response_format, "response_format")
    over = None if body.prompt_cache is None else body.prompt_cache.over(caller.owner)
    return Asked(
        body.model,
        scoped(settings_of_body(body, (longest, getattr(body, longest)), defaults, form), over),
        tuple(conversation.messages),
        tools=with_variables(
            tools,
            {
                **reasoning_of(body.reasoning_effort, defaults.thinking, "reasoning_effort"),
                **(body.chat_template_kwargs or {}),
            },
        ),
        forced=body.forced(tools),
        strict=body.strict,
        marks=conversation.marks(body.prompt_cache_options, body.prompt_cache_retention),
        warm=body.warms,
        draws=draws_of(body, 1 if body.warms else MOST_DRAWS),
        logprobs=body.alternatives,
        salt=caller.salt,
        report=includes_report(body.include) or caller.report,
        over=over,
        previous=body.compared,
    )


def _refuse_parts_of(message: ChatMessage, where: str) -> None:
    """Rejects message fields that are not supported or belong to another role."""
    for name, why in (("function_call", "use tool_calls."), ("audio", "the model reads text.")):
        if getattr(message, name, None) is not None:
            raise unsupported(f"{where}.{name}", why)
    for name, role in (("tool_calls", "assistant"), ("tool_call_id", "tool")):
        if getattr(message, name) and message.role != role:
            raise ApiError(INVALID, f"Only a message of the role {role!r} has it.", f"{where}.{name}")


def _calls(message: ChatMessage, where: str) -> tuple[ToolCall, ...]:
    """The tool calls of an assistant message."""
    calls = []
    for number, call in enumerate(message.tool_calls or []):
        function = call.get("function")
        if call.get("type", "function") != "function" or not isinstance(function, dict):
            raise unsupported(f"{where}[{number}]", "only function calls are supported.")
        at = f"{where}[{number}].function"
        calls.append(call_of(function.get("name"), function.get("arguments"), call.get("id"), at))
    return tuple(calls)


def routes(service: Service) -> APIRouter:
    """Returns the endpoint."""
    router = APIRouter(route_class=BodyRoute, strict_content_type=False)

    @router.post(
        "/v1/chat/completions",
        dependencies=[Depends(few_messages(lambda: service.engine, "messages"))],
        response_model=shapes.ChatCompletion,
        response_description=STREAMED,
        responses=stream_of(shapes.ChatCompletionChunk) | errors("openai"),
    )
    async def create_chat_completion(body: ChatBody, request: Request) -> shapes.ChatCompletion | EventStream:
        """Creates a chat completion."""
        asked = asked_of(body, service.defaults, caller_of(service, request, body.cache_salt))
        running = await service.begin(asked, request.state.noted, gone(request))
        head: dict[str, Any] = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": body.model,
        }
        running.named(head["id"], request.state.request_id)
        if body.stream:
            usage = bool(body.stream_options and body.stream_options.include_usage)
            return EventStream(_chunks(running, head, usage, request.state.request_id), running.close)
        try:
            answers = await running.answers(gone(request))
        finally:
            running.close()
        return shapes.ChatCompletion(
            **head,
            choices=[await _choice(number, answer, running) for number, answer in enumerate(answers)],
            usage=shapes.CompletionUsage.of(running.usage),
            prompt_cache=report_if_wanted(running, answers[0]),
        )

    return router


def caller_of(service: Service, request: Request, salt: str | None = None) -> Caller:
    """Returns the client of a request."""
    client: str = request.state.client
    wanted = request.headers.get("x-prompt-cache", "").lower() == "report"
    return Caller(service.salt(salt, client), service.salt(None, client), wanted)


def report_if_wanted(running: Running, answer: Answer) -> Report | MISSING:
    """Returns the cache report, if it is requested."""
    if not running.asked.report:
        return MISSING
    return report_of(answer, running.kept, running.seconds, running.why())


async def _choice(number: int, answer: Answer, running: Running) -> shapes.ChatChoice:
    said = await running.parts(answer)
    message = shapes.AssistantMessage(
        content=said.text or (None if said.calls else ""),
        reasoning_content=said.thought or MISSING,
        tool_calls=_calls_of(said) or MISSING,
    )
    scored = logprobs_of(running)(answer.logprobs)
    return shapes.ChatChoice(
        index=number, message=message, finish_reason=_finish(answer, said), logprobs=scored
    )


def logprobs_of(running: Running) -> Callable[[Iterable[TokenLogprob]], ChatLogprobs | None]:
    """Returns a function that spells log-probabilities, without those of the end of the answer."""
    if running.asked.logprobs is None:
        return lambda _: None
    texts, ends = TokenTexts(running.model.tokenizer), running.model.end_tokens
    return lambda scored: chat_logprobs(texts, [one for one in scored if one.token not in ends])


def _calls_of(said: Said) -> list[shapes.FunctionCall]:
    return [
        shapes.FunctionCall(
            id=call.id,
            function=shapes.Function(
                name=call.name, arguments=json.dumps(call.arguments, ensure_ascii=False)
            ),
        )
        for call in identified(said.calls, "call_")
    ]


def _finish(answer: Answer, said: Said) -> shapes.FinishReason:
    cut = answer.stopped == "length"  # a cut answer may lack calls
    return "tool_calls" if said.calls and not cut else finish_reason(answer)


async def _chunks(
    running: Running, head: dict[str, Any], usage: bool, request_id: str
) -> AsyncIterator[bytes]:
    def chunk(
        number: int,
        delta: shapes.ChatDelta,
        finish: shapes.FinishReason | None = None,
        scored: ChatLogprobs | None = None,
        **more: Any,
    ) -> bytes:
        choice = shapes.ChatChunkChoice(index=number, delta=delta, finish_reason=finish, logprobs=scored)
        return event(shapes.ChatCompletionChunk(**head, choices=[choice], usage=none, **more))

    none = None if usage else MISSING
    at_end = bool(running.asked.tools)  # calls can be parsed only at the end
    opening = dict[int, bytes]()
    report: Report | MISSING = MISSING
    spelled = logprobs_of(running)
    try:
        async for number, step in running.each():
            add = partial(chunk, number)
            if isinstance(step, FirstToken):
                begun = add(shapes.ChatDelta(role="assistant", content="", refusal=None))
                if at_end or not running.text_follows(number):
                    yield begun
                else:
                    opening[number] = begun
            elif isinstance(step, Delta) and (step.text or step.logprobs) and not at_end:
                scored = spelled(step.logprobs)
                added = add(shapes.ChatDelta(content=step.text), scored=scored)
                yield opening.pop(number, b"") + added
            elif isinstance(step, Thought):
                scored = spelled(step.logprobs)
                yield add(shapes.ChatDelta(reasoning_content=step.text), scored=scored)
            elif isinstance(step, Finished):
                parts = await running.parts(step.answer)
                report = report_if_wanted(running, step.answer) if number == 0 else report
                if at_end and parts.thought:
                    yield add(shapes.ChatDelta(reasoning_content=parts.thought))
                if at_end and parts.text:
                    yield add(shapes.ChatDelta(content=parts.text))
                for place, call in enumerate(_calls_of(parts)):
                    yield add(
                        shapes.ChatDelta(tool_calls=[shapes.FunctionCallDelta(**vars(call), index=place)])
                    )
                finish = _finish(step.answer, parts)
                scored = spelled(step.answer.logprobs) if at_end else None
                now = report if number == 0 and not usage else MISSING
                yield add(shapes.ChatDelta(), finish, scored, prompt_cache=now)
        if usage:
            last = shapes.CompletionUsage.of(running.usage)
            yield event(shapes.ChatCompletionChunk(**head, choices=[], usage=last, prompt_cache=report))
        yield DONE
    except Exception as error:
        yield b"".join(opening.values()) + event(error_of(error, request_id).in_openai())
