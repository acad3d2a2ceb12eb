"""Ollama's endpoints that answer: /api/chat, /api/generate and /api/embed."""

from __future__ import annotations

import datetime
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Depends, Request
from pydantic import MISSING

from app.server.core.answer_formats import format_among
from app.server.core.limits import few_messages
from app.server.core.request import SAMPLING, Asked, Block, Message, scoped, seed_of, settings_from
from app.server.core.running import Running, Thought
from app.server.core.service import Service
from app.server.core.tool_use import Said, call_of, reasoning_of, tools_of, with_variables
from app.server.core.usage import Usage
from app.server.http.bodies import BodyRoute
from app.server.http.errors import INVALID, ApiError, error_of, unsupported
from app.server.http.openapi_responses import errors, lines_of
from app.server.http.streams import LineStream, gone, line
from app.server.ollama import shapes
from app.server.ollama.shapes import AnsweredBody, OllamaChatBody, OllamaEmbedBody, OllamaGenerateBody
from app.server.openai.chat import TURNS, caller_of, logprobs_of, report_if_wanted
from app.server.openai.embeddings import EmbeddingBody, embedded
from app.server.openai.logprobs import require_alternatives
from app.server.openai.wire import FINISHED, Conversation, refuse_what_is_not_built
from engine.base.events import Answer, Delta, Finished, TokenLogprob
from engine.pml.tree.tree import TurnName
from engine.prompt.template.thinking import OFF

STREAMED = "Lines of JSON, the last one with `done`; without `stream`, one object."
LATEST = ":latest"  # the usual tag, which clients add to a name
_ELSEWHERE = "put it into options."
REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "suffix": (("",), "text is continued at its end only."),
    "template": (("",), "the model's own chat template is used; raw omits it."),
    "context": (([],), "send the conversation to /api/chat, which reads its beginning from the cache."),
    "images": (([],), "the model reads text."),
    **dict.fromkeys(("width", "height", "steps"), ((0,), "the model writes text.")),
    **dict.fromkeys(
        (*SAMPLING, "seed", "stop", "repeat_penalty", "num_predict", "num_ctx"), ((), _ELSEWHERE)
    ),
    **dict.fromkeys(("max_tokens", "max_completion_tokens"), ((), "use num_predict of options.")),
}
OPTIONS_REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "repeat_last_n": ((-1,), "the penalty covers the whole prompt and answer; send -1."),
    "repetition_penalty": ((1,), "it is called repeat_penalty here."),
    "penalize_newline": ((True,), "line breaks are penalized as other tokens are."),
    **dict.fromkeys(("logits_all", "vocab_only", "embedding_only"), ((False,), "it is not implemented.")),
}


def routes(service: Service) -> APIRouter:
    """Returns the endpoints."""
    router = APIRouter(route_class=BodyRoute, strict_content_type=False)

    async def answered(
        body: AnsweredBody, asked: Asked | None, request: Request, spell: Callable[[Said], Any]
    ) -> Any:
        """Answers; `spell` returns a piece, without its figures. None loads the model only."""
        began = time.perf_counter()
        service.require_model(body.model.removesuffix(LATEST))
        if asked is None:
            return spell(Said(""))(**_head(body), done=True, done_reason="load")
        request.state.noted.asks(body.model)
        running = await service.begin(asked, request.state.noted, gone(request))
        telling = _Telling(body, running, spell, began)
        if body.stream is not False:
            return LineStream(telling.lines(request.state.request_id), running.close)
        try:
            answer = await running.answer(gone(request))
        finally:
            running.close()
        return telling.ended(answer, await running.parts(answer), answer.logprobs)

    @router.post(
        "/api/chat",
        dependencies=[Depends(few_messages(lambda: service.engine, "messages"))],
        response_model=shapes.OllamaChat,
        response_description=STREAMED,
        responses=lines_of(shapes.OllamaChat) | errors("ollama"),
    )
    async def chat(body: OllamaChatBody, request: Request) -> shapes.OllamaChat | LineStream:
        """Answers a conversation."""
        _refuse(body, service)
        conversation, tools = _conversation(body), tools_of(body.tools or [])
        asked = replace(
            _asked(body, service, request),
            messages=tuple(conversation.messages),
            tools=with_variables(tools, _variables(body, service)),
        )
        empty = not conversation.messages and body.prompt_cache is None
        found: shapes.OllamaChat | LineStream
        found = await answered(body, None if empty else asked, request, _chat)
        return found

    @router.post(
        "/api/generate",
        response_model=shapes.OllamaGenerated,
        response_description=STREAMED,
        responses=lines_of(shapes.OllamaGenerated) | errors("ollama"),
    )
    async def generate(body: OllamaGenerateBody, request: Request) -> shapes.OllamaGenerated | LineStream:
        """Answers a prompt."""
        _refuse(body, service)
        asked = replace(_asked(body, service, request), field="prompt")
        if body.raw:
            if body.system or body.chat_template_kwargs:
                name = "system" if body.system else "chat_template_kwargs"
                raise ApiError(INVALID, "A raw prompt has no chat template. Put it into the prompt.", name)
            asked = replace(asked, text=body.prompt or "")
        else:
            turns: list[tuple[TurnName, str | None]] = [("system", body.system), ("user", body.prompt)]
            messages = [Message(role, (Block(text),)) for role, text in turns if text]
            asked = replace(
                asked,
                messages=tuple(messages),
                tools=with_variables(asked.tools, _variables(body, service)),
            )
        empty = not body.prompt and body.prompt_cache is None
        found: shapes.OllamaGenerated | LineStream
        found = await answered(body, None if empty else asked, request, _generated)
        return found

    @router.post("/api/embed", responses=errors("ollama"))
    async def embed(body: OllamaEmbedBody, request: Request) -> shapes.OllamaEmbeddings:
        """Embeds texts."""
        began, name = time.perf_counter(), body.model.removesuffix(LATEST)
        same = EmbeddingBody(model=name, input=body.input, dimensions=body.dimensions)
        vectors, usage = await embedded(service, same, request)
        took = time.perf_counter() - began
        return shapes.OllamaEmbeddings(
            model=body.model,
            embeddings=vectors.tolist(),
            total_duration=int(took * 1e9),
            prompt_eval_count=usage.prompt,
        )

    return router


def _refuse(body: AnsweredBody, service: Service) -> None:
    """Rejects unsupported fields and options with an ApiError."""
    refuse_what_is_not_built(body, service.defaults, REFUSED)
    if body.options is None:
        return
    refuse_what_is_not_built(body.options, service.defaults, OPTIONS_REFUSED, "options.")
    length = service.engine.model.context_length
    if (body.options.num_ctx or 0) > length:
        words = f"the context length is {length}, and it is always used."
        raise unsupported("options.num_ctx", words)


def _asked(body: AnsweredBody, service: Service, request: Request) -> Asked:
    """Converts a request body without its prompt; raises ApiError if a field is invalid."""
    caller, options = caller_of(service, request, body.cache_salt), body.options or shapes.OllamaOptions()
    require_alternatives(body.top_logprobs, "top_logprobs")
    if body.top_logprobs and not body.logprobs:
        raise ApiError(INVALID, "It requires logprobs to be true.", "top_logprobs")
    names = {name: name for name in SAMPLING} | {"repetition_penalty": "repeat_penalty"}
    longest, stop = options.num_predict, options.stop
    values: dict[str, tuple[str, Any]] = {
        **{name: (f"options.{own}", getattr(options, own)) for name, own in names.items()},
        "max_new_tokens": ("options.num_predict", None if (longest or 0) < 0 else longest),
        "seed": ("options.seed", seed_of(options.seed)),
        "stop": ("options.stop", [stop] if isinstance(stop, str) else stop or None),
        "grammar": format_among({"format": body.format}, ("format", None)),
    }
    over = None if body.prompt_cache is None else body.prompt_cache.over(caller.owner)
    return Asked(
        body.model.removesuffix(LATEST),
        scoped(settings_from(values, service.defaults, "ollama"), over),
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        salt=caller.salt,
        report=caller.report,
        over=over,
    )


def _variables(body: OllamaChatBody | OllamaGenerateBody, service: Service) -> dict[str, Any]:
    """Returns the chat template variables of `think` and others; raises ApiError if one has no effect."""
    thinking, think = service.defaults.thinking, body.think
    if isinstance(think, bool):
        think = None if think and thinking and not thinking.switch else ("high" if think else OFF)
    return {**reasoning_of(think, thinking, "think"), **(body.chat_template_kwargs or {})}


def _conversation(body: OllamaChatBody) -> Conversation:
    """Reads the messages; raises ApiError if one is invalid."""
    conversation = Conversation(TURNS)
    for number, message in enumerate(body.messages or []):
        where, calls = f"messages[{number}]", []
        if message.images:
            raise unsupported(f"{where}.images", "the model reads text.")
        for place, call in enumerate(message.tool_calls or []):
            function, at = call.get("function"), f"{where}.tool_calls[{place}].function"
            if not isinstance(function, dict):
                raise ApiError(INVALID, "It must be an object with a name and arguments.", at)
            calls.append(call_of(function.get("name"), function.get("arguments"), None, at))
        conversation.read(message.role, message.content or "", where, calls=tuple(calls))
        if message.tool_name:
            conversation.messages[-1] = replace(conversation.messages[-1], name=message.tool_name)
    return conversation


def _chat(said: Said) -> partial[shapes.OllamaChat]:
    calls = [
        shapes.ToolCall(function=shapes.CalledFunction(name=call.name, arguments={**call.arguments}))
        for call in said.calls
    ]
    message = shapes.AnswerMessage(
        content=said.text, thinking=said.thought or MISSING, tool_calls=calls or MISSING
    )
    return partial(shapes.OllamaChat, message=message)


def _generated(said: Said) -> partial[shapes.OllamaGenerated]:
    return partial(shapes.OllamaGenerated, response=said.text, thinking=said.thought or MISSING)


def _head(body: AnsweredBody) -> dict[str, Any]:
    """The fields of every piece."""
    return {"model": body.model, "created_at": stamp(time.time())}


def stamp(at: float) -> str:
    """Returns a time, in seconds since 1970, as Ollama writes it."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat().replace("+00:00", "Z")


class _Telling:
    """Spells an answer."""

    def __init__(
        self, body: AnsweredBody, running: Running, spell: Callable[[Said], Any], began: float
    ) -> None:
        self._body, self._running, self._spell, self._began = body, running, spell, began
        self._spelled = logprobs_of(running)

    def ended(self, answer: Answer, said: Said, logprobs: Iterable[TokenLogprob] = ()) -> Any:
        """Returns the last piece, with the figures."""
        usage, total = Usage.of(answer), int((time.perf_counter() - self._began) * 1e9)
        first = min(total, int(answer.ttft_ms * 1e6))
        rest = int(answer.tpot_ms * max(0, usage.generated - 1) * 1e6)
        return self._piece(
            said,
            logprobs,
            done=True,
            done_reason=FINISHED[answer.stopped],
            total_duration=total,
            load_duration=0,
            prompt_eval_count=usage.prompt,
            prompt_eval_duration=first,
            eval_count=usage.generated,
            eval_duration=min(rest, total - first),
            prompt_cache=report_if_wanted(self._running, answer),
        )

    async def lines(self, request_id: str) -> AsyncIterator[bytes]:
        """Yields the lines of a stream."""
        at_end = bool(self._running.asked.tools)  # calls can be parsed only at the end
        try:
            async for step in self._running.events():
                if isinstance(step, Delta) and (step.text or step.logprobs) and not at_end:
                    yield line(self._piece(Said(step.text), step.logprobs, done=False))
                elif isinstance(step, Thought):
                    yield line(self._piece(Said("", step.text), step.logprobs, done=False))
                elif isinstance(step, Finished):
                    if at_end:
                        parts = await self._running.parts(step.answer)
                        yield line(self._piece(parts, step.answer.logprobs, done=False))
                    yield line(self.ended(step.answer, Said("")))
        except Exception as error:
            yield line(error_of(error, request_id).in_ollama())

    def _piece(self, said: Said, logprobs: Iterable[TokenLogprob], **figures: Any) -> Any:
        scored = self._spelled(logprobs)
        content = (scored.content or MISSING) if scored is not None else MISSING
        return self._spell(said)(**_head(self._body), logprobs=content, **figures)
