"""Penalties, token biases and min_p in every API: the engine's answer with the same settings."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from engine import Block, Message
from engine.inference.run_settings import RunSettings
from tests.app.server.served import Served

SAID: list[Any] = [{"role": "user", "content": "One day in April?"}]
SETTINGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"frequency_penalty": 1.5}, {"frequency_penalty": 1.5}),
    ({"presence_penalty": 2}, {"presence_penalty": 2.0}),
    ({"logit_bias": {"70": 100, "71": -3.5}}, {"logit_bias": "70:100,71:-3.5"}),
    ({"temperature": 1.5, "extra_body": {"min_p": 1}, "seed": 3}, {"temperature": 0}),
]


def plain(server: Served, **changes: Any) -> str:
    settings = RunSettings(**{"max_new_tokens": 8, "temperature": 0, **changes})
    prompt = server.engine.conversation([Message("user", (Block(SAID[0]["content"]),))])
    return str(prompt.answer(settings, mode="uncached").text)


@pytest.mark.parametrize(("given", "settings"), SETTINGS)
def test_they_change_the_answer_as_in_the_engine(
    server: Served, given: dict[str, Any], settings: dict[str, Any]
) -> None:
    client, expected = server.openai(), plain(server, **settings)
    given = {"temperature": 0, **given}
    assert expected != plain(server) or given["temperature"]
    chat = client.chat.completions.create(model="alias", messages=SAID, max_tokens=8, **given)
    assert chat.choices[0].message.content == expected
    body = {**given, **given.pop("extra_body", {}), "extra_body": None}
    more = {name: value for name, value in body.items() if value is not None}
    made = client.responses.create(model="alias", input=SAID, max_output_tokens=8, extra_body=more)
    assert made.output_text == expected
    warm = {**more, "temperature": min(1, more["temperature"])}
    told = server.anthropic().messages.create(model="alias", messages=SAID, max_tokens=8, extra_body=warm)
    assert "".join(block.text for block in told.content) == expected


def test_a_completion_has_them(server: Served) -> None:
    client = server.openai()
    ask: dict[str, Any] = {"model": "alias", "prompt": "A cold day", "temperature": 0, "max_tokens": 6}
    usual = client.completions.create(**ask).choices[0].text
    for given in ({"frequency_penalty": 2}, {"presence_penalty": -2, "logit_bias": {"70": 100}}):
        made = client.completions.create(**ask, **given).choices[0].text
        assert made != usual
        tokens = server.engine.model.tokenize(ask["prompt"])
        assert client.completions.create(**{**ask, "prompt": tokens}, **given).choices[0].text == made


@pytest.mark.parametrize(
    ("given", "param", "says"),
    [
        ({"frequency_penalty": 2.1}, "frequency_penalty", "at least -2 and at most 2"),
        ({"presence_penalty": -3}, "presence_penalty", "at least -2 and at most 2"),
        ({"extra_body": {"min_p": 2}}, "min_p", "at most 1"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "number of a token"),
        ({"logit_bias": {"5": 101}}, "logit_bias", "-100 to 100"),
        ({"logit_bias": {"5": True}}, "logit_bias.5", "number"),
        ({"logit_bias": {"99999": 1}}, "logit_bias", "the tokens of this model are 0 to"),
    ],
)
def test_what_is_out_of_range_is_named(server: Served, given: Any, param: str, says: str) -> None:
    client = server.openai()
    calls = (
        lambda: client.chat.completions.create(model="alias", messages=SAID, **given),
        lambda: client.completions.create(model="alias", prompt=["a", "b"], **given),
    )
    for call in calls:
        with pytest.raises(openai.BadRequestError, match=says) as error:
            call()
        assert error.value.param == param
