"""Reasoning over HTTP: requests switch it, answers and streams have it apart from the text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

from engine.checkpoint.synthetic import byte_tokenizer
from engine.inference.sampler import Sampler
from engine.model.model import Model
from tests.app.server.served import Served, served
from tests.engine.tiny import tiny_network

TURNS = "{% for m in messages %}<|{{ m.role }}|>{{ m.content.split('</think>')[-1] }}</s>\n{% endfor %}"
SWITCHED = TURNS + "<|assistant|>{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
ALWAYS = TURNS + "<|assistant|><think>\n"
LEVELS = "Reasoning: {{ reasoning_effort }}</s>" + TURNS + "<|assistant|>"
SAID: list[Any] = [{"role": "user", "content": "How is it in Rome?"}]
THOUGHT, TEXT = "Rome is <warm>.\n\nSo:", "It is warm."
ANSWER = f"<think>\n{THOUGHT}\n</think>\n\n{TEXT}"
Says = Callable[[Served, str], None]


def server_of(template: str, folder: Any) -> Any:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    model = Model("thinker", tiny_network(), tokenizer, "thinker")
    return served(folder, model=model, longest=200)


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server_of(SWITCHED, tmp_path_factory.mktemp("thinker")) as running:
        yield running


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Says:
    """Has the model say a text next."""
    script: list[int] = []
    monkeypatch.setattr(Sampler, "choose", lambda self, logits: script.pop(0))

    def say(server: Served, text: str) -> None:
        script[:] = [*server.engine.model.tokenize(text), 1]

    return say


def test_a_chat_has_it_apart(thinker: Served, says: Says) -> None:
    client = thinker.openai()
    says(thinker, ANSWER)
    (choice,) = client.chat.completions.create(model="thinker", messages=SAID).choices
    assert (choice.message.reasoning_content, choice.message.content) == (THOUGHT, TEXT)
    says(thinker, ANSWER)
    chunks = [*client.chat.completions.create(model="thinker", messages=SAID, stream=True, logprobs=True)]
    deltas = [chunk.choices[0].delta for chunk in chunks]
    thoughts = [piece for one in deltas if (piece := getattr(one, "reasoning_content", None))]
    assert ("".join(thoughts), len(thoughts) > 5) == (THOUGHT, True)
    texts = [one.content for one in deltas if one.content]
    assert ("".join(texts), len(texts) > 5) == (TEXT, True)
    scored = [one for chunk in chunks for one in (chunk.choices[0].logprobs or SCORELESS).content]
    assert "".join(one.token for one in scored) == ANSWER


class SCORELESS:
    content: tuple[()] = ()


def test_a_message_has_a_block_of_it(thinker: Served, says: Says) -> None:
    client = thinker.anthropic()
    ask: dict[str, Any] = {"model": "thinker", "max_tokens": 200, "messages": SAID}
    says(thinker, ANSWER)
    made = client.messages.create(**ask)
    assert [block.type for block in made.content] == ["thinking", "text"]
    assert (made.content[0].thinking, made.content[1].text) == (THOUGHT, TEXT)
    says(thinker, ANSWER)
    with client.messages.stream(**ask) as stream:
        events = [event.type for event in stream]
        found = stream.get_final_message()
    assert [(one.type, getattr(one, "thinking", "") or one.text) for one in found.content] == [
        ("thinking", THOUGHT),
        ("text", TEXT),
    ]
    assert events.count("content_block_start") == events.count("content_block_stop") == 2
    says(thinker, TEXT)
    with client.messages.stream(**ask) as stream:
        assert [block.type for block in stream.get_final_message().content] == ["text"]


def test_a_response_has_an_item_of_it(thinker: Served, says: Says) -> None:
    client = thinker.openai()
    says(thinker, ANSWER)
    made = client.responses.create(model="thinker", input="Hi")
    assert [item.type for item in made.output] == ["reasoning", "message"]
    assert (made.output[0].content[0].text, made.output_text) == (THOUGHT, TEXT)
    for answer, kinds in (
        (ANSWER, ["reasoning", "message"]),
        (TEXT, ["message"]),
        ("<think>A", ["reasoning"]),
    ):
        says(thinker, answer)
        with client.responses.stream(model="thinker", input="Hi") as stream:
            events = [*stream]
        final = events[-1].response
        assert [item.type for item in final.output][: len(kinds)] == kinds
        added = [one for one in events if one.type == "response.output_item.added"]
        assert [one.output_index for one in added] == [*range(len(final.output))]
        assert [one.item.id for one in added] == [item.id for item in final.output]
        deltas = [one.delta for one in events if one.type == "response.reasoning_text.delta"]
        assert "".join(deltas) == {ANSWER: THOUGHT, TEXT: "", "<think>A": "A"}[answer]


def test_ollamas_pieces_have_it(thinker: Served, says: Says) -> None:
    says(thinker, ANSWER)
    body = {"model": "thinker", "messages": SAID}
    told = thinker.http.post("/api/chat", json={**body, "stream": False}).json()["message"]
    assert (told["thinking"], told["content"]) == (THOUGHT, TEXT)
    says(thinker, ANSWER)
    pieces = [json.loads(one) for one in thinker.http.post("/api/chat", json=body).text.splitlines()]
    assert "".join(one["message"].get("thinking", "") for one in pieces) == THOUGHT
    assert "".join(one["message"]["content"] for one in pieces) == TEXT


def tokens(server: Served, path: str, **body: Any) -> int:
    """The tokens of a prompt, or -1 for a refusal, whose message names the field."""
    longest = {"max_tokens": 1}
    whole = {"model": "thinker", **longest, "messages": SAID, **body}
    if path == "responses":
        whole = {"model": "thinker", "max_output_tokens": 1, "input": SAID, **body}
    if path == "chat" and "think" in body:
        told = server.http.post("/api/chat", json={**whole, "max_tokens": None, "stream": False})
        return told.json()["prompt_eval_count"] if told.status_code == 200 else -1
    name = "chat/completions" if path == "chat" else path
    told = server.http.post(f"/v1/{name}", json=whole)
    if told.status_code != 200:
        error = told.json()["error"]
        assert error["message"].startswith(error.get("param") or tuple(body)), error
        return -1
    usage = told.json()["usage"]
    read = usage.get("cache_read_input_tokens", 0)
    return usage.get("prompt_tokens") or usage["input_tokens"] + read


def test_requests_switch_it_where_the_template_has_a_switch(thinker: Served) -> None:
    on = tokens(thinker, "chat")
    off = on + len("<think>\n\n</think>\n\n")
    for effort, want in (("none", off), ("low", on), ("high", on), (None, on)):
        assert tokens(thinker, "chat", reasoning_effort=effort) == want
        assert tokens(thinker, "responses", reasoning={"effort": effort}) == want
    for thinking, want in (
        ({"type": "disabled"}, off),
        ({"type": "enabled", "budget_tokens": 1024}, on),
        ({"type": "adaptive"}, on),
    ):
        assert tokens(thinker, "messages", thinking=thinking) == want
    for think, want in ((True, on), (False, off), ("high", on), ("none", off)):
        assert tokens(thinker, "chat", think=think) == want
    both = {"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}}
    assert tokens(thinker, "chat", **both) == off, "variables of the request come first"


def test_a_template_with_levels_gets_the_effort(tmp_path: Any) -> None:
    with server_of(LEVELS, tmp_path) as server:
        short = tokens(server, "chat", reasoning_effort="low")
        assert tokens(server, "chat", reasoning_effort="medium") == short + 3
        assert tokens(server, "responses", reasoning={"effort": "medium"}) == short + 3
        assert tokens(server, "messages", output_config={"effort": "medium"}) == short + 3
        assert tokens(server, "chat", think="medium") == short + 3


def test_a_prompt_that_opens_it_is_split_without_a_mark(tmp_path: Any, says: Says) -> None:
    with server_of(ALWAYS, tmp_path) as server:
        says(server, f"{THOUGHT}\n</think>\n\n{TEXT}")
        made = server.openai().chat.completions.create(model="thinker", messages=SAID)
        assert (made.choices[0].message.reasoning_content, made.choices[0].message.content) == (THOUGHT, TEXT)
        assert tokens(server, "chat", reasoning_effort="none") == -1, "it always thinks"
        says(server, "x")
        assert tokens(server, "messages", thinking={"type": "enabled", "budget_tokens": 1024}) > 0
        says(server, "x")
        assert tokens(server, "chat", think=True) > 0


def test_earlier_reasoning_is_left_out_as_the_template_does(thinker: Served) -> None:
    turns = [*SAID, {"role": "assistant", "content": TEXT}, *SAID]
    plain = tokens(thinker, "chat", messages=turns)
    marked = [*SAID, {"role": "assistant", "content": f"<think>{THOUGHT}</think>{TEXT}"}, *SAID]
    assert tokens(thinker, "chat", messages=marked) == plain
    apart = [*SAID, {"role": "assistant", "content": TEXT, "reasoning_content": THOUGHT}, *SAID]
    assert tokens(thinker, "chat", messages=apart) == plain
    blocks = [{"type": "thinking", "thinking": THOUGHT, "signature": ""}, {"type": "text", "text": TEXT}]
    assert (
        tokens(thinker, "messages", messages=[*SAID, {"role": "assistant", "content": blocks}, *SAID])
        == plain
    )


def test_a_format_has_no_reasoning(thinker: Served) -> None:
    made = thinker.openai().chat.completions.create(
        model="thinker", messages=SAID, extra_body={"guided_choice": ["<think>a", "<think>b"]}
    )
    assert made.choices[0].message.content in ("<think>a", "<think>b")


def test_a_model_without_it_refuses_by_name(server: Served) -> None:
    client = server.openai()
    with pytest.raises(openai.BadRequestError, match="the model does not think") as error:
        client.chat.completions.create(model="alias", messages=SAID, reasoning_effort="low")
    assert error.value.param == "reasoning_effort"
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(model="alias", input="Hi", reasoning={"effort": "low"})
    assert error.value.param == "reasoning.effort"
    with pytest.raises(anthropic.BadRequestError, match="thinking: It is not supported here"):
        server.anthropic().messages.create(
            model="alias", messages=SAID, max_tokens=1, thinking={"type": "enabled", "budget_tokens": 1024}
        )
    for body in ({"reasoning_effort": "none"}, {"reasoning_effort": None}):
        assert (
            server.http.post(
                "/v1/chat/completions", json={"model": "alias", "messages": SAID, "max_tokens": 1, **body}
            ).status_code
            == 200
        )
