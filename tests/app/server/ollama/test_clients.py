"""Ollama's own client, unchanged."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.app.server.ollama.test_ollama import COLD, SAID, plain
from tests.app.server.served import Served

ollama = pytest.importorskip("ollama", reason="pip install -e '.[dev]' installs it")


@pytest.fixture
def client(server: Served) -> Any:
    with ollama.Client(host=server.url) as made:
        yield made


def test_a_chat_and_its_stream(server: Served, client: Any) -> None:
    told = client.chat("alias", SAID, options=COLD)
    expected = plain(server, *SAID)
    assert told.message.content == told["message"]["content"] == expected.text
    assert (told.done, told.prompt_eval_count) == (True, expected.tokens["prompt"])
    pieces = [*client.chat("alias", SAID, options=COLD, stream=True)]
    assert "".join(piece.message.content for piece in pieces) == expected.text
    assert [piece.done for piece in pieces] == [*[False] * (len(pieces) - 1), True]
    assert pieces[-1].eval_count == told.eval_count


def test_a_prompt_and_its_stream(server: Served, client: Any) -> None:
    ask = {"model": "alias", "prompt": "And the clocks?", "system": "Be short.", "options": COLD}
    told = client.generate(**ask)
    assert told.response == plain(server, SAID[0], SAID[3]).text
    assert "".join(piece.response for piece in client.generate(**ask, stream=True)) == told.response


def test_an_asyncio_client_gets_the_same(server: Served) -> None:
    async def ask() -> str:
        async with ollama.AsyncClient(host=server.url) as client:
            pieces = await client.chat("alias", SAID, options=COLD, stream=True)
            return "".join([piece.message.content async for piece in pieces])

    assert asyncio.run(ask()) == plain(server, *SAID).text


def test_a_format_of_pydantic_and_a_function_as_a_tool(agent: Served, client: Any) -> None:
    def weather(city: str) -> str:
        """Tells the weather.

        Args:
            city: a city.
        """
        return city

    schema = {
        "type": "object",
        "properties": {"a": {"const": 1}},
        "required": ["a"],
        "additionalProperties": False,
    }
    told = client.chat("alias", SAID, format=schema, options={"num_predict": 60})
    assert told.message.content.replace(" ", "") == '{"a":1}'
    with ollama.Client(host=agent.url) as asking:
        made = asking.chat("agent", SAID, tools=[weather], options=COLD)
    assert made.message.role == "assistant"


def test_models_and_embeddings(server: Served, client: Any) -> None:
    assert [model.model for model in client.list().models] == [server.model, "alias"]
    told = client.show("alias")
    assert told.modelinfo["llama.context_length"] == server.engine.model.context_length
    assert client.ps().models[0].context_length == server.engine.model.context_length
    vectors = client.embed("alias", ["A cold day", "April"]).embeddings
    assert len(vectors) == 2
    assert sum(number * number for number in vectors[0]) == pytest.approx(1, abs=1e-4)


def test_errors_are_the_clients_own(client: Any) -> None:
    with pytest.raises(ollama.ResponseError, match="think: It is not supported here") as error:
        client.chat("alias", SAID, think=True)
    assert error.value.status_code == 400
    with pytest.raises(ollama.ResponseError, match="There is no model 'other'") as error:
        [*client.generate("other", "Hi", stream=True)]
    assert error.value.status_code == 404
