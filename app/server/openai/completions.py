"""OpenAI's Completions API: a raw prompt without a chat template, as load generators send it."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from pydantic import MISSING, Field

from app.server.core.request import Asked, scoped, setting
from app.server.core.service import Running, Service
from app.server.core.usage import Usage
from app.server.http.bodies import BodyRoute, Many, Whole
from app.server.http.errors import INVALID, ApiError, error_of
from app.server.http.openapi_responses import errors, stream_of
from app.server.http.shapes import optional
from app.server.http.streams import DONE, EventStream, event, gone
from app.server.openai.bodies import STREAM_OPTIONS, GeneratingBody
from app.server.openai.chat import STREAMED, StreamOptions, caller_of, report_if_wanted
from app.server.openai.includes import includes_report
from app.server.openai.shapes import Completion, CompletionChoice, CompletionUsage
from app.server.openai.wire import (
    finish_reason,
    refuse_what_is_not_built,
    require_stream,
    settings_of_body,
)
from engine.base.events import Delta, Finished

_LONGEST = 16  # OpenAI's default length of a completion, in tokens

_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "chat_template_kwargs": (({},), "a text has no chat template.")
}


class CompletionBody(GeneratingBody):
    """A Completions request."""

    prompt: str | Many[str] = Field(description="The text to continue, without the chat template.")
    max_tokens: Whole | None = setting("max_new_tokens")
    stream_options: StreamOptions | None = optional(STREAM_OPTIONS)


def routes(service: Service) -> APIRouter:
    """Returns the endpoint."""
    router = APIRouter(route_class=BodyRoute, strict_content_type=False)

    @router.post(
        "/v1/completions",
        response_model=Completion,
        response_description=STREAMED,
        responses=stream_of(Completion) | errors("openai"),
    )
    async def create_completion(body: CompletionBody, request: Request) -> Completion | EventStream:
        """Creates a completion."""
        refuse_what_is_not_built(body, service.defaults, _REFUSED)
        require_stream(body)
        texts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
        if len(texts) != 1:
            raise ApiError(INVALID, f"There are {len(texts)} prompts; send one per request.", "prompt")
        caller = caller_of(service, request, body.cache_salt)
        over = None if body.prompt_cache is None else body.prompt_cache.over(caller.owner)
        longest = _LONGEST if body.max_tokens is None else body.max_tokens
        settings = settings_of_body(body, ("max_tokens", longest), service.defaults)
        asked = Asked(
            body.model,
            scoped(settings, over),
            text=texts[0],
            salt=caller.salt,
            report=includes_report(body.include) or caller.report,
            over=over,
            field="prompt",
        )
        running = await service.begin(asked, request.state.noted, gone(request))
        head: dict[str, Any] = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": body.model,
        }
        if body.stream:
            wanted = bool(body.stream_options and body.stream_options.include_usage)
            return EventStream(_chunks(running, head, wanted, request.state.request_id), running.close)
        try:
            answer = await running.answer(gone(request))
        finally:
            running.close()
        choice = CompletionChoice(text=answer.text, finish_reason=finish_reason(answer))
        usage = CompletionUsage.of(Usage.of(answer))
        report = report_if_wanted(running, answer)
        return Completion(**head, choices=[choice], usage=usage, prompt_cache=report)

    return router


async def _chunks(
    running: Running, head: dict[str, Any], usage: bool, request_id: str
) -> AsyncIterator[bytes]:
    none = None if usage else MISSING
    try:
        async for step in running.events():
            if isinstance(step, Delta) and step.text:
                yield event(Completion(**head, choices=[CompletionChoice(text=step.text)], usage=none))
            elif isinstance(step, Finished):
                choice = CompletionChoice(text="", finish_reason=finish_reason(step.answer))
                report = report_if_wanted(running, step.answer)
                now = MISSING if usage else report
                yield event(Completion(**head, choices=[choice], usage=none, prompt_cache=now))
                if usage:
                    last = CompletionUsage.of(Usage.of(step.answer))
                    yield event(Completion(**head, choices=[], usage=last, prompt_cache=report))
        yield DONE
    except Exception as error:
        yield event(error_of(error, request_id).in_openai())
