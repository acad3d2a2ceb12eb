"""JSON Schemas of Anthropic's responses, for the OpenAPI description."""

from __future__ import annotations

from app.server.core.json_schema import (
    COUNT,
    NULL,
    OBJECT,
    READ,
    REPORT,
    TEXT,
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

_BLOCK = either(
    record("A text.", type=one_of("text"), text=TEXT),
    record("The reasoning before the answer.", type=one_of("thinking"), thinking=TEXT, signature=one_of("")),
    record("A tool call.", type=one_of("tool_use"), id=TEXT, name=TEXT, input=OBJECT),
)
_ENDING = {
    "stop_reason": one_of(
        "end_turn", "stop_sequence", "max_tokens", "tool_use", "model_context_window_exceeded"
    ),
    "stop_sequence": maybe(TEXT),
}
_DIAGNOSIS = record(
    "The difference from the earlier request.",
    cache_miss_reason=maybe(
        record("The reason.", ["cache_missed_input_tokens"], type=TEXT, cache_missed_input_tokens=COUNT)
    ),
)


def _message(description: str, **fields: Shape) -> Shape:
    return record(
        description,
        ["diagnostics", "prompt_cache"],
        id=TEXT,
        type=one_of("message"),
        role=one_of("assistant"),
        model=TEXT,
        content=many(_BLOCK),
        usage=named("MessageUsage"),
        diagnostics=_DIAGNOSIS,
        prompt_cache=REPORT,
        **fields,
    )


ANTHROPIC: dict[str, Shape] = {
    "MessageUsage": record(
        "The tokens of a request.",
        input_tokens=words("Prompt tokens neither read nor written.", COUNT),
        cache_creation_input_tokens=WRITTEN,
        cache_read_input_tokens=READ,
        cache_creation=record(
            "Written tokens by time to live.",
            ephemeral_5m_input_tokens=COUNT,
            ephemeral_1h_input_tokens=COUNT,
        ),
        output_tokens=COUNT,
    ),
    "Message": _message("The answer to a conversation.", **_ENDING),
    "MessageEvent": words(
        "An event of a streamed message.",
        either(
            event(
                "message_start",
                "The message, before its content.",
                message=_message("The message.", stop_reason=NULL, stop_sequence=NULL),
            ),
            event("ping", "Nothing."),
            event("content_block_start", "The start of a block.", index=COUNT, content_block=_BLOCK),
            event(
                "content_block_delta",
                "New content of a block.",
                index=COUNT,
                delta=either(
                    record("New text.", type=one_of("text_delta"), text=TEXT),
                    record("New reasoning.", type=one_of("thinking_delta"), thinking=TEXT),
                    record("New arguments.", type=one_of("input_json_delta"), partial_json=TEXT),
                ),
            ),
            event("content_block_stop", "The end of a block.", index=COUNT),
            record(
                "The stop reason and the usage.",
                ["prompt_cache"],
                type=one_of("message_delta"),
                delta=record("The reason.", **_ENDING),
                usage=named("MessageUsage"),
                prompt_cache=REPORT,
            ),
            event("message_stop", "The end."),
            named("AnthropicError"),
        ),
    ),
    "TokenCount": record("The tokens of a prompt.", input_tokens=COUNT),
}
