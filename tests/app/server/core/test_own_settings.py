"""What a request leaves open is as the model's generation_config.json has it; its rules hold for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from engine.model.model import Model
from tests.app.server.served import FAMILY, Served, served
from tests.engine.cases import model_of
from tests.engine.tiny import KnownProbe, measured, tiny_network

SAID: list[Any] = [{"role": "user", "content": "Hello"}]
FIELDS = {
    "do_sample": True,
    "temperature": 0.7,
    "top_k": 5,
    "min_p": 0.25,
    "typical_p": 0.5,
    "max_new_tokens": 4,
    "eos_token_id": 300,
}


def model(fields: dict[str, Any]) -> Model:
    network = tiny_network(FAMILY)
    for name, value in fields.items():
        setattr(network.generation_config, name, value)
    known: Any = KnownProbe(measured(FAMILY, 0))
    return Model("own", network, model_of(FAMILY).tokenizer, "f", known)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("own"), model=model(FIELDS), longest=None) as running:
        yield running


def ask(server: Served, **more: Any) -> Any:
    return server.openai().chat.completions.create(model="own", messages=SAID, **more)


def test_what_a_request_leaves_open_is_the_makers(server: Served) -> None:
    assert ask(server).usage.completion_tokens == 4
    assert ask(server, max_tokens=6).usage.completion_tokens == 6
    made = server.openai().responses.create(model="own", input="Hello")
    assert (made.temperature, made.usage.output_tokens) == (0.7, 4)
    assert (server.service.defaults.sampling["top_k"], server.service.defaults.sampling["min_p"]) == (5, 0.25)
    assert ask(server, extra_body={"min_p": 0.1}).choices, "a setting, which a request may change"


@pytest.mark.parametrize(
    ("given", "sampling", "longest"),
    [
        ({"do_sample": False, "temperature": 0.6}, {"temperature": 0.0}, 1024),
        ({"top_p": 0, "top_k": -1}, {}, 1024),
        ({"max_new_tokens": 7}, {"max_new_tokens": 7}, 1024),
    ],
)
def test_defaults_are_in_their_range(
    tmp_path: Path, given: dict[str, Any], sampling: dict[str, Any], longest: int
) -> None:
    with served(tmp_path, model=model(given), longest=None) as running:
        assert running.service.defaults.sampling == sampling
        assert running.service.defaults.longest == longest
        assert ask(running, max_tokens=1).choices


def test_an_option_of_the_server_comes_before_the_makers(tmp_path: Path) -> None:
    with served(tmp_path, model=model(FIELDS), longest=2) as running:
        assert ask(running).usage.completion_tokens == 2


@pytest.mark.parametrize(("name", "value"), [("typical_p", 1), ("typical_p", 0.1)])
def test_a_rule_of_the_model_cannot_be_changed(server: Served, name: str, value: Any) -> None:
    with pytest.raises(openai.BadRequestError, match=r"generation_config\.json sets it to 0\.5") as error:
        ask(server, extra_body={name: value})
    assert (error.value.code, error.value.param) == ("unsupported_parameter", name)
    assert ask(server, extra_body={name: 0.5, "min_tokens": 0}).choices


def test_stop_strings_of_the_model_end_answers_of_every_dialect(tmp_path: Path, server: Served) -> None:
    body = {"model": "own", "messages": SAID, "max_tokens": 16, "temperature": 0}
    text = server.http.post("/v1/messages", json=body).json()["content"][0]["text"]
    stop = text[11:14]
    with served(tmp_path, model=model({**FIELDS, "stop_strings": [stop]})) as running:
        told = running.http.post("/v1/messages", json=body).json()
        assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", stop)
        assert told["content"][0]["text"] == text.partition(stop)[0]
        assert ask(running, max_tokens=16, temperature=0, stop=["zzz"]).choices[0].finish_reason == "stop"
