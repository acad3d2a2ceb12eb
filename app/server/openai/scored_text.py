"""Completions of prompts that are echoed or given as tokens. They use no cache."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

from fastapi import Request
from pydantic import MISSING, Field

from app.server.core.caching import prepared
from app.server.core.request import SEEDS, Asked, setting
from app.server.core.service import Service
from app.server.core.usage import Usage
from app.server.http.bodies import Many, Whole
from app.server.http.errors import INVALID, ApiError, error_of, unsupported
from app.server.http.shapes import optional
from app.server.http.streams import DONE, EventStream, event, gone
from app.server.openai.bodies import DRAWS, FORMAT, STREAM_OPTIONS, GeneratingBody
from app.server.openai.chat import StreamOptions
from app.server.openai.logprobs import TextLogprobs, TokenTexts, text_logprobs
from app.server.openai.shapes import Completion, CompletionChoice, CompletionUsage
from app.server.openai.wire import FINISHED
from engine.base.errors import SettingsError
from engine.base.events import Listener
from engine.inference.continuation import Continuation, require_tokens
from engine.pml import PromptError
from engine.prompt.window import TooLongError

MOST_PROMPTS = 256


class CompletionBody(GeneratingBody):
    """A Completions request."""

    prompt: str | Many[str] | Many[Whole] | Many[Many[Whole]] = Field(
        description="The text to continue, without the chat template, or its tokens; or a list of several."
    )
    max_tokens: Whole | None = setting("max_new_tokens")
    n: Whole | None = optional(f"For each prompt: {DRAWS}", 1)
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
    head: dict[str, Any],
) -> Completion | EventStream:
    """Continues prompts one after the other.

    Raises:
        ApiError: the request cannot be answered in this way, or the server is full or not ready.
        PromptCacheError: a prompt is invalid.
    """
    if asked.over is not None:
        raise unsupported("prompt_cache", "prompts that are echoed, or tokens, use no schema.")
    noted = request.state.noted
    noted.asks(body.model)
    service.require_model(body.model)
    work = _Work(service, asked, prompts, body)
    if not body.stream:
        choices, usage = await service.work(work.run, gone(request), noted)
        noted.done(usage, choices[-1].finish_reason or "")
        return Completion(**head, choices=choices, usage=CompletionUsage.of(usage))
    pieces, loop = asyncio.Queue[CompletionChoice | None](), asyncio.get_running_loop()
    work.said = lambda piece: loop.call_soon_threadsafe(pieces.put_nowait, piece)
    working = asyncio.ensure_future(service.work(work.run, gone(request), noted))
    working.add_done_callback(lambda _: pieces.put_nowait(None))
    first = await pieces.get()
    if first is None:
        await working  # raises the error of the first prompt

    async def chunks() -> AsyncIterator[bytes]:
        usage = bool(body.stream_options and body.stream_options.include_usage)
        none, piece = None if usage else MISSING, first
        try:
            while piece is not None:
                yield event(Completion(**head, choices=[piece], usage=none))
                piece = await pieces.get()
            choices, counts = await working
            noted.done(counts, choices[-1].finish_reason or "")
            if usage:
                yield event(Completion(**head, choices=[], usage=CompletionUsage.of(counts)))
            yield DONE
        except Exception as error:
            yield event(error_of(error, request.state.request_id).in_openai())

    def close() -> None:
        working.cancel()
        working.add_done_callback(lambda done: done.cancelled() or done.exception())

    return EventStream(chunks(), close)


class _Work:
    """The computation of all choices of a request.

    Attributes:
        said: receives the pieces of choices on the working thread.
    """

    def __init__(
        self, service: Service, asked: Asked, prompts: Sequence[str | list[int]], body: CompletionBody
    ) -> None:
        self._engine, self._files, self._asked = service.engine, service.schemas, asked
        self._prompts, self._body = prompts, body
        self._texts = TokenTexts(self._engine.model.tokenizer)
        self.said: Callable[[CompletionChoice], object] | None = None

    def run(self, listener: Listener) -> tuple[list[CompletionChoice], Usage]:
        """Returns the choices and the usage; raises the errors of all prompts before it computes."""
        choices, usage = list[CompletionChoice](), Usage(0)
        read = [self._tokens(place, prompt) for place, prompt in enumerate(self._prompts)]
        for prompt, tokens in zip(self._prompts, read, strict=True):
            for draw in range(self._asked.draws):
                answer, choice = self._drawn(prompt, tokens, draw, len(choices), listener)
                choices.append(choice)
                usage += Usage(len(tokens), generated=len(answer.token_ids)).drawn(draw)
        return choices, usage

    def _tokens(self, place: int, prompt: str | list[int]) -> Sequence[int]:
        """Returns the tokens of a prompt; raises ApiError if they cannot be continued."""
        asked, answer = self._asked, self._body.max_tokens != 0
        try:
            if isinstance(prompt, list):
                tokens: Sequence[int] = prompt
            else:
                one = prepared(self._engine, replace(asked, text=prompt), self._files)
                tokens = one.tokenized.planned(None).plan.token_ids
            require_tokens(self._engine.model, tokens, answer=answer)
        except (PromptError, SettingsError, TooLongError) as error:
            where = f"prompt[{place}]" if len(self._prompts) > 1 else "prompt"
            raise error_of(error, prompt=where) from error
        return tokens

    def _drawn(
        self, prompt: str | list[int], tokens: Sequence[int], draw: int, number: int, listener: Listener
    ) -> tuple[Continuation, CompletionChoice]:
        """Computes a choice."""
        asked, body = self._asked, self._body
        pieces = _Pieces(self._texts, prompt, body, number)

        def said(piece: Continuation) -> None:
            choice = pieces.next(piece)
            if self.said is not None and (choice.text or choice.logprobs):
                self.said(choice)

        answer = self._engine.continue_tokens(
            tokens,
            replace(asked.settings, seed=(asked.settings.seed + draw) % SEEDS),
            answer=body.max_tokens != 0,
            scored=bool(body.echo) and body.logprobs is not None,
            logprobs=body.logprobs,
            said=said,
            listener=listener,
        )
        if self.said is not None:
            self.said(CompletionChoice(index=number, text="", finish_reason=FINISHED[answer.stopped]))
        whole = _Pieces(self._texts, prompt, body, number).next(answer)
        return answer, whole.model_copy(update={"finish_reason": FINISHED[answer.stopped]})


class _Pieces:
    """Spells a choice in pieces."""

    def __init__(self, texts: TokenTexts, prompt: str | list[int], body: CompletionBody, number: int) -> None:
        self._texts, self._body, self._number = texts, body, number
        self._before = ""
        if body.echo:
            self._before = prompt if isinstance(prompt, str) else texts.joined(prompt)
        self._offset = 0  # of the next piece with log-probabilities

    def next(self, piece: Continuation) -> CompletionChoice:
        """Returns the choice with the next piece."""
        body, before = self._body, self._before if piece.prompt else ""
        logprobs: TextLogprobs | None = None
        scored = (*piece.scores, *piece.logprobs)
        first = piece.prompt[0] if body.echo and piece.prompt else None
        if body.logprobs is not None and (scored or first is not None):
            start = self._offset
            if first is not None and not self._texts.begins(before, first):
                start = -len(self._texts[first])  # the tokenizer added a token before the text
            logprobs = text_logprobs(self._texts, scored, start, first)
            tokens = (
                [one.token for one in scored] if first is None else [first, *(one.token for one in scored)]
            )
            self._offset = start + self._texts.width(tokens)
        return CompletionChoice(index=self._number, text=before + piece.text, logprobs=logprobs)
