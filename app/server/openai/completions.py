"""OpenAI's Completions API: a raw prompt without a chat template, as load generators send it."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from pydantic import MISSING

from app.server.core.answer_formats import format_of
from app.server.core.request import Asked, scoped
from app.server.core.service import Running, Service
from app.server.core.usage import Usage
from app.server.http.bodies import BodyRoute
from app.server.http.errors import error_of
from app.server.http.openapi_responses import errors, stream_of
from app.server.http.streams import DONE, EventStream, event, gone
from app.server.openai.chat import STREAMED, caller_of, report_if_wanted
from app.server.openai.includes import includes_report
from app.server.openai.logprobs import TextLogprobs, TokenTexts, require_alternatives, text_logprobs
from app.server.openai.scored_text import MOST_PROMPTS, CompletionBody, prompts_of, scored
from app.server.openai.shapes import Completion, CompletionChoice, CompletionUsage
from app.server.openai.wire import (
    finish_reason,
    refuse_what_is_not_built,
    require_stream,
    settings_of_body,
)
from engine.base.events import Delta, Finished, TokenLogprob

_LONGEST = 16  # OpenAI's default length of a completion, in tokens

_REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "chat_template_kwargs": (({},), "a text has no chat template.")
}


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
        require_alternatives(body.logprobs, "logprobs")
        prompts = prompts_of(body.prompt, "prompt", MOST_PROMPTS)
        asked = _asked(body, service, request)
        text = prompts[0]
        if body.echo or len(prompts) > 1 or not isinstance(text, str):
            return await scored(service, asked, prompts, body, request)
        asked = replace(asked, text=text)
        running = await service.begin(asked, request.state.noted, gone(request))
        head: dict[str, Any] = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": body.model,
        }
        running.named(head["id"], request.state.request_id)
        if body.stream:
            wanted = bool(body.stream_options and body.stream_options.include_usage)
            return EventStream(_chunks(running, head, wanted, request.state.request_id), running.close)
        try:
            answer = await running.answer(gone(request))
        finally:
            running.close()
        choice = CompletionChoice(
            text=answer.text,
            finish_reason=finish_reason(answer),
            logprobs=_spelling(running)(answer.logprobs, 0),
        )
        usage = CompletionUsage.of(Usage.of(answer))
        report = report_if_wanted(running, answer)
        return Completion(**head, choices=[choice], usage=usage, prompt_cache=report)

    return router


def _asked(body: CompletionBody, service: Service, request: Request) -> Asked:
    """Converts a request body without its prompt; raises ApiError if a field is invalid."""
    caller = caller_of(service, request, body.cache_salt)
    over = None if body.prompt_cache is None else body.prompt_cache.over(caller.owner)
    longest = _LONGEST if body.max_tokens is None else body.max_tokens
    if body.echo and not longest:
        longest = 1  # nothing is generated
    form = format_of(body.response_format, "response_format")
    settings = settings_of_body(body, ("max_tokens", longest), service.defaults, form)
    return Asked(
        body.model,
        scoped(settings, over),
        logprobs=body.logprobs,
        salt=caller.salt,
        report=includes_report(body.include) or caller.report,
        over=over,
        field="prompt",
    )


def _spelling(running: Running) -> Callable[[Sequence[TokenLogprob], int], TextLogprobs | None]:
    """Returns a function that spells log-probabilities of a text at an offset."""
    if running.asked.logprobs is None:
        return lambda *_: None
    texts = TokenTexts(running.model.tokenizer)
    return lambda tokens, start: text_logprobs(texts, tokens, start)


async def _chunks(
    running: Running, head: dict[str, Any], usage: bool, request_id: str
) -> AsyncIterator[bytes]:
    none = None if usage else MISSING
    spelled, offset = _spelling(running), 0
    try:
        async for step in running.events():
            if isinstance(step, Delta) and (step.text or step.logprobs):
                logprobs = spelled(step.logprobs, offset)
                offset += sum(map(len, logprobs.tokens)) if logprobs else 0
                choices = [CompletionChoice(text=step.text, logprobs=logprobs)]
                yield event(Completion(**head, choices=choices, usage=none))
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
