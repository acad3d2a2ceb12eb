"""Several answers to one request: draws of one prompt, and several prompts, streamed or not."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from engine.batch.loop import BatchLoop
from engine.batch.passes import Pass
from engine.inference.submission import Submission
from tests.app.server.served import LONG, Served

SAID: list[Any] = [{"role": "user", "content": "One day in April?"}]
CHAT: dict[str, Any] = {"model": "alias", "messages": SAID, "max_tokens": 6, "temperature": 1.5, "seed": 5}
TEXT: dict[str, Any] = {"model": "alias", "max_tokens": 5, "temperature": 1.5, "seed": 5}
TEXTS = ["A cold day", "The clocks were"]
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def gathered(chunks: Iterator[Any]) -> tuple[dict[int, str], dict[int, str], list[int], Any]:
    """The texts and the ends of a stream's choices, the order of their chunks, and the usage."""
    texts, ends, order, usage = defaultdict[int, str](str), dict[int, str](), list[int](), None
    for chunk in chunks:
        for choice in chunk.choices:
            assert choice.index not in ends, "nothing follows the end of a choice"
            piece = choice.delta.content if hasattr(choice, "delta") else choice.text
            texts[choice.index] += piece or ""
            order.append(choice.index)
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason
        usage = chunk.usage or usage
    return dict(texts), ends, order, usage


def test_draws_of_a_chat_differ_and_each_has_its_seed(server: Served) -> None:
    client = server.openai()
    made = client.chat.completions.create(**CHAT, n=3)
    alone = [client.chat.completions.create(**{**CHAT, "seed": 5 + number}) for number in range(3)]
    assert [choice.index for choice in made.choices] == [0, 1, 2]
    texts = [choice.message.content for choice in made.choices]
    assert texts == [one.choices[0].message.content for one in alone]
    assert len({*texts}) == 3
    assert made.usage.prompt_tokens == alone[0].usage.prompt_tokens, "the prompt counts once"
    assert made.usage.completion_tokens == sum(one.usage.completion_tokens for one in alone)


def test_a_stream_of_draws_has_their_indexes(server: Served) -> None:
    client = server.openai()
    whole = client.chat.completions.create(**CHAT, n=4)
    texts, ends, order, usage = gathered(client.chat.completions.create(**CHAT, n=4, **USAGE))
    assert texts == {choice.index: choice.message.content for choice in whole.choices}
    assert ends == {choice.index: choice.finish_reason for choice in whole.choices}
    assert order != sorted(order), "the choices come at the same time"
    assert (usage.prompt_tokens, usage.completion_tokens) == (
        whole.usage.prompt_tokens,
        whole.usage.completion_tokens,
    )
    assert [*texts] == [0, 1, 2, 3], "they begin in order: the client's own stream appends them"
    with client.chat.completions.stream(**CHAT, n=4) as stream:
        stream.until_done()
        found = stream.current_completion_snapshot.choices
    assert [choice.message.content for choice in found] == [*texts.values()]


def test_further_draws_read_the_prompt_that_the_first_computed(server: Served) -> None:
    passes: list[Pass] = []
    answerer = server.engine.answerer
    assert isinstance(answerer, BatchLoop)
    answerer.watcher = passes.append
    try:
        said = [{"role": "user", "content": f"For draws. {LONG}{LONG}"}]
        made = server.openai().chat.completions.create(**{**CHAT, "messages": said}, n=4)
    finally:
        answerer.watcher = None
    prompt = made.usage.prompt_tokens
    assert prompt > 300
    assert sum(one.rows for one in passes) < 2 * prompt
    assert made.usage.prompt_tokens_details.cached_tokens < 64


def test_several_texts_are_answered_together(server: Served) -> None:
    client = server.openai()
    alone = [
        client.completions.create(**{**TEXT, "prompt": text, "seed": seed})
        for text in TEXTS
        for seed in (5, 6)
    ]
    whole = client.completions.create(**TEXT, prompt=TEXTS, n=2, logprobs=1)
    assert [(one.index, one.text) for one in whole.choices] == [
        (number, one.choices[0].text) for number, one in enumerate(alone)
    ]
    assert whole.usage.prompt_tokens == sum(one.usage.prompt_tokens for one in alone[::2])
    assert whole.usage.completion_tokens == sum(one.usage.completion_tokens for one in alone)
    texts, ends, order, usage = gathered(client.completions.create(**TEXT, prompt=TEXTS, n=2, **USAGE))
    assert texts == {one.index: one.text for one in whole.choices}
    assert len(ends) == 4
    assert order != sorted(order)
    assert usage.total_tokens == whole.usage.total_tokens
    offsets = [one.logprobs.text_offset[0] for one in whole.choices]
    assert offsets == [0] * 4


@pytest.mark.parametrize("echo", [False, True])
def test_tokens_and_echoes_are_streamed(server: Served, echo: bool) -> None:
    client, tokens = server.openai(), [server.engine.model.tokenize(text) for text in TEXTS]
    for prompt in (TEXTS, TEXTS[0]) if echo else (tokens, tokens[0]):
        ask = {**TEXT, "prompt": prompt, "n": 2, "logprobs": 1, "echo": echo}
        whole = client.completions.create(**ask)
        chunks = [*client.completions.create(**ask, **USAGE)]
        texts, ends, _, usage = gathered(iter(chunks))
        assert texts == {one.index: one.text for one in whole.choices}
        assert ends == {one.index: one.finish_reason for one in whole.choices}
        assert usage.total_tokens == whole.usage.total_tokens
        pieces = [choice for chunk in chunks for choice in chunk.choices]
        assert len(pieces) > 2 * len(texts), "each token is sent as it comes"
        for one in whole.choices:
            scored = [piece.logprobs for piece in pieces if piece.index == one.index and piece.logprobs]
            for name in ("tokens", "text_offset"):
                streamed = [item for logprobs in scored for item in getattr(logprobs, name)]
                assert streamed == getattr(one.logprobs, name)
    texts = [choice.text for choice in whole.choices]
    assert len({*texts}) == 2


def test_an_echo_without_an_answer_is_streamed(server: Served) -> None:
    ask: dict[str, Any] = {"model": "alias", "prompt": TEXTS, "echo": True, "max_tokens": 0}
    texts, ends, _, usage = gathered(server.openai().completions.create(**ask, **USAGE))
    assert texts == dict(enumerate(TEXTS))
    assert ends == {0: "length", 1: "length"}
    assert usage.completion_tokens == 0


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("chat/completions", {"messages": SAID, "n": 0}, "n is 0; it must be 1 to 16"),
        ("chat/completions", {"messages": SAID, "n": 17}, "n is 17; it must be 1 to 16"),
        ("chat/completions", {"messages": SAID, "n": 2, "prompt_cache_options": {"prewarm": True}}, "1 to 1"),
        ("completions", {"prompt": ["a"] * 129, "n": 2}, "258 answers; the maximum is 256"),
        ("responses", {"input": "a", "n": 2}, "use /v1/chat/completions"),
    ],
)
def test_too_many_answers_are_refused(server: Served, path: str, body: Any, says: str) -> None:
    answer = server.http.post(f"/v1/{path}", json={"model": "alias", **body})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")
    assert says in answer.json()["error"]["message"]


def test_a_text_that_is_too_long_is_refused_before_the_stream(server: Served) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        server.openai().completions.create(**TEXT, prompt=["a", LONG * 30], stream=True)
    assert (error.value.code, error.value.param) == ("context_length_exceeded", "prompt[1]")


def test_a_client_that_leaves_ends_all_draws(server: Served) -> None:
    for path, body in (
        ("chat/completions", {**CHAT, "n": 16, "max_tokens": 500}),
        ("completions", {**TEXT, "prompt": [[5, 6], [7]], "max_tokens": 500}),
    ):
        with server.http.stream("POST", f"/v1/{path}", json={**body, "stream": True}) as answer:
            next(answer.iter_lines())
        until = time.monotonic() + 30
        while server.service.inside and time.monotonic() < until:
            time.sleep(0.01)
        assert server.service.inside == 0, path


def test_a_draw_that_fails_ends_the_stream_with_its_error(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = server.engine.answerer.submit

    def broken(submission: Submission) -> Any:
        if submission.settings.seed == 7:
            raise ValueError("a secret")
        return submit(submission)

    monkeypatch.setattr(server.engine.answerer, "submit", broken)
    with pytest.raises(openai.APIError, match="see its log") as error:
        [*server.openai().chat.completions.create(**CHAT, n=3, stream=True)]
    assert error.value.code == "internal_error"
    with pytest.raises(openai.InternalServerError):
        server.openai().chat.completions.create(**CHAT, n=3)
    assert server.service.inside == 0
