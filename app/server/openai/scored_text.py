"""Completions of prompts that are echoed, several, or given as tokens. They use no cache."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fastapi import Request
from pydantic import Field

from app.server.core.caching import prepared
from app.server.core.request import Asked, setting
from app.server.core.service import Service
from app.server.core.usage import Usage
from app.server.http.bodies import Many, Whole
from app.server.http.errors import INVALID, ApiError, error_of, unsupported
from app.server.http.shapes import optional
from app.server.http.streams import gone
from app.server.openai.bodies import FORMAT, STREAM_OPTIONS, GeneratingBody
from app.server.openai.chat import StreamOptions
from app.server.openai.logprobs import TextLogprobs, TokenTexts, text_logprobs
from app.server.openai.shapes import Completion, CompletionChoice, CompletionUsage
from app.server.openai.wire import FINISHED
from engine.base.errors import SettingsError
from engine.base.events import Listener
from engine.inference.continuation import Continuation
from engine.pml import PromptError

MOST_PROMPTS = 256


class CompletionBody(GeneratingBody):
    """A Completions request."""

    prompt: str | Many[str] | Many[Whole] | Many[Many[Whole]] = Field(
        description="The text to continue, without the chat template, or its tokens; or a list of several."
    )
    max_tokens: Whole | None = setting("max_new_tokens")
    logprobs: Whole | None = optional("Returns log-probabilities with this many alternatives, 0 to 20.")
    echo: bool | None = optional("Returns the prompt, too. With it, `max_tokens` may be 0.", False)
    response_format: dict[str, Any] | None = optional(FORMAT)
    stream_options: StreamOptions | None = optional(STREAM_OPTIONS)


def prompts_of(given: str | list[Any], field: str, most: int) -> list[str] | list[list[int]]:
    """Returns the prompts in a field of a request: texts, or lists of tokens.

    Raises:
        ApiError: there is none, or there are too many.
    """
    if isinstance(given, str) or (given and isinstance(given[0], int)):
        given = [given]
    if not 1 <= len(given) <= most:
        raise ApiError(INVALID, f"{field} has {len(given):,} texts; send 1 to {most:,}.", field)
    return given


async def scored(
    service: Service,
    asked: Asked,
    prompts: Sequence[str | list[int]],
    body: CompletionBody,
    request: Request,
) -> Completion:
    """Continues prompts one after the other; all choices are sent at once.

    Raises:
        ApiError: the request cannot be answered in this way, or the server is full or not ready.
        PromptCacheError: a prompt is invalid.
    """
    why = "prompts that are echoed, several, or tokens"
    if body.stream:
        raise unsupported("stream", f"{why} are answered at once.")
    if asked.over is not None:
        raise unsupported("prompt_cache", f"{why} use no schema.")
    request.state.noted.asks(body.model)
    service.require_model(body.model)
    engine, files = service.engine, service.schemas

    def work(listener: Listener) -> tuple[list[CompletionChoice], Usage]:
        texts, choices, read, made = TokenTexts(engine.model.tokenizer), [], 0, 0
        for number, prompt in enumerate(prompts):
            try:
                if isinstance(prompt, str):
                    planned = prepared(engine, replace(asked, text=prompt), files).tokenized.planned(None)
                    tokens: Sequence[int] = planned.plan.token_ids
                else:
                    tokens = prompt
                answer = engine.continue_tokens(
                    tokens,
                    asked.settings,
                    answer=body.max_tokens != 0,
                    scored=bool(body.echo) and body.logprobs is not None,
                    logprobs=body.logprobs,
                    listener=listener,
                )
            except (PromptError, SettingsError) as error:
                where = f"prompt[{number}]" if len(prompts) > 1 else "prompt"
                raise error_of(error, prompt=where) from error
            choices.append(_choice(texts, answer, prompt, body, number))
            read, made = read + len(answer.prompt), made + len(answer.token_ids)
        return choices, Usage(read, generated=made)

    choices, usage = await service.work(work, gone(request), request.state.noted)
    request.state.noted.done(usage, choices[-1].finish_reason or "")
    return Completion(
        id=f"cmpl-{secrets.token_hex(12)}",
        created=int(time.time()),
        model=body.model,
        choices=choices,
        usage=CompletionUsage.of(usage),
    )


def _choice(
    texts: TokenTexts, answer: Continuation, prompt: str | list[int], body: CompletionBody, number: int
) -> CompletionChoice:
    before = ""
    if body.echo:
        before = prompt if isinstance(prompt, str) else texts.joined(prompt)
    logprobs: TextLogprobs | None = None
    if body.logprobs is not None:
        first = answer.prompt[0] if body.echo else None
        # The tokenizer may add a token before a text.
        start = 0 if first is None or texts.begins(before, first) else -len(texts[first])
        logprobs = text_logprobs(texts, (*answer.scores, *answer.logprobs), start, first)
    return CompletionChoice(
        index=number, text=before + answer.text, finish_reason=FINISHED[answer.stopped], logprobs=logprobs
    )
