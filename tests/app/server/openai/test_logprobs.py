"""Log-probabilities of chats and texts, in a whole answer, a stream and an echo."""

from __future__ import annotations

import math
from typing import Any

import openai
import pytest

from tests.app.server.served import Served

CHAT: dict[str, Any] = {
    "model": "alias",
    "messages": [{"role": "user", "content": "Grüße, 東京!"}],
    "temperature": 0,
    "max_tokens": 8,
    "logprobs": True,
    "top_logprobs": 3,
}
TEXT: dict[str, Any] = {"model": "alias", "prompt": "A cold day in April", "temperature": 0, "logprobs": 2}


def test_a_chat_has_those_of_its_tokens_streamed_or_not(server: Served) -> None:
    client = server.openai()
    (whole,) = client.chat.completions.create(**CHAT).choices
    streamed = [
        one
        for chunk in client.chat.completions.create(**CHAT, stream=True)
        if chunk.choices[0].logprobs is not None
        for one in chunk.choices[0].logprobs.content
    ]
    content = whole.logprobs.content
    assert [one.token for one in streamed] == [one.token for one in content]
    assert [one.logprob for one in streamed] == pytest.approx([one.logprob for one in content], abs=1e-4)
    assert len(content) in (7, 8)  # without the end of the answer
    for one in content:
        assert one.logprob == one.top_logprobs[0].logprob  # at temperature 0
        assert len(one.top_logprobs) == 3
    spelled = bytes(byte for one in content for byte in one.bytes)
    assert spelled.decode("utf-8", "replace") == whole.message.content
    plain = client.chat.completions.create(**{**CHAT, "logprobs": None, "top_logprobs": None})
    assert plain.choices[0].logprobs is None


def test_a_completion_has_those_of_its_tokens_streamed_or_not(server: Served) -> None:
    client = server.openai()
    (whole,) = client.completions.create(**TEXT, max_tokens=6).choices
    streamed = [
        chunk.choices[0].logprobs
        for chunk in client.completions.create(**TEXT, max_tokens=6, stream=True)
        if chunk.choices[0].logprobs is not None
    ]
    told = whole.logprobs
    assert [token for one in streamed for token in one.tokens] == told.tokens
    assert [offset for one in streamed for offset in one.text_offset] == told.text_offset
    logprobs = [logprob for one in streamed for logprob in one.token_logprobs]
    assert logprobs == pytest.approx(told.token_logprobs, abs=1e-4)
    for logprob, best in zip(told.token_logprobs, told.top_logprobs, strict=True):
        assert logprob == max(best.values())


def test_an_echo_scores_the_prompt(server: Served) -> None:
    """As lm-evaluation-harness asks for it, with the tokens of the prompt."""
    client, text = server.openai(), TEXT["prompt"]
    tokens = server.engine.model.tokenize(text)
    assert tokens == server.engine.model.tokenizer(text)["input_ids"]
    ask = {**TEXT, "echo": True, "max_tokens": 1}
    (spelled,) = client.completions.create(**{**ask, "prompt": tokens}).choices
    plain, other = client.completions.create(**{**ask, "prompt": [text, text[:6]]}).choices
    only = client.completions.create(**{**ask, "prompt": [tokens], "max_tokens": 0})
    assert spelled.text == plain.text
    assert plain.text.startswith(text)
    assert spelled.logprobs.token_logprobs == plain.logprobs.token_logprobs
    assert plain.logprobs.text_offset[:3] == [0, 1, 2]
    assert (plain.index, other.index) == (0, 1)
    told = only.choices[0].logprobs
    assert (only.choices[0].text, only.usage.completion_tokens) == (text, 0)
    assert "".join(told.tokens) == text
    assert told.text_offset == [len("".join(told.tokens[:place])) for place in range(len(told.tokens))]
    assert (told.token_logprobs[0], told.top_logprobs[0]) == (None, None)
    assert all(math.isfinite(logprob) and logprob < 0 for logprob in told.token_logprobs[1:])
    begun = other.logprobs.token_logprobs[1:6]  # the sixth is the answer's
    assert begun == pytest.approx(plain.logprobs.token_logprobs[1:6], abs=1e-3)


def test_offsets_count_characters_of_several_tokens(server: Served) -> None:
    text = "東🗼é ab"
    ask = {**TEXT, "prompt": text, "echo": True, "max_tokens": 0}
    told = server.openai().completions.create(**ask).choices[0].logprobs
    bytes_of = [place for place, char in enumerate(text) for _ in char.encode()]
    found = set(zip(told.text_offset, told.tokens, strict=True))
    assert len(told.tokens) == len(bytes_of)
    assert told.text_offset == bytes_of, found


@pytest.mark.parametrize(
    ("changes", "param", "says"),
    [
        ({"prompt": []}, "prompt", "0 texts"),
        ({"prompt": [[]]}, "prompt", "no tokens"),
        ({"prompt": [5, 10**6]}, "prompt", "Token 1 of the prompt is 1000000"),
        ({"prompt": [[5], []], "echo": True}, "prompt[1]", "no tokens"),
        ({"prompt": ["a", ""]}, "prompt[1]", "no tokens"),
        ({"prompt": [[5], []], "stream": True}, "prompt[1]", "no tokens"),
        ({"prompt": [5, 10**6], "stream": True}, "prompt", "Token 1 of the prompt is 1000000"),
        ({"logprobs": 21}, "logprobs", "0 to 20"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
    ],
)
def test_what_cannot_be_scored_says_why(server: Served, changes: Any, param: str, says: str) -> None:
    with pytest.raises(openai.BadRequestError, match=says) as caught:
        server.openai().completions.create(**{**TEXT, **changes})
    assert caught.value.param == param


@pytest.mark.parametrize("changes", [{"top_logprobs": 21}, {"logprobs": False}])
def test_alternatives_out_of_range_are_refused(server: Served, changes: Any) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        server.openai().chat.completions.create(**{**CHAT, **changes})
    assert caught.value.param == "top_logprobs"
