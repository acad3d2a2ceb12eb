"""OpenAI's Completions API: a raw prompt without a chat template, as load generators send it."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from pydantic import MISSING

from app.server.core.answer_formats import format_of
from app.server.core.request import Asked, draws_of, scoped
from app.server.core.running import Running
from app.server.core.service import Service
from app.server.core.usage import Report
from app.server.http.bodies import BodyRoute
from app.server.http.errors import INVALID, ApiError, error_of
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
        if (choices := len(prompts) * asked.draws) > MOST_PROMPTS:
            raise ApiError(INVALID, f"n asks for {choices:,} answers; the maximum is {MOST_PROMPTS}.", "n")
        head: dict[str, Any] = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": body.model,
        }
        if body.echo or not isinstance(prompts[0], str):
            return await scored(service, asked, prompts, body, request, head)
        several = len(prompts) > 1
        asks = [
            replace(asked, text=str(text), field=f"prompt[{number}]" if several else "prompt")
            for number, text in enumerate(prompts)
        ]
        running = await service.begin(asks[0], request.state.noted, gone(request), asks[1:])
        running.named(head["id"], request.state.request_id)
        if body.stream:
            wanted = bool(body.stream_options and body.stream_options.include_usage)
            return EventStream(_chunks(running, head, wanted, request.state.request_id), running.close)
        try:
            answers = await running.answers(gone(request))
        finally:
            running.close()
        texts = _texts(running)
        found = [
            CompletionChoice(
                index=number,
                text=answer.text,
                finish_reason=finish_reason(answer),
                logprobs=_spelled(texts, answer.logprobs, 0),
            )
            for number, answer in enumerate(answers)
        ]
        report = MISSING if several else report_if_wanted(running, answers[0])
        usage = CompletionUsage.of(running.usage)
        return Completion(**head, choices=found, usage=usage, prompt_cache=report)

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
        draws=draws_of(body),
        logprobs=body.logprobs,
        salt=caller.salt,
        report=includes_report(body.include) or caller.report,
        over=over,
        field="prompt",
    )


def _texts(running: Running) -> TokenTexts | None:
    """The texts of tokens, if log-probabilities are wanted."""
    return None if running.asked.logprobs is None else TokenTexts(running.model.tokenizer)


def _spelled(texts: TokenTexts | None, tokens: Sequence[TokenLogprob], start: int) -> TextLogprobs | None:
    """Returns the log-probabilities of a text at an offset."""
    return None if texts is None else text_logprobs(texts, tokens, start)


async def _chunks(
    running: Running, head: dict[str, Any], usage: bool, request_id: str
) -> AsyncIterator[bytes]:
    none, several = None if usage else MISSING, len(running) > running.asked.draws
    texts, offsets = _texts(running), Counter[int]()
    report: Report | MISSING = MISSING
    try:
        async for number, step in running.each():
            if isinstance(step, Delta) and (step.text or step.logprobs):
                logprobs = _spelled(texts, step.logprobs, offsets[number])
                offsets[number] += texts.width(one.token for one in step.logprobs) if texts else 0
                choices = [CompletionChoice(index=number, text=step.text, logprobs=logprobs)]
                yield event(Completion(**head, choices=choices, usage=none))
            elif isinstance(step, Finished):
                choice = CompletionChoice(index=number, text="", finish_reason=finish_reason(step.answer))
                if number == 0 and not several:
                    report = report_if_wanted(running, step.answer)
                now = report if number == 0 and not usage else MISSING
                yield event(Completion(**head, choices=[choice], usage=none, prompt_cache=now))
        if usage:
            last = CompletionUsage.of(running.usage)
            yield event(Completion(**head, choices=[], usage=last, prompt_cache=report))
        yield DONE
    except Exception as error:
        yield event(error_of(error, request_id).in_openai())
