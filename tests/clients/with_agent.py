"""A loop of an agent over OpenAI's client, with a forced tool in every turn, then a free answer."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Literal

from openai import OpenAI
from pydantic import BaseModel

from tests.clients.__main__ import Check

TURNS = 6


class Weather(BaseModel):
    """The arguments of the tool."""

    city: Literal["Lisbon", "Oslo"]
    days: Literal[1, 2, 3]


TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of the next days.",
        "parameters": Weather.model_json_schema(),
        "strict": True,
    },
}


def checks(url: str, model: str) -> dict[str, Check]:
    """Returns a loop for each way to force a call."""
    named = {"type": "function", "function": {"name": "weather"}}
    client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    return {
        f"{words}{', streamed' if stream else ''}": partial(_loop, client, model, choice, stream)
        for words, choice in (("required", "required"), ("named", named))
        for stream in (False, True)
    }


def _loop(client: OpenAI, model: str, choice: Any, stream: bool) -> None:
    messages: list[Any] = [
        {"role": "system", "content": "You know the weather by your tool alone. " * 8},
        {"role": "user", "content": "Where is it warm?"},
    ]
    asked: dict[str, Any] = {"model": model, "tools": [TOOL], "temperature": 0, "max_tokens": 80}
    read = 0
    for turn in range(TURNS):
        message, read = _answer(client, {**asked, "messages": messages, "tool_choice": choice}, stream)
        (call,) = message.tool_calls
        assert call.function.name == "weather"
        given = Weather(**json.loads(call.function.arguments))
        messages += [
            message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": f"{given.city}: {15 + turn} degrees"},
        ]
    assert read > 0, "no prompt token was read from the cache"
    last, _ = _answer(client, {**asked, "messages": messages, "tool_choice": "none"}, stream)
    assert last.content is not None


def _answer(client: OpenAI, asked: dict[str, Any], stream: bool) -> tuple[Any, int]:
    """Returns the message, and the tokens read from the cache."""
    if stream:
        with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
            told: Any = events.get_final_completion()
    else:
        told = client.chat.completions.create(**asked)
    return told.choices[0].message, told.usage.prompt_tokens_details.cached_tokens
