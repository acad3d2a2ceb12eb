"""OpenAI's chat completions: a conversation in, the assistant's next message out."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from app.server.core.limits import few_messages
from app.server.core.request import Asked, Caller, Defaults, scoped
from app.server.core.service import Running, Service
from app.server.core.tool_use import Said, call_of, identified, tools_of, with_variables
from app.server.core.usage import Usage, report_of
from app.server.http.bodies import BodyRoute, Many, Whole
from app.server.http.errors import INVALID, ApiError, error_of, unsupported
from app.server.http.streams import DONE, EventStream, event, gone
from app.server.openai.bodies import ConversingBody
from app.server.openai.includes import includes_report
from app.server.openai.wire import (
    ROLES,
    Conversation,
    Part,
    Wire,
    finish_reason,
    refuse_what_is_not_built,
    require_no_module,
    require_stream,
    settings_of_body,
    usage_json,
)
from engine.base.events import Answer, Delta, Finished, FirstToken
from engine.pml.tree.tree import TurnName
from engine.prompt.conversation.tools import ToolCall

TURNS: Mapping[str, TurnName] = {**ROLES, "tool": "tool"}


class ChatMessage(Wire):
    """A message of the conversation."""

    role: str
    content: str | Many[Part] | None = None
    refusal: str | None = None
    tool_calls: Many[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class StreamOptions(Wire):
    """What a stream tells besides."""

    include_usage: bool = False


class ChatBody(ConversingBody):
    """A request for a chat completion."""

    messages: Many[ChatMessage]
    max_tokens: Whole | None = None
    max_completion_tokens: Whole | None = None
    stream_options: StreamOptions | None = None


def asked_of(body: ChatBody, defaults: Defaults, caller: Caller) -> Asked:
    """Reads a request.

    Args:
        body: the request.
        defaults: for what it does not say.
        caller: who asks.

    Raises:
        ApiError: something in it cannot be honoured.
    """
    refuse_what_is_not_built(body, defaults)
    require_stream(body)
    tools = body.offered()
    if not body.messages and body.prompt_cache is None:
        raise ApiError(INVALID, "There is no message.", "messages")
    conversation = Conversation(TURNS)
    for number, one in enumerate(body.messages):
        where = f"messages[{number}]"
        _refuse_parts_of(one, where)
        require_no_module(one, where)
        calls = _calls(one, f"{where}.tool_calls")
        said = one.refusal if one.content is None else one.content
        conversation.read(one.role, said, where, calls=calls, answers=one.tool_call_id or "")
    longest = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    over = None if body.prompt_cache is None else body.prompt_cache.over(caller.owner)
    return Asked(
        body.model,
        scoped(settings_of_body(body, (longest, getattr(body, longest)), defaults), over),
        tuple(conversation.messages),
        tools=with_variables(tools_of(tools), body.chat_template_kwargs),
        marks=conversation.marks(body.prompt_cache_options, body.prompt_cache_retention),
        warm=body.warms,
        salt=caller.salt,
        report=includes_report(body.include) or caller.report,
        over=over,
    )


def _refuse_parts_of(message: ChatMessage, where: str) -> None:
    """Refuses what a message has that is not read, or that only another role has."""
    for name, why in (("function_call", "use tool_calls."), ("audio", "the model reads text.")):
        if getattr(message, name, None) is not None:
            raise unsupported(f"{where}.{name}", why)
    for name, role in (("tool_calls", "assistant"), ("tool_call_id", "tool")):
        if getattr(message, name) and message.role != role:
            raise ApiError(INVALID, f"Only a message of the role {role!r} has it.", f"{where}.{name}")


def _calls(message: ChatMessage, where: str) -> tuple[ToolCall, ...]:
    """The calls of tools that a message of the assistant has.

    Raises:
        ApiError: something in them is none.
    """
    found = []
    for number, one in enumerate(message.tool_calls or []):
        function = one.get("function")
        if one.get("type", "function") != "function" or not isinstance(function, dict):
            raise unsupported(f"{where}[{number}]", "only calls of functions are known.")
        at = f"{where}[{number}].function"
        found.append(call_of(function.get("name"), function.get("arguments"), one.get("id"), at))
    return tuple(found)


def routes(service: Service) -> APIRouter:
    """Returns the endpoint."""
    router = APIRouter(route_class=BodyRoute, strict_content_type=False)

    @router.post(
        "/v1/chat/completions", dependencies=[Depends(few_messages(lambda: service.engine, "messages"))]
    )
    async def create_chat_completion(body: ChatBody, request: Request) -> Response:
        """Answers a conversation."""
        asked = asked_of(body, service.defaults, caller_of(service, request, body.cache_salt))
        running = await service.begin(asked, request.state.noted, gone(request))
        head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": body.model}
        if body.stream:
            usage = bool(body.stream_options and body.stream_options.include_usage)
            return EventStream(_chunks(running, head, usage, request.state.request_id), running.close)
        try:
            answer = await running.answer(gone(request))
        finally:
            running.close()
        return JSONResponse(_completion(answer, await running.parts(answer), head, running))

    return router


def caller_of(service: Service, request: Request, salt: str | None = None) -> Caller:
    """Returns who asks.

    Args:
        service: knows whether clients are kept apart.
        request: the request, which may ask for the report in a header.
        salt: what its body says.
    """
    client: str = request.state.client
    wanted = request.headers.get("x-prompt-cache", "").lower() == "report"
    return Caller(service.salt(salt, client), service.salt(None, client), wanted)


def report_if_wanted(running: Running, answer: Answer) -> dict[str, Any]:
    """The field with the report of the cache, where the request asks for it."""
    return {"prompt_cache": report_of(answer, running.kept, running.seconds)} if running.asked.report else {}


def _completion(answer: Answer, said: Said, head: dict[str, Any], running: Running) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": said.text or (None if said.calls else ""),
        "refusal": None,
    }
    if said.thought:
        message["reasoning_content"] = said.thought
    if said.calls:
        message["tool_calls"] = _told_calls(said)
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer, said), "logprobs": None}
    usage, told = usage_json(Usage.of(answer)), report_if_wanted(running, answer)
    return {**head, "object": "chat.completion", "choices": [choice], "usage": usage, **told}


def _told_calls(said: Said) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for call in identified(said.calls, "call_")
    ]


def _finish(answer: Answer, said: Said) -> str:
    cut = answer.stopped == "length"  # more calls may have been to come
    return "tool_calls" if said.calls and not cut else finish_reason(answer)


async def _chunks(
    running: Running, head: dict[str, Any], usage: bool, request_id: str
) -> AsyncIterator[bytes]:
    def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return event({**head, "object": "chat.completion.chunk", "choices": [choice], **none, **more})

    none = {"usage": None} if usage else {}
    whole = bool(running.asked.tools)  # calls are told from text when all of it is there
    begun = b""
    try:
        async for one in running.events():
            if isinstance(one, FirstToken):
                begun = chunk({"role": "assistant", "content": "", "refusal": None})
                if whole or not running.text_follows:
                    yield begun
                    begun = b""
            elif isinstance(one, Delta) and one.text and not whole:
                yield begun + chunk({"content": one.text})
                begun = b""
            elif isinstance(one, Finished):
                told, said = report_if_wanted(running, one.answer), await running.parts(one.answer)
                if whole and said.thought:
                    yield chunk({"reasoning_content": said.thought})
                if whole and said.text:
                    yield chunk({"content": said.text})
                for number, call in enumerate(_told_calls(said)):
                    yield chunk({"tool_calls": [{"index": number, **call}]})
                yield chunk({}, _finish(one.answer, said), **({} if usage else told))
                if usage:
                    last = usage_json(Usage.of(one.answer))
                    yield event(
                        {**head, "object": "chat.completion.chunk", "choices": [], "usage": last, **told}
                    )
        yield DONE
    except Exception as error:
        yield begun + event(error_of(error, request_id).body("openai", request_id))
