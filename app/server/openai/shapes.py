"""JSON Schemas of OpenAI's responses, for the OpenAPI description."""

from __future__ import annotations

from app.server.core.json_schema import (
    ANY,
    COUNT,
    NULL,
    NUMBER,
    OBJECT,
    READ,
    REPORT,
    TEXT,
    WHOLE,
    WRITTEN,
    Shape,
    either,
    event,
    many,
    maybe,
    named,
    one_of,
    record,
    words,
)

_HEAD = {"id": TEXT, "created": words("Seconds since 1970.", WHOLE), "model": TEXT}
_FINISH = one_of("stop", "length", "tool_calls")
_CALL = record(
    "A function call.",
    id=TEXT,
    type=one_of("function"),
    function=record("The function.", name=TEXT, arguments=words("A JSON text.", TEXT)),
)
_CALL_DELTA = record("A complete function call.", index=COUNT, **_CALL["properties"])


def _numbered(kind: str, description: str, **fields: Shape) -> Shape:
    return event(f"response.{kind}", description, sequence_number=COUNT, **fields)


OPENAI: dict[str, Shape] = {
    "Usage": record(
        "The tokens of a request.",
        prompt_tokens=COUNT,
        completion_tokens=COUNT,
        total_tokens=COUNT,
        prompt_tokens_details=record(
            "Cached and stored tokens.", cached_tokens=READ, cache_write_tokens=WRITTEN
        ),
        completion_tokens_details=record("Details of the answer.", reasoning_tokens=one_of(0)),
    ),
    "ChatCompletion": record(
        "The answer to a conversation.",
        ["prompt_cache"],
        **_HEAD,
        object=one_of("chat.completion"),
        choices=many(
            record(
                "The only answer.",
                index=one_of(0),
                message=record(
                    "The assistant's message.",
                    ["reasoning_content", "tool_calls"],
                    role=one_of("assistant"),
                    content=maybe(TEXT),
                    refusal=NULL,
                    reasoning_content=words("The reasoning before the answer.", TEXT),
                    tool_calls=many(_CALL),
                ),
                finish_reason=_FINISH,
                logprobs=NULL,
            )
        ),
        usage=named("Usage"),
        prompt_cache=REPORT,
    ),
    "ChatCompletionChunk": record(
        "A part of a streamed answer.",
        ["usage", "prompt_cache"],
        **_HEAD,
        object=one_of("chat.completion.chunk"),
        choices=many(
            record(
                "New content; the last chunk with a choice has the stop reason.",
                index=one_of(0),
                delta=record(
                    "New content.",
                    ["role", "content", "refusal", "reasoning_content", "tool_calls"],
                    role=one_of("assistant"),
                    content=TEXT,
                    refusal=NULL,
                    reasoning_content=TEXT,
                    tool_calls=many(_CALL_DELTA),
                ),
                finish_reason=maybe(_FINISH),
                logprobs=NULL,
            )
        ),
        usage=words(
            "With `stream_options.include_usage`: null except in the last chunk.", maybe(named("Usage"))
        ),
        prompt_cache=REPORT,
    ),
    "Completion": record(
        "The continuation of a text, or a part of it in a stream.",
        ["usage", "prompt_cache"],
        **_HEAD,
        object=one_of("text_completion"),
        choices=many(
            record(
                "The only continuation.",
                index=one_of(0),
                text=TEXT,
                finish_reason=maybe(one_of("stop", "length")),
                logprobs=NULL,
            )
        ),
        usage=maybe(named("Usage")),
        prompt_cache=REPORT,
    ),
}

_STATUS = one_of("in_progress", "completed", "incomplete", "failed")
_ITEM_STATUS = one_of("in_progress", "completed", "incomplete")
_PLACE = {"item_id": TEXT, "output_index": COUNT, "content_index": COUNT}
_ITEM = either(named("OutputMessage"), named("FunctionCall"), named("Reasoning"))

RESPONSES: dict[str, Shape] = {
    "InputTokens": record(
        "The tokens of an input.", object=one_of("response.input_tokens"), input_tokens=COUNT
    ),
    "OutputText": record(
        "A part of a message.",
        type=one_of("output_text"),
        text=TEXT,
        annotations=many(ANY),
        logprobs=many(ANY),
    ),
    "OutputMessage": record(
        "The assistant's message.",
        type=one_of("message"),
        id=TEXT,
        role=one_of("assistant"),
        status=_ITEM_STATUS,
        content=many(named("OutputText")),
    ),
    "FunctionCall": record(
        "A function call.",
        type=one_of("function_call"),
        id=TEXT,
        call_id=TEXT,
        name=TEXT,
        arguments=words("A JSON text.", TEXT),
        status=_ITEM_STATUS,
    ),
    "Reasoning": record(
        "The reasoning before the answer.",
        type=one_of("reasoning"),
        id=TEXT,
        summary=many(ANY),
        content=many(record("A text.", type=one_of("reasoning_text"), text=TEXT)),
        status=_ITEM_STATUS,
    ),
    "Response": record(
        "The answer to an input. Responses are not stored.",
        ["prompt_cache_diagnostics", "prompt_cache"],
        id=TEXT,
        object=one_of("response"),
        created_at=WHOLE,
        completed_at=maybe(WHOLE),
        model=TEXT,
        status=_STATUS,
        output=many(_ITEM),
        usage=maybe(
            record(
                "The tokens of the request.",
                input_tokens=COUNT,
                input_tokens_details=record(
                    "Cached and stored tokens.",
                    ["cache_write_tokens_details"],
                    cached_tokens=READ,
                    cache_write_tokens=WRITTEN,
                    cache_write_tokens_details=words("Written tokens by time to live.", OBJECT),
                ),
                output_tokens=COUNT,
                output_tokens_details=record("Details of the answer.", reasoning_tokens=one_of(0)),
                total_tokens=COUNT,
            )
        ),
        error=maybe(record("The error.", code=TEXT, message=TEXT)),
        incomplete_details=maybe(record("Why the answer is incomplete.", reason=one_of("max_output_tokens"))),
        instructions=maybe(TEXT),
        max_output_tokens=maybe(WHOLE),
        temperature=NUMBER,
        top_p=NUMBER,
        tools=many(OBJECT),
        tool_choice=ANY,
        parallel_tool_calls=ANY,
        prompt_cache_options=ANY,
        prompt_cache_diagnostics=ANY,
        prompt_cache=REPORT,
        background=one_of(False),
        previous_response_id=NULL,
        service_tier=one_of("default"),
        store=one_of(False),
        truncation=one_of("disabled"),
        top_logprobs=one_of(0),
        **dict.fromkeys(
            (
                "metadata",
                "reasoning",
                "text",
                "max_tool_calls",
                "prompt_cache_key",
                "prompt_cache_retention",
                "safety_identifier",
                "user",
            ),
            words("The value of the request.", ANY),
        ),
    ),
    "ResponseEvent": words(
        "An event of a streamed response.",
        either(
            *(
                _numbered(kind, f"The response so far: {kind}.", response=named("Response"))
                for kind in ("created", "in_progress", "completed", "incomplete", "failed")
            ),
            *(
                _numbered(
                    f"output_item.{kind}", f"An item of the output: {kind}.", output_index=COUNT, item=_ITEM
                )
                for kind in ("added", "done")
            ),
            *(
                _numbered(
                    f"content_part.{kind}",
                    f"A part of a message: {kind}.",
                    **_PLACE,
                    part=named("OutputText"),
                )
                for kind in ("added", "done")
            ),
            _numbered("output_text.delta", "New text.", **_PLACE, delta=TEXT, logprobs=many(ANY)),
            _numbered("output_text.done", "The complete text.", **_PLACE, text=TEXT, logprobs=many(ANY)),
            _numbered(
                "function_call_arguments.delta",
                "New arguments of a call.",
                item_id=TEXT,
                output_index=COUNT,
                delta=TEXT,
            ),
            _numbered(
                "function_call_arguments.done",
                "The complete arguments of a call.",
                item_id=TEXT,
                output_index=COUNT,
                name=TEXT,
                arguments=TEXT,
            ),
            event(
                "error",
                "The error that ended the stream, after response.failed.",
                code=maybe(TEXT),
                message=TEXT,
                param=maybe(TEXT),
                error=named("OpenAIErrorDetails"),
                sequence_number=COUNT,
            ),
        ),
    ),
}
