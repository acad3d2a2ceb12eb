"""Descriptions and ranges of request fields for the OpenAPI description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.server.core.request import settings_in

_SETTINGS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "repetition_penalty": "repetition_penalty",
    "max_tokens": "max_new_tokens",
    "max_completion_tokens": "max_new_tokens",
    "max_output_tokens": "max_new_tokens",
}
"""Fields that are engine settings, with the names of the settings."""

_ANTHROPIC = frozenset({"MessagesBody", "CountBody"})
_USUAL = "Default: the model's generation_config.json, else the API's default."

WORDS: Mapping[str, str] = {
    "model": "The name of the model, or an alias; `GET /v1/models` lists them.",
    "messages": "The conversation: text turns in order, with tool calls and their results.",
    "input": "A text, as one user turn, or items: messages, function calls and their results.",
    "instructions": "A system turn before the input.",
    "system": "The system text, or its blocks.",
    "stream": "Whether to stream the answer as server-sent events.",
    "stream_options": "Options of a stream; rejected without `stream`.",
    "include_usage": "Whether to add a final event with the usage of the request.",
    "seed": "Sampling seed, a 64-bit whole number. Default: random.",
    "stop": "One to four texts. The answer ends before the first occurrence.",
    "stop_sequences": "Up to 64 texts. The answer ends before the first occurrence.",
    "tools": "Functions that the model may call, formatted by its chat template.",
    "tool_choice": "`auto`, or `none` to omit the tools. Forced calls are rejected.",
    "parallel_tool_calls": "`false` is rejected if there are tools: the model may call several at once.",
    "chat_template_kwargs": "Variables of the model's chat template, such as `enable_thinking`.",
    "include": "`prompt_cache` adds the cache report to the response; OpenAI's values are ignored.",
    "cache_salt": "Requests share cached segments only within the same salt.",
    "cache_control": "Stores the prefix up to here; on a request, up to its last block.",
    "prompt_cache_options": "Cache options.",
    "prompt_cache_retention": "`24h` stores the whole prompt for a day.",
    "prompt_cache_breakpoint": "Stores the prefix up to the end of this part.",
    "prompt_cache": "A schema that precedes the messages.",
    "module": 'A name that makes this block a reusable module; or {"name", "sees"}.',
    "diagnostics": "Requests an explanation of a cache miss.",
    "previous_message_id": "The id of the earlier answer.",
    "thinking": "`adaptive` or `disabled`; ignored, because the model's chat template decides.",
    "metadata": "Ignored, but repeated in the response.",
    "text": "The text.",
    "refusal": "The assistant's refusal.",
    "type": "The kind of object.",
    "role": "The role.",
    "content": "A text, or blocks of text.",
    "tool_calls": "The assistant's function calls.",
    "tool_call_id": "The call of this result, in a message with the role `tool`.",
    "tool_use_id": "The call of this result, in a block of type `tool_result`.",
    "id": "The id of the call.",
    "call_id": "The id of the call; its result has the same.",
    "name": "The name of the function.",
    "arguments": "The arguments, as a JSON text.",
    "output": "The result: a text, or parts of text.",
    "mode": "`explicit` stores marked prefixes only; `implicit` the whole prompt, too.",
    "ttl": "Minimum time to live; each read restarts it.",
    "prewarm": "Whether to compute and store the prompt only, without an answer.",
    "comparison_response_id": "Ignored, because responses are not stored.",
    "schema": "The name of a stored schema, or PML.",
    "scope": "What modules see while they are encoded.",
    "expires_at": "Expiry time: ISO 8601 with a zone, or seconds since 1970. null removes it.",
    "pinned": "Whether its segments are never evicted.",
    "pml": "The schema, in PML, with the name of the path.",
    "encode": "Whether to compute missing segments before the response.",
    "dialect": "The vendor of this request body. Default: from the headers.",
    "reasoning": "`effort` other than `none` is rejected; `summary` is ignored.",
}
"""Descriptions by field name."""

OWN_WORDS: Mapping[str, str] = {
    "CompletionBody.prompt": "The text to continue, without the chat template.",
    "PromptCache.prompt": "The prompt, in PML. Default: only the fixed text of the schema.",
    "ResponsesBody.text": '`format` other than {"type": "text"} is rejected; `verbosity` is ignored.',
    "InputTokensBody.model": "The name of the model. Default: the served model.",
    "InputTokensBody.text": 'As for a response: `format` other than {"type": "text"} is rejected.',
    "ContentBlock.input": "The arguments, in a block of type `tool_use`.",
    "ContentBlock.name": "The name of the tool, in a block of type `tool_use`.",
    "ContentBlock.content": "The result, in a `tool_result`, or the texts of a `search_result`.",
    "ContentBlock.source": "The texts of a `document`, or the origin of a `search_result`.",
    "ContentBlock.title": "The title of a `document` or `search_result`, placed before its text.",
    "ContentBlock.context": "Metadata of a `document`, placed before its text.",
    "ContentBlock.citations": 'On documents, `{"enabled": true}` is rejected; ignored otherwise.',
    "MessagesBody.max_tokens": "Maximum answer length in tokens; 0 only computes the prompt.",
    "TermsBody.ttl": 'Time to live: seconds, or "300s", "5m", "1h", "2d". null removes it.',
    "PutBody.ttl": 'Time to live: seconds, or "300s", "5m", "1h", "2d". null removes it.',
}
"""Descriptions of exceptions, by schema name and field name."""


def described(name: str, properties: dict[str, Any]) -> None:
    """Adds descriptions and ranges to the fields of a body, in place."""
    known = settings_in("anthropic" if name in _ANTHROPIC else "openai")
    for field, shape in properties.items():
        key = f"{name}.{field}"
        shape.pop("title", None)
        if key in OWN_WORDS:
            shape["description"] = OWN_WORDS[key]
        elif field in _SETTINGS:
            setting = known[_SETTINGS[field]]
            shape["description"] = f"{setting.sentence} It must be {setting.range}. {_USUAL}"
            for variant in shape.get("anyOf", [shape]):
                if variant.get("type") in ("integer", "number"):
                    lowest = "exclusiveMinimum" if setting.above else "minimum"
                    bounds = {lowest: setting.least, "maximum": setting.most}
                    variant.update({bound: value for bound, value in bounds.items() if value is not None})
        elif field in WORDS:
            shape["description"] = WORDS[field]
