"""What reaches the model over HTTP is what the chat template writes for the request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from engine.checkpoint.synthetic import byte_tokenizer
from engine.model.model import Model
from tests.app.server.served import Served, served
from tests.engine.tiny import tiny_network

TEMPLATE = (
    "{% set ns = namespace(quiet='/no_think' in messages[0].content) %}{% for m in messages %}"
    "<|{{ m.role }}|>{{ m.content|length }}\n{{ m.content|upper if m.role == 'system' else m.content }}</s>\n"
    "{% endfor %}<|assistant|>\n{% if ns.quiet or enable_thinking is false %}<think></think>\n{% endif %}"
)
MESSAGES: list[Any] = [
    {"role": "system", "content": "Be brief. /no_think"},
    {"role": "user", "content": "How is it in Rome?"},
    {"role": "assistant", "content": "Fine."},
    {"role": "user", "content": "And in Tokyo?\n"},
]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose template reads contents, and whose tokenizer begins texts that no template writes."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE
    model = Model("reader", tiny_network(), tokenizer, "reader")
    with served(tmp_path_factory.mktemp("reader"), model=model, longest=4) as running:
        yield running


def wanted(server: Served, messages: list[Any], **variables: Any) -> int:
    tokenizer = server.engine.model.tokenizer
    return len(tokenizer.apply_chat_template(messages, add_generation_prompt=True, **variables)["input_ids"])


@pytest.mark.parametrize("messages", [MESSAGES, MESSAGES[1:2], MESSAGES[1:]])
def test_every_endpoint_reads_the_tokens_of_the_template(reader: Served, messages: list[Any]) -> None:
    want = wanted(reader, messages)
    chat = reader.openai().chat.completions.create(model="reader", messages=messages)
    assert chat.usage is not None
    assert chat.usage.prompt_tokens == want
    responses = reader.openai().responses.create(model="reader", input=messages)
    assert responses.usage is not None
    assert responses.usage.input_tokens == want
    system = {"system": messages[0]["content"]} if messages[0]["role"] == "system" else {}
    turns = [one for one in messages if one["role"] != "system"]
    counted = reader.anthropic().messages.count_tokens(model="reader", messages=turns, **system)
    assert counted.input_tokens == want


def test_variables_reach_the_template(reader: Served) -> None:
    want = wanted(reader, MESSAGES[1:2], enable_thinking=False)
    assert want != wanted(reader, MESSAGES[1:2])
    body: Any = {"chat_template_kwargs": {"enable_thinking": False}}
    chat = reader.openai().chat.completions.create(model="reader", messages=MESSAGES[1:2], extra_body=body)
    assert chat.usage is not None
    assert chat.usage.prompt_tokens == want
    said = reader.anthropic().messages.create(
        model="reader", max_tokens=4, messages=MESSAGES[1:2], extra_body=body
    )
    assert said.usage.input_tokens + (said.usage.cache_read_input_tokens or 0) == want


def test_requests_share_only_what_the_template_writes_the_same(reader: Served) -> None:
    client, long = reader.openai(), [{"role": "user", "content": "How is it in Rome? " * 30}]

    def ask(**body: Any) -> tuple[str, int, int]:
        made = client.chat.completions.create(
            model="reader", messages=long, temperature=0, extra_body={"chat_template_kwargs": body}
        )
        usage = made.usage
        return made.choices[0].message.content, usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens

    text, tokens, _ = ask(enable_thinking=False)
    other, fewer, read = ask(enable_thinking=True)
    assert tokens > fewer
    assert 0 < read < fewer, "the beginning is the same, the end is not"
    assert ask(enable_thinking=False)[:2] == (text, tokens)
    assert ask(enable_thinking=True)[:2] == (other, fewer)
    assert ask(enable_thinking=None, unknown_to_it=[1, {"a": 2.5}])[:2] == (other, fewer)


@pytest.mark.parametrize("wrong", [True, "enable_thinking", ["enable_thinking"], 5])
def test_variables_are_an_object(reader: Served, wrong: Any) -> None:
    for path in ("chat/completions", "messages"):
        body = {"model": "reader", "messages": MESSAGES[1:], "max_tokens": 1, "chat_template_kwargs": wrong}
        answer = reader.http.post(f"/v1/{path}", json=body)
        assert answer.status_code == 400
        assert "chat_template_kwargs" in answer.json()["error"]["message"]
    body["chat_template_kwargs"] = None
    assert reader.http.post("/v1/chat/completions", json=body).status_code == 200
    refused = reader.http.post("/v1/chat/completions", json={**body, "enable_thinking": False})
    assert "send it in chat_template_kwargs" in refused.json()["error"]["message"]


def test_a_variable_that_is_the_conversations_own_is_refused(reader: Served) -> None:
    body: Any = {"chat_template_kwargs": {"messages": []}}
    with pytest.raises(openai.BadRequestError, match="'messages' is set by the conversation itself"):
        reader.openai().chat.completions.create(model="reader", messages=MESSAGES, extra_body=body)
    with pytest.raises(anthropic.BadRequestError, match="chat_template_kwargs"):
        reader.anthropic().messages.create(
            model="reader", max_tokens=4, messages=MESSAGES[1:], extra_body=body
        )
    with pytest.raises(openai.BadRequestError, match="a text has no chat template"):
        reader.openai().completions.create(model="reader", prompt="Hi", extra_body={**body})
