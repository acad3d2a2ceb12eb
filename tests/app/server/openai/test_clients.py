"""OpenAI's own clients, unchanged: their calls, their types, and the engine's text."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest

from engine import Block, Message
from engine.checkpoint.synthetic import byte_tokenizer
from engine.inference.run_settings import RunSettings
from engine.inference.sampler import Sampler
from engine.model.model import Model
from tests.app.server.served import Served, served
from tests.engine.tiny import tiny_network

CONVERSATION: list[Any] = [
    {"role": "developer", "content": "Be short."},
    {"role": "user", "content": [{"type": "text", "text": "One day"}, {"type": "text", "text": "in April?"}]},
    {"role": "assistant", "content": "Cold."},
    {"role": "user", "content": "And the clocks?"},
]
TURNS = [
    Message("system", (Block("Be short."),)),
    Message("user", (Block("One day"), Block("in April?"))),
    Message("assistant", (Block("Cold."),)),
    Message("user", (Block("And the clocks?"),)),
]


def plain(server: Served, messages: list[Message] = TURNS, **changes: Any) -> Any:
    """The engine's own answer, computed without a cache."""
    settings = RunSettings(**{"max_new_tokens": 12, "temperature": 0, **changes})
    return server.engine.conversation(messages).answer(settings, mode="uncached")


def test_a_chat_completion_is_the_engines_answer(server: Served) -> None:
    made = server.openai().chat.completions.create(
        model=server.model, messages=CONVERSATION, max_tokens=12, temperature=0
    )
    expected = plain(server)
    assert made.choices[0].message.content == expected.text
    assert made.choices[0].finish_reason == {"eos": "stop", "length": "length"}[expected.stopped]
    assert made.usage is not None
    assert made.usage.prompt_tokens == expected.tokens["prompt"]
    assert made.usage.completion_tokens == expected.tokens["generated"]
    assert made.usage.total_tokens == expected.tokens["prompt"] + expected.tokens["generated"]
    assert made.id.startswith("chatcmpl-")
    assert made._request_id is not None


def test_a_stream_tells_the_same_text_and_the_same_usage(server: Served) -> None:
    client = server.openai()
    asked: dict[str, Any] = {"model": "alias", "messages": CONVERSATION, "max_tokens": 12, "temperature": 0}
    whole = client.chat.completions.create(**asked)
    again = client.chat.completions.create(**asked)
    chunks = [*client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].usage == again.usage
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    with client.chat.completions.stream(**asked, stop=text[-2:]) as stream:
        found = stream.get_final_completion()
    assert found.choices[0].message.content == text.split(text[-2:])[0]


def test_asyncio_clients_answer_side_by_side(server: Served) -> None:
    async def ask() -> list[Any]:
        async with server.async_openai() as client:
            made = (
                client.chat.completions.create(
                    model=server.model,
                    messages=[{"role": "user", "content": f"Number {number}"}],
                    max_tokens=4,
                    temperature=0,
                )
                for number in range(6)
            )
            return [*await asyncio.gather(*made)]

    for number, made in enumerate(asyncio.run(ask())):
        turn = Message("user", (Block(f"Number {number}"),))
        assert made.choices[0].message.content == plain(server, [turn], max_new_tokens=4).text


def test_models_are_listed_and_described(server: Served) -> None:
    client = server.openai()
    assert [model.id for model in client.models.list()] == [server.model, "alias"]
    told = client.models.retrieve("alias")
    assert told.object == "model"
    length = server.engine.model.context_length
    assert (told.max_model_len, told.meta["n_ctx_train"]) == (length, length)
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("gpt-9")
    assert (error.value.code, error.value.param) == ("model_not_found", "model")


def test_stop_texts_seeds_and_sampling_are_honoured(server: Served) -> None:
    client = server.openai()
    asked: dict[str, Any] = {"model": server.model, "messages": CONVERSATION, "max_tokens": 12}
    text = client.chat.completions.create(**asked, temperature=0).choices[0].message.content
    stop = text[2:4]
    made = client.chat.completions.create(**asked, temperature=0, stop=[stop])
    assert made.choices[0].message.content == text.split(stop)[0]
    assert made.choices[0].finish_reason == "stop"
    drawn = {
        client.chat.completions.create(**asked, temperature=2, seed=5).choices[0].message.content
        for _ in range(3)
    }
    assert len(drawn) == 1
    unseeded = {
        client.chat.completions.create(**asked, temperature=2).choices[0].message.content for _ in range(4)
    }
    assert len(unseeded) > 1, "without a seed each answer is drawn anew"


PIECES: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/chat/completions", {"messages": CONVERSATION}, ""),
    ("/v1/completions", {"prompt": "So", "max_tokens": 64}, ""),
    ("/v1/responses", {"input": "So"}, "response.output_text.delta"),
    ("/v1/messages", {"messages": CONVERSATION[3:], "max_tokens": 64}, "content_block_delta"),
]


def test_clients_that_cut_lines_at_more_than_line_ends_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "a\u2028b\u2029c\x85d\x0be\x1cf\r\ng\rh\n"
    model = Model("bytes", tiny_network(), byte_tokenizer(), "bytes")
    script: list[int] = []
    monkeypatch.setattr(Sampler, "choose", lambda self, logits: script.pop(0))
    with served(tmp_path, model=model, longest=64) as running:
        for path, body, kind in PIECES:
            script[:] = [*model.tokenize(text), 1]
            asked = {"model": "bytes", "stream": True, **body}
            with running.http.stream("POST", path, json=asked) as answer:
                lines = [*answer.iter_lines()]
            data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
            events = [json.loads(line) for line in data if line != "[DONE]"]
            if kind:
                deltas = [one["delta"] for one in events if one["type"] == kind]
                pieces = [one if isinstance(one, str) else one["text"] for one in deltas]
            else:
                choices = [one["choices"][0] for one in events]
                pieces = [one.get("text") or one.get("delta", {}).get("content", "") for one in choices]
            assert "".join(pieces) == text, path
