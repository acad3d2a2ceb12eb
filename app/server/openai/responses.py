"""OpenAI's Responses API."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter, Depends, Request
from pydantic import MISSING, field_validator
from starlette.exceptions import HTTPException

from app.server.core.answer_formats import format_of
from app.server.core.limits import few_messages
from app.server.core.request import Asked, Caller, Defaults, scoped, setting
from app.server.core.running import Running, Thought
from app.server.core.service import Service
from app.server.core.tool_use import Said, reasoning_of, with_variables
from app.server.core.usage import Usage
from app.server.http.bodies import BodyRoute, Many, Whole
from app.server.http.errors import FULL, INVALID, ApiError, error_of, unsupported
from app.server.http.openapi_responses import errors, stream_of
from app.server.http.shapes import optional
from app.server.http.streams import EventStream, event, gone
from app.server.http.truncate import cut
from app.server.openai import response_shapes as shapes
from app.server.openai.bodies import EFFORT, FORMAT, STREAM_OPTIONS, ConversingBody
from app.server.openai.chat import caller_of, report_if_wanted
from app.server.openai.includes import includes_report
from app.server.openai.response_items import (
    TURNS,
    Item,
    functions_of,
    message_item,
    output_of,
    read_items,
)
from app.server.openai.stored_responses import (
    DeletedResponse,
    InputItems,
    StoredResponse,
    StoredResponses,
)
from app.server.openai.wire import (
    Conversation,
    finish_reason,
    refuse_what_is_not_built,
    require_stream,
    settings_of_body,
)
from app.server.recent.reasons import changed_part, shared_tokens
from engine.base.events import Answer, Delta, Finished, FirstToken

_STORED = "the server stores no conversations; send all of it as input."
# Unsupported fields that would change the answer, with their neutral values; adds to the common ones.
REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "conversation": ((), _STORED),
    "prompt": ((), "the server stores no prompts; send instructions and input."),
    "background": ((False,), "the server stores no answers; stream them."),
    "truncation": (("disabled",), "an oversized prompt is rejected, not truncated."),
    "context_management": (([],), "the server does not edit conversations."),
    "moderation": ((), "the server contacts no other service."),
}
ECHOED = (
    *("metadata", "parallel_tool_calls", "tool_choice", "instructions", "max_output_tokens", "user"),
    *("max_tool_calls", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"),
)
"""Request fields that a response repeats."""

STREAMED = "The complete answer; with `stream`, events `event: TYPE`, `data: …`."
COUNTING = "input_tokens"  # a path segment below /v1/responses that is not a response id


class ResponsesBody(ConversingBody):
    """A Responses API request."""

    input: str | Many[Item] | None = optional("A user text, or items: messages, function calls and results.")
    instructions: str | None = optional("A system turn before the input.")
    previous_response_id: str | None = optional(
        "Continues a stored response: its input and output come before the input, its instructions do not."
    )
    store: bool | None = optional("`false` stores no response. Others are, with --store-responses.")
    max_output_tokens: Whole | None = setting("max_new_tokens")
    stream_options: dict[str, Any] | None = optional(STREAM_OPTIONS)
    text: dict[str, Any] | None = optional(f"`format`: {FORMAT} `verbosity` is ignored.")
    reasoning: dict[str, Any] | None = optional(f"`effort`: {EFFORT} `summary` is ignored.")
    metadata: dict[str, Any] | None = optional("Ignored, but repeated in the response.")


class InputTokensBody(ResponsesBody):
    """A request to count input tokens; the model is optional."""

    model: str = optional("The name of the model. Default: the served model.", "")

    @field_validator("model", mode="before")
    @classmethod
    def _or_the_served_one(cls, given: Any) -> Any:
        return "" if given is None else given


def asked_of(body: ResponsesBody, defaults: Defaults, caller: Caller, earlier: Sequence[Item] = ()) -> Asked:
    """Converts a request body; raises ApiError if a field is invalid or not supported.

    Args:
        body: the body.
        defaults: the settings of requests without their own.
        caller: the client.
        earlier: the items before the input.
    """
    refuse_what_is_not_built(body, defaults, REFUSED)
    require_stream(body)
    _refuse_parts_of_fields(body)
    tools = functions_of(body.offered())
    conversation = Conversation(TURNS)
    if body.instructions:
        conversation.read("system", body.instructions, "instructions")
    read_items(earlier, conversation)
    if isinstance(body.input, str):
        conversation.read("user", body.input, "input")
    read_items(body.input if isinstance(body.input, list) else (), conversation)
    if not conversation.messages and body.prompt_cache is None:
        raise ApiError(INVALID, "The input is missing. Send a text or messages as input.", "input")
    form = format_of((body.text or {}).get("format"), "text.format")
    over = None if body.prompt_cache is None else body.prompt_cache.over(caller.owner)
    return Asked(
        body.model,
        scoped(settings_of_body(body, ("max_output_tokens", body.max_output_tokens), defaults, form), over),
        tuple(conversation.messages),
        tools=with_variables(
            tools,
            {
                **reasoning_of((body.reasoning or {}).get("effort"), defaults.thinking, "reasoning.effort"),
                **(body.chat_template_kwargs or {}),
            },
        ),
        forced=body.forced(tools),
        strict=body.strict,
        marks=conversation.marks(body.prompt_cache_options, body.prompt_cache_retention),
        warm=body.warms,
        salt=caller.salt,
        report=includes_report(body.include) or caller.report,
        over=over,
        field="input",
        previous=body.compared,
    )


def _refuse_parts_of_fields(body: ResponsesBody) -> None:
    """Rejects unsupported parts of fields."""
    if not isinstance((body.text or {}).get("format"), dict | None):
        raise ApiError(INVALID, "It must be an object.", "text.format")
    if (body.reasoning or {}).get("mode") not in (None, "standard"):
        raise unsupported("reasoning.mode", "the model's chat template decides how it thinks.")
    for name, value in (body.metadata or {}).items():
        if not isinstance(value, str):
            raise ApiError(INVALID, "It must be a text.", f"metadata.{cut(name)}")


def routes(service: Service) -> APIRouter:
    """Returns the endpoints."""
    router = APIRouter(route_class=BodyRoute, strict_content_type=False)
    stored = StoredResponses(service.responses)

    def owner(request: Request) -> str:
        return service.owner(request.state.client)

    def earlier(body: ResponsesBody, request: Request) -> tuple[Item, ...]:
        """The items before the input of a request."""
        name = body.previous_response_id
        if name is None:
            return ()
        return stored.find(name, owner(request), "previous_response_id").conversation()

    @router.post(
        "/v1/responses",
        dependencies=[Depends(few_messages(lambda: service.engine, "input"))],
        response_model=shapes.Response,
        response_description=STREAMED,
        responses=stream_of(shapes.ResponseEvent) | errors("openai"),
    )
    async def create_response(body: ResponsesBody, request: Request) -> shapes.Response | EventStream:
        """Creates a response."""
        request_id = request.state.request_id
        before, own = earlier(body, request), _items(body)
        asked = asked_of(body, service.defaults, caller_of(service, request, body.cache_salt), before)
        running = await service.begin(asked, request.state.noted, gone(request))
        head = _head(body, asked, stored=stored.most > 0 and body.store is not False)

        def store(response: shapes.Response) -> None:
            if response.store:
                stored.add(owner(request), (*before, *own), own, response)

        items = (f"msg_{secrets.token_hex(12)}", f"rs_{secrets.token_hex(12)}")
        draft = _Draft(head, *items, running, store)
        running.named(draft.head["id"], request_id)
        if body.stream:
            return EventStream(_events(draft, request_id), running.close)
        try:
            answer = await running.answer(gone(request))
        finally:
            running.close()
        return draft.ended(answer, await running.parts(answer))

    @router.post(
        f"/v1/responses/{COUNTING}",
        dependencies=[Depends(few_messages(lambda: service.engine, "input"))],
        responses=errors("openai"),
    )
    async def count_input_tokens(body: InputTokensBody, request: Request) -> shapes.InputTokens:
        """Counts the tokens of an input, as a response reports them."""
        body.model = body.model or service.names()[0]
        caller = caller_of(service, request, body.cache_salt)
        asked = asked_of(body, service.defaults, caller, earlier(body, request))
        tokens = await service.counted(asked, request.state.client, gone(request))
        return shapes.InputTokens(input_tokens=tokens)

    refusals: Any = {"responses": errors("openai", never=(415, 429))}

    def found(response_id: str, request: Request) -> StoredResponse:
        if response_id == COUNTING:
            raise HTTPException(405)
        return stored.find(response_id, owner(request), "response_id")

    @router.get("/v1/responses/{response_id}", **refusals)
    async def get_response(response_id: str, request: Request) -> shapes.Response:
        """Returns a stored response."""
        return found(response_id, request).response

    @router.delete("/v1/responses/{response_id}", **refusals)
    async def delete_response(response_id: str, request: Request) -> DeletedResponse:
        """Deletes a stored response. Later responses that continue it stay whole."""
        stored.remove(found(response_id, request).response.id, owner(request))
        return DeletedResponse(id=response_id)

    @router.get("/v1/responses/{response_id}/input_items", **refusals)
    async def list_input_items(
        response_id: str, request: Request, limit: int = 20, order: str = "desc", after: str | None = None
    ) -> InputItems:
        """Lists the input of a stored response, the latest items first."""
        return found(response_id, request).page(limit, order, after)

    @router.post("/v1/responses/{response_id}/cancel", **refusals)
    async def cancel_response(response_id: str, request: Request) -> shapes.Response:
        """Returns an error, because only background responses can be cancelled."""
        found(response_id, request)
        raise ApiError(INVALID, "The response has ended. Close the connection to cancel one.", "response_id")

    return router


def _items(body: ResponsesBody) -> tuple[Item, ...]:
    """The items of the input."""
    if isinstance(body.input, str):
        return (Item(role="user", content=body.input),)
    return tuple(body.input or ())


def _head(body: ResponsesBody, asked: Asked, *, stored: bool) -> dict[str, Any]:
    """The fields of a response that are known before the answer."""
    fields = body.model_dump(exclude_none=True, include={*ECHOED, "reasoning", "text"})
    if (options := body.prompt_cache_options) is not None:
        compared = options.comparison_response_id
        fields["prompt_cache_options"] = {"mode": options.mode, "ttl": options.ttl}
        if compared is not None:
            fields["prompt_cache_options"]["comparison_response_id"] = compared
    return {
        **fields,
        "store": stored,
        "previous_response_id": body.previous_response_id,
        "id": f"resp_{secrets.token_hex(12)}",
        "created_at": int(time.time()),
        "model": body.model,
        "reasoning": {"effort": None, "summary": None, **fields.get("reasoning", {})},
        "temperature": asked.settings.temperature,
        "text": {"format": {"type": "text"}, **fields.get("text", {})},
        "tools": body.tools or [],
        "top_p": asked.settings.top_p,
    }


def _diagnosis(running: Running) -> dict[str, str | int] | MISSING:
    """Compares a request with the one that it names, in OpenAI's terms."""
    record = running.record
    if record.previous is None:
        return MISSING
    if (earlier := running.compared()) is None:
        return {"type": "comparison_response_not_found"}
    part = changed_part(earlier, record)
    shared = shared_tokens(earlier, record)
    missed = max(0, min(len(earlier.token_ids), len(record.token_ids)) - record.read)
    if part is not None:
        reason = {"model": "model_changed", "tools": "tools_changed"}.get(part, "input_changed")
        counts = {"cache_missed_tokens": missed, "comparison_reusable_tokens": shared}
        return {"type": "cache_miss", "reason": reason, **counts}
    why = running.why()
    return {"type": "cache_hit" if why is not None and why.reason == "new" else "unavailable"}


@dataclass(frozen=True)
class _Draft:
    """A response in progress."""

    head: dict[str, Any]  # the fields known from the start
    item: str  # the id of its message
    reasoning: str  # the id of its reasoning
    running: Running  # the running request
    store: Callable[[shapes.Response], None]

    def ended(self, answer: Answer, said: Said) -> shapes.Response:
        """Returns the final state; without an answer if the request only warms the cache."""
        warm = self.running.asked.warm
        cut = finish_reason(answer) == "length" and not warm
        status: Literal["incomplete", "completed"] = "incomplete" if cut else "completed"
        response = shapes.Response(
            **self.head,
            status=status,
            output=[] if warm else output_of(said, status, self.item, self.reasoning),
            completed_at=None if cut else int(time.time()),
            incomplete_details=shapes.IncompleteDetails() if cut else None,
            usage=shapes.ResponseUsage.of(Usage.of(answer), self.running.kept),
            prompt_cache=report_if_wanted(self.running, answer),
            prompt_cache_diagnostics=_diagnosis(self.running),
        )
        self.store(response)
        return response


class _Teller:
    """Formats a response as numbered events."""

    def __init__(self, draft: _Draft) -> None:
        self._draft, self._numbers = draft, itertools.count()
        self._texts: list[str] | None = None
        self._thoughts: list[str] = []
        self._thinks = False  # whether the reasoning has begun and not ended
        self._place = {"item_id": draft.item, "output_index": 0, "content_index": 0}

    def begun(self) -> Iterator[bytes]:
        response = shapes.Response(**self._draft.head, status="in_progress", output=[])
        for kind in ("created", "in_progress"):
            yield self._told(f"response.{kind}", response=response)

    def thought(self, text: str) -> Iterator[bytes]:
        if not self._thinks:
            self._thinks = True
            yield self._told(
                "response.output_item.added", output_index=0, item=self._reasoning("in_progress")
            )
        self._thoughts.append(text)
        place = {"item_id": self._draft.reasoning, "output_index": 0, "content_index": 0}
        yield self._told("response.reasoning_text.delta", **place, delta=text)

    def _thought_ends(self) -> Iterator[bytes]:
        if self._thinks:
            self._thinks = False
            place = {"item_id": self._draft.reasoning, "output_index": 0, "content_index": 0}
            text = "".join(self._thoughts)
            yield self._told("response.reasoning_text.done", **place, text=text)
            yield self._told("response.output_item.done", output_index=0, item=self._reasoning("completed"))

    def _reasoning(self, status: shapes.ItemStatus) -> shapes.Reasoning:
        content = [shapes.ReasoningText(text="".join(self._thoughts))] if self._thoughts else []
        return shapes.Reasoning(id=self._draft.reasoning, status=status, content=content)

    @property
    def writes(self) -> bool:
        """Whether the message has begun."""
        return self._texts is not None

    def opened(self, number: int = 0) -> Iterator[bytes]:
        yield from self._thought_ends()
        number = number or (1 if self._thoughts else 0)
        self._texts, self._place["output_index"] = [], number
        item = message_item(self._draft.item, "in_progress", None)
        place = {**self._place, "output_index": number}
        yield self._told("response.output_item.added", output_index=number, item=item)
        yield self._told("response.content_part.added", **place, part=shapes.OutputText(text=""))

    def added(self, text: str) -> bytes:
        assert self._texts is not None, "the first token comes before its text"
        self._texts.append(text)
        return self._told("response.output_text.delta", **self._place, delta=text)

    def ended(self, answer: Answer, said: Said) -> Iterator[bytes]:
        response = self._draft.ended(answer, said)
        yield from self._thought_ends()
        for number, item in enumerate(response.output):
            if not (self._thoughts and isinstance(item, shapes.Reasoning)):
                yield from self._item(number, item)
        yield self._told(f"response.{response.status}", response=response)

    def _item(self, number: int, item: shapes.OutputItem) -> Iterator[bytes]:
        """Yields the remaining events of an item."""
        match item:
            case shapes.OutputMessage():
                place = {**self._place, "output_index": number}
                (part,) = item.content
                if self._texts is None:
                    yield from self.opened(number)
                    yield self._told("response.output_text.delta", **place, delta=part.text)
                yield self._told("response.output_text.done", **place, text=part.text)
                yield self._told("response.content_part.done", **place, part=part)
            case shapes.OutputFunctionCall():
                call = item.model_copy(update={"status": "in_progress", "arguments": ""})
                yield self._told("response.output_item.added", output_index=number, item=call)
                place, spelled = {"item_id": item.id, "output_index": number}, item.arguments
                kind = "response.function_call_arguments"
                yield self._told(f"{kind}.delta", **place, delta=spelled)
                yield self._told(f"{kind}.done", **place, name=item.name, arguments=spelled)
            case _:
                started = item.model_copy(update={"status": "in_progress"})
                yield self._told("response.output_item.added", output_index=number, item=started)
        yield self._told("response.output_item.done", output_index=number, item=item)

    def failed(self, error: ApiError) -> Iterator[bytes]:
        """Returns the failure event and the `error` object that clients raise."""
        fields = error.in_openai().error
        code = "server_error" if error.kind.status >= 500 else "invalid_prompt"
        code = "rate_limit_exceeded" if error.kind is FULL else code
        texts = self._texts
        response = shapes.Response(
            **self._draft.head,
            status="failed",
            output=[] if texts is None else [message_item(self._draft.item, "incomplete", "".join(texts))],
            error=shapes.ResponseError(code=code, message=error.message),
        )
        yield self._told("response.failed", response=response)
        yield self._told("error", code=fields.code, message=fields.message, param=fields.param, error=fields)

    def _told(self, kind: str, **fields: Any) -> bytes:
        fields |= {"type": kind, "sequence_number": next(self._numbers)}
        return event(shapes.EVENT.validate_python(fields), kind)


async def _events(draft: _Draft, request_id: str) -> AsyncIterator[bytes]:
    at_end = bool(draft.running.asked.tools)  # calls can be parsed only at the end
    teller, opened = _Teller(draft), b""
    try:
        yield b"".join(teller.begun())
        async for step in draft.running.events():
            if isinstance(step, FirstToken) and not at_end and not draft.running.thinks:
                opened = b"".join(teller.opened())
                if not draft.running.text_follows():
                    yield opened
                    opened = b""
            elif isinstance(step, Thought):
                yield b"".join(teller.thought(step.text))
            elif isinstance(step, Delta) and step.text and not at_end:
                opened = opened if teller.writes else b"".join(teller.opened())
                yield opened + teller.added(step.text)
                opened = b""
            elif isinstance(step, Finished):
                yield b"".join(teller.ended(step.answer, await draft.running.parts(step.answer)))
    except Exception as error:
        yield opened + b"".join(teller.failed(error_of(error, request_id)))
