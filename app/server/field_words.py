"""What each field of a request says, in words and within which bounds, for the description of the server."""

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
"""Fields that are settings of the engine, by its names for them."""

_ANTHROPIC = frozenset({"MessagesBody", "CountBody"})
_USUAL = (
    "What the model's own generation_config.json says holds where it is absent, else the interface's value."
)

WORDS: Mapping[str, str] = {
    "model": "The name of the model, or an alias; `GET /v1/models` lists them.",
    "messages": "The conversation: turns of text, in order, with calls of tools and their results.",
    "input": "A text, which is one turn of the user, or items: messages, calls of tools and their results.",
    "instructions": "A system turn before the input.",
    "system": "The system text, or its blocks.",
    "stream": "Whether the answer comes as server-sent events while it is made.",
    "stream_options": "How an answer is streamed; refused without `stream`.",
    "include_usage": "Whether a last event tells the usage of the whole request.",
    "seed": "Seed of the sampling, a whole number of 64 bits; without one each answer is drawn anew.",
    "stop": "A text, or up to four: the answer ends before the first of them.",
    "stop_sequences": "Up to 64 texts: the answer ends before the first of them.",
    "tools": "Functions that the model may call; written by its own chat template.",
    "tool_choice": "`auto`, or `none` to leave the tools out. A choice that forces a call is refused.",
    "parallel_tool_calls": "`false` is refused beside tools: the model may call several at once.",
    "chat_template_kwargs": "Variables of the model's chat template, such as `enable_thinking`.",
    "include": "`prompt_cache` adds the report of the cache to the answer; OpenAI's own values are let pass.",
    "cache_salt": "Requests share what is computed with those that say the same salt, and with no others.",
    "cache_control": "Has the prefix up to here kept on disk; on a request, up to its last block.",
    "prompt_cache_options": "How the cache is used.",
    "prompt_cache_retention": "`24h` keeps the whole prompt for a day.",
    "prompt_cache_breakpoint": "Has the prefix up to the end of this part kept on disk.",
    "prompt_cache": "A schema whose modules the request reads before its messages.",
    "module": 'A name that makes this block a module, read wherever it stands; or {"name", "sees"}.',
    "diagnostics": "Asks why nothing was read of what an earlier request had left.",
    "previous_message_id": "The id of the earlier answer.",
    "thinking": "`adaptive` or `disabled`, let pass: the model's own template decides whether it thinks.",
    "metadata": "Let pass, and said again in the response.",
    "text": "What is said, as it is.",
    "refusal": "What the assistant said when it refused.",
    "type": "What kind of thing this is.",
    "role": "Who speaks.",
    "content": "What is said: a text, or blocks of text.",
    "tool_calls": "Calls of functions that the assistant made.",
    "tool_call_id": "The call whose result this is, in a message of the role `tool`.",
    "tool_use_id": "The call whose result this is, in a block of the type `tool_result`.",
    "id": "By which a result names this call.",
    "call_id": "By which a call and its result belong together.",
    "name": "The name of the function that is called.",
    "arguments": "What the function is called with, as JSON in a text.",
    "output": "What the function gave back: a text, or parts of text.",
    "mode": "`explicit` keeps what is marked alone; `implicit` the whole prompt too.",
    "ttl": "How long it is kept at least; each read begins it anew.",
    "prewarm": "Whether the prompt is only computed, for those to come, and nothing is answered.",
    "comparison_response_id": "Let pass: no response is stored that it could name.",
    "schema": "The name of a schema that was put, or PML.",
    "scope": "What modules see while they are encoded.",
    "expires_at": "Until when it stays: ISO 8601 with a zone, or seconds since 1970. null takes it back.",
    "pinned": "Whether what is stored of it is never evicted.",
    "pml": "The schema, in PML. Its name is the path's.",
    "encode": "Whether what is missing of it is computed before the answer comes.",
    "dialect": "The vendor whose request body this is. Default: chosen by the headers.",
    "reasoning": "`effort` other than `none` is refused; `summary` is let pass.",
}
"""By the field's name, wherever it stands."""

OWN_WORDS: Mapping[str, str] = {
    "CompletionBody.prompt": "The text that is continued, without the chat template.",
    "PromptCache.prompt": "What is imported, in PML; without it what is outside all modules alone.",
    "ResponsesBody.text": '`format` other than {"type": "text"} is refused; `verbosity` is let pass.',
    "InputTokensBody.model": "The name of the model; the served one where it is absent.",
    "InputTokensBody.text": 'As for a response: `format` other than {"type": "text"} is refused.',
    "ContentBlock.input": "What the tool is called with, in a block of the type `tool_use`.",
    "ContentBlock.name": "The tool that is called, in a block of the type `tool_use`.",
    "ContentBlock.content": "What a tool gave back, in a `tool_result`, or the texts of a `search_result`.",
    "ContentBlock.source": "The texts of a block of the type `document`, or where a `search_result` is from.",
    "ContentBlock.title": "What a `document` or a `search_result` is called; it stands before its text.",
    "ContentBlock.context": "What else is known of a `document`; it stands before its text.",
    "ContentBlock.citations": 'On documents `{"enabled": true}` is refused; let pass otherwise.',
    "MessagesBody.max_tokens": "The most tokens of the answer; 0 computes the prompt and answers nothing.",
    "TermsBody.ttl": 'How long it stays: seconds, or "300s", "5m", "1h", "2d". null takes it back.',
    "PutBody.ttl": 'How long it stays: seconds, or "300s", "5m", "1h", "2d". null takes it back.',
}
"""By the names of its schema and its own, where a field says another thing than elsewhere."""


def described(name: str, properties: dict[str, Any]) -> None:
    """Writes words and bounds into the fields of a body.

    Args:
        name: of its schema.
        properties: its fields, which are changed.
    """
    known = settings_in("anthropic" if name in _ANTHROPIC else "openai")
    for field, shape in properties.items():
        own = f"{name}.{field}"
        shape.pop("title", None)
        if own in OWN_WORDS:
            shape["description"] = OWN_WORDS[own]
        elif field in _SETTINGS:
            setting = known[_SETTINGS[field]]
            shape["description"] = f"{setting.sentence} It must be {setting.range}. {_USUAL}"
            for one in shape.get("anyOf", [shape]):
                if one.get("type") in ("integer", "number"):
                    lowest = "exclusiveMinimum" if setting.above else "minimum"
                    bounds = {lowest: setting.least, "maximum": setting.most}
                    one.update({bound: value for bound, value in bounds.items() if value is not None})
        elif field in WORDS:
            shape["description"] = WORDS[field]
