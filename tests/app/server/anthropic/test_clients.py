"""Anthropic's own clients, unchanged: their calls, their types, and the engine's text."""

from __future__ import annotations

import asyncio
from typing import Any

import anthropic
import pytest

from engine import Block, Message
from engine.inference.run_settings import RunSettings
from tests.app.server.served import LONG, Served

ASKED: dict[str, Any] = {
    "system": [{"type": "text", "text": "Be short."}],
    "messages": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "One day"}, {"type": "text", "text": "in April?"}],
        },
        {"role": "assistant", "content": "Cold."},
        {"role": "user", "content": "And the clocks?"},
    ],
    "max_tokens": 12,
    "extra_body": {"temperature": 0},
}
TURNS = [
    Message("system", (Block("Be short."),)),
    Message("user", (Block("One day"), Block("in April?"))),
    Message("assistant", (Block("Cold."),)),
    Message("user", (Block("And the clocks?"),)),
]


def test_a_message_is_the_engines_answer(server: Served) -> None:
    made = server.anthropic().messages.create(model=server.model, **ASKED)
    settings = RunSettings(max_new_tokens=12)
    expected = server.engine.conversation(TURNS).answer(settings, mode="uncached")
    assert [block.text for block in made.content if block.type == "text"] == [expected.text]
    assert made.stop_reason == {"eos": "end_turn", "length": "max_tokens"}[expected.stopped]
    usage = made.usage
    assert (
        usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
        == expected.tokens["prompt"]
    )
    assert usage.output_tokens == expected.tokens["generated"]
    assert made._request_id is not None


def test_a_stream_tells_the_same_text_and_usage(server: Served) -> None:
    client = server.anthropic()
    client.messages.create(model=server.model, **ASKED)
    whole = client.messages.create(model=server.model, **ASKED)
    with client.messages.stream(model=server.model, **ASKED) as stream:
        text = "".join(stream.text_stream)
        found = stream.get_final_message()
    assert text == whole.content[0].text == found.content[0].text
    assert found.usage.to_dict() == whole.usage.to_dict()
    kinds = [event.type for event in client.messages.create(model=server.model, stream=True, **ASKED)]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_what_changes_in_each_request_is_left_out(server: Served) -> None:
    client, usages = server.anthropic(), []
    for number in range(2):
        billing = {"type": "text", "text": f"x-anthropic-billing-header: cch={number}"}
        system = [billing, {"type": "text", "text": LONG}]
        asked = {**ASKED, "system": system}
        usages.append(client.messages.create(model=server.model, **asked).usage)
    assert usages[1].cache_read_input_tokens >= 128


def test_what_agents_ask_for_that_is_done_anyway_is_let_pass(server: Served) -> None:
    client = server.anthropic()
    usual = {
        "thinking": {"type": "adaptive", "display": "omitted"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high", "format": None},
    }
    asked = {**ASKED, "metadata": {"user_id": "me"}, "betas": ["context-management-2025-06-27"]}
    made = client.beta.messages.create(
        model=server.model, **{**asked, "extra_body": {**usual, "temperature": 0}}
    )
    assert made.content[0].text == client.messages.create(model=server.model, **ASKED).content[0].text


def test_the_models_have_anthropics_shape(server: Served) -> None:
    client = server.anthropic()
    assert [model.id for model in client.models.list()] == [server.model, "alias"]
    assert client.models.retrieve("alias").display_name == "alias"


def test_asyncio_clients_stream_side_by_side(server: Served) -> None:
    async def text(client: anthropic.AsyncAnthropic) -> str:
        async with client.messages.stream(model=server.model, **ASKED) as stream:
            return "".join([piece async for piece in stream.text_stream])

    async def ask() -> list[str]:
        async with server.async_anthropic() as client:
            return [*await asyncio.gather(*(text(client) for _ in range(4)))]

    assert len(set(asyncio.run(ask()))) == 1


def marked(text: str, ttl: str | None = None) -> dict[str, Any]:
    return {
        "type": "text",
        "text": text,
        "cache_control": {"type": "ephemeral", **({"ttl": ttl} if ttl else {})},
    }


def test_five_marks_and_a_longer_ttl_behind_a_shorter_one_are_refused(server: Served) -> None:
    client = server.anthropic()
    five = {**ASKED, "system": [marked(str(number)) for number in range(5)]}
    with pytest.raises(anthropic.BadRequestError, match="maximum of 4"):
        client.messages.create(model=server.model, **five)
    turned = {**ASKED, "system": [marked("a"), marked("b", "1h")]}
    with pytest.raises(anthropic.BadRequestError, match="1h must not come after"):
        client.messages.create(model=server.model, **turned)


def test_the_beginning_of_an_answer_is_not_continued_behind_a_template(server: Served) -> None:
    said: Any = [{"role": "user", "content": "Red or blue?"}, {"role": "assistant", "content": "I say "}]
    messages = server.anthropic().messages
    with pytest.raises(anthropic.BadRequestError, match=r"messages\.1: It is not supported here: .* user's"):
        messages.create(model=server.model, max_tokens=4, messages=said)
    usage = messages.create(model=server.model, max_tokens=0, messages=said).usage
    total = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    assert messages.count_tokens(model=server.model, messages=said).input_tokens == total
