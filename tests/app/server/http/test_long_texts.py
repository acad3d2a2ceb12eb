"""Texts that are far too long, and very long ones that fit: nobody else waits for either."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest

from app.server.core import limits
from app.server.core.request import Asked, Block, Message
from app.server.http.errors import ApiError
from engine.base.errors import CancelledError
from engine.checkpoint.synthetic import byte_tokenizer
from engine.inference.run_settings import RunSettings
from engine.model.model import Model
from engine.prompt.template.tokenizer import Tokenizer
from tests.app.server.served import LONG, Served, served
from tests.engine.tiny import tiny_network

SETTINGS = RunSettings()
WINDOW = 1 << 18


@contextmanager
def gaps(do: Callable[[], Any]) -> Iterator[list[float]]:
    """How long something took each time, of what is done again and again until the block ends, in seconds."""
    found, ended = list[float](), threading.Event()

    def again() -> None:
        while not ended.is_set():
            started = time.perf_counter()
            do()
            found.append(time.perf_counter() - started)

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses", "messages", "schema"])
def test_what_is_far_too_long_is_not_tokenized_whole(
    server: Served, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    long, counted = LONG * 20_000, list[int]()
    count, said = server.engine.count_tokens, [{"role": "user", "content": long}]

    def counting(text: str) -> int:
        counted.append(len(text))
        return count(text)

    monkeypatch.setattr(server.engine, "count_tokens", counting)
    monkeypatch.setattr(server.engine, "conversation", None)
    monkeypatch.setattr(server.engine, "schema", None)
    asked: dict[str, Any] = {"model": server.model, "messages": said, "max_tokens": 1}
    if path == "completions":
        asked = {"model": server.model, "prompt": long}
    if path == "responses":
        asked = {"model": server.model, "input": long}
    if path == "schema":
        asked["prompt_cache"] = {"schema": '<schema name="a"/>'}
        path = "chat/completions"
    told = server.http.post(f"/v1/{path}", json=asked)
    assert told.status_code == 400
    assert "tokens or more > 2047 maximum" in told.json()["error"]["message"]
    assert 0 < sum(counted) < 50_000


def test_what_templates_leave_out_counts_for_nothing(server: Served) -> None:
    def required(*messages: Message) -> None:
        limits.require_room(server.engine, Asked("m", SETTINGS, messages))

    required(Message("user", (Block(" " * 500_000 + "Hello" + "\n" * 500_000),)))
    required(Message("assistant", (Block("Let me think. " * 50_000 + "</think>Yes."),)))
    with pytest.raises(ApiError):
        required(Message("assistant", (Block("</think>" + "Yes. " * 50_000),)))
    with pytest.raises(ApiError):
        required(*(Message("user", (Block("x"),)) for _ in range(2048)))


def test_texts_of_the_window_are_left_to_the_plan(server: Served) -> None:
    """Which alone knows how many tokens a prompt has."""
    for tokens, status in ((2000, 200), (2100, 400), (4000, 400)):
        said = {"messages": [{"role": "user", "content": "x" * tokens}], "max_tokens": 1}
        told = server.http.post("/v1/messages", json={"model": server.model, **said})
        assert told.status_code == status
        assert "or more" not in told.text


@pytest.mark.long
def test_other_threads_go_on_while_a_long_text_is_tokenized() -> None:
    tokenizer, text = Tokenizer(byte_tokenizer()), LONG * 2000
    started = time.perf_counter()
    with gaps(lambda: time.sleep(0.001)) as slept:
        tokens = tokenizer.plain(text)
    took = time.perf_counter() - started
    assert len(tokens) == len(text)
    assert max(slept) < took / 2
    assert tokenizer.plain(text[:4000]) == tokens[:4000], "however long the text is"


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose model reads very long prompts."""
    model = Model("roomy", tiny_network(length=WINDOW), byte_tokenizer(), "roomy")
    with served(tmp_path_factory.mktemp("roomy"), model=model) as running:
        yield running


@pytest.mark.long
@pytest.mark.parametrize("blocks", [1, 4])
def test_the_server_answers_while_the_longest_prompt_is_prepared(
    roomy: Served, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(*_: Any, marks: Any, **__: Any) -> None:
        assert len(marks) == blocks
        raise CancelledError("Prepared.")

    monkeypatch.setattr(roomy.engine, "submit", submit)  # computing it would take minutes
    size = (WINDOW - 100) // blocks
    content = [
        {"type": "text", "text": f"{number} {LONG * 2000}"[:size], "cache_control": {"type": "ephemeral"}}
        for number in range(blocks)
    ]
    asked = {"model": "roomy", "max_tokens": 1, "messages": [{"role": "user", "content": content}]}
    with httpx.Client(base_url=roomy.url) as other, gaps(lambda: other.get("/health")) as waited:
        started = time.perf_counter()
        told = roomy.http.post("/v1/messages", json=asked)
        took = time.perf_counter() - started
    assert told.status_code == 529
    assert max(waited) < max(1, took / 2)


def test_a_flood_of_messages_keeps_nobody_waiting(server: Served, tmp_path: Path) -> None:
    many = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}] * 4_000
    for path, field in (("chat/completions", "messages"), ("messages", "messages"), ("responses", "input")):
        asked = {"model": server.model, "max_tokens": 1, field: many}
        told = server.http.post(f"/v1/{path}", json=asked)
        assert told.status_code == 400
        assert "8000 tokens or more > 2047 maximum" in told.json()["error"]["message"]
    empty = [
        {"role": "user", "content": ""},
        {"role": "assistant", "content": [{"type": "text", "text": ""}]},
    ]
    asked = {"model": server.model, "messages": [*empty * 1100, {"role": "user"}]}
    told = server.http.post("/v1/chat/completions", json=asked)
    assert "or more" not in told.text, "of messages without a text nothing is known before"


@pytest.mark.parametrize("times", [3, 40])
def test_what_does_not_fit_is_counted_all_the_same(server: Served, times: int) -> None:
    most = server.engine.model.context_length
    line = "A line of a long document. "
    text = line * (times * most // server.engine.count_tokens(line))
    messages: Any = [{"role": "user", "content": text}]
    client = server.anthropic().messages
    counted = client.count_tokens(model=server.model, messages=messages).input_tokens
    assert abs(counted - server.engine.count_tokens(text)) < 64
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        client.create(model=server.model, messages=messages, max_tokens=1)


def test_what_is_beyond_all_measure_is_not_counted(server: Served) -> None:
    text = "word " * (60 * server.engine.model.context_length)
    with pytest.raises(anthropic.BadRequestError, match=r"tokens or more > \d+ maximum"):
        server.anthropic().messages.count_tokens(
            model=server.model, messages=[{"role": "user", "content": text}]
        )
