"""Requests that are drawn, over both dialects and all endpoints: text and usage, plain, streamed and counted.

`PML_DRAWN_REQUESTS=500` draws as many; a run of all tests draws fewer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from engine import Engine
from engine.base.events import Answer
from engine.store import Store
from tests.app.server.drawn import CHAT, MESSAGES, RESPONSES, SCHEMAS, TEXT, Request, drawn, with_stop
from tests.app.server.served import FAMILY, Served, served
from tests.drawing import draws
from tests.engine.cases import model_of

COUNT = int(os.environ.get("PML_DRAWN_REQUESTS", draws(80)))
STOPPED = {"eos": "stop", "stop": "stop", "length": "length"}
ENDED = {"eos": "end_turn", "stop": "stop_sequence", "length": "max_tokens"}


@dataclass(frozen=True)
class Told:
    """What a client was told of an answer."""

    text: str
    ending: str
    prompt: int
    read: int
    written: int
    generated: int
    report: dict[str, Any] | None

    @property
    def same(self) -> tuple[str, str, int, int]:
        """What does not depend on what was there."""
        return self.text, self.ending, self.prompt, self.generated


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of these tests alone, which has read much."""
    with served(tmp_path_factory.mktemp("crowded")) as running:
        yield running


@pytest.fixture(scope="module")
def client(crowded: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=crowded.url, timeout=60) as made:
        for name, text in SCHEMAS.items():
            assert made.put(f"/v1/prompt_cache/schemas/{name}", json={"pml": text}).status_code == 201
        yield made


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine with a store of its own, which knows nothing of what the server has read."""
    with Engine(model_of(FAMILY), Store.open(tmp_path_factory.mktemp("other"))) as made:
        yield made


@pytest.mark.parametrize("number", range(COUNT))
def test_what_is_drawn_is_answered_and_counted_alike(
    crowded: Served, client: httpx.Client, other: Engine, number: int
) -> None:
    request = drawn(number)
    request = replace(request, stop=with_stop(request, request.answer(other, ()).text, number))
    expected = request.answer(other)
    body = request.body(crowded.model)
    total = counted(client, request, body)
    asks = [whole, streamed] if not request.stream_first else [streamed, whole]
    first, second = (ask(client, request.endpoint, body) for ask in asks)
    assert first.same == second.same == wanted(request, expected)
    if total is not None:
        assert total == first.prompt
    for told in (first, second):
        assert min(told.read, told.written, told.prompt - told.read - told.written) >= 0
        if told.report is not None:
            counts = told.report["read"], told.report["written"], told.report["computed"]
            assert counts == (told.read, told.written, told.prompt - told.read)
    assert second.read >= first.read + first.written, "what was written is there for the next one"
    assert ("include" in body) == (second.report is not None)


def wanted(request: Request, answer: Answer) -> tuple[str, str, int, int]:
    """What the dialect says of the engine's answer."""
    if request.endpoint == RESPONSES:
        ending = "incomplete" if answer.stopped == "length" else "completed"
    elif request.endpoint == MESSAGES:
        ending = f"{ENDED[answer.stopped]} {answer.stop}"
    else:
        ending = STOPPED[answer.stopped]
    return answer.text, ending, answer.tokens["prompt"], answer.tokens["generated"]


def counted(client: httpx.Client, request: Request, body: dict[str, Any]) -> int | None:
    """The tokens of its prompt, as a client can ask for them before; None where it cannot."""
    if request.endpoint == MESSAGES:
        found = client.post("/v1/messages/count_tokens", json=body)
        name = "input_tokens"
    elif request.endpoint == CHAT:
        found = client.post("/v1/prompt_cache/plan", json=body)
        name = "total"
    else:
        return None
    assert found.status_code == 200, found.text
    return int(found.json()[name])


def whole(client: httpx.Client, endpoint: str, body: dict[str, Any]) -> Told:
    """Asks for an answer in one piece."""
    found = client.post(endpoint, json=body)
    assert found.status_code == 200, found.text
    made = found.json()
    match endpoint:
        case "/v1/messages":
            text = "".join(block["text"] for block in made["content"])
            return _told(endpoint, made, text, f"{made['stop_reason']} {made['stop_sequence']}")
        case "/v1/responses":
            text = "".join(part["text"] for item in made["output"] for part in item["content"])
            return _told(endpoint, made, text, made["status"])
        case "/v1/completions":
            return _told(endpoint, made, made["choices"][0]["text"], made["choices"][0]["finish_reason"])
    choice = made["choices"][0]
    return _told(endpoint, made, choice["message"]["content"], choice["finish_reason"])


def streamed(client: httpx.Client, endpoint: str, body: dict[str, Any]) -> Told:
    """Asks for an answer in events."""
    usage = {"stream_options": {"include_usage": True}} if endpoint in (CHAT, TEXT) else {}
    found = client.post(endpoint, json={**body, **usage, "stream": True})
    assert found.status_code == 200, found.text
    events = [
        json.loads(line[6:])
        for event in found.text.split("\n\n")
        for line in event.split("\n")
        if line.startswith("data: {")
    ]
    match endpoint:
        case "/v1/messages":
            return _streamed_message(events)
        case "/v1/responses":
            text = "".join(one["delta"] for one in events if one["type"] == "response.output_text.delta")
            made = events[-1]["response"]
            assert [part["text"] for part in made["output"][0]["content"]] == [text]
            return _told(endpoint, made, text, made["status"])
    *chunks, last = events
    assert found.text.endswith("data: [DONE]\n\n")
    assert last["choices"] == []
    assert all(one["usage"] is None for one in chunks)
    (finish,) = [one["choices"][0]["finish_reason"] for one in chunks if one["choices"][0]["finish_reason"]]
    if endpoint == CHAT:
        text = "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks)
    else:
        text = "".join(one["choices"][0]["text"] for one in chunks)
    return _told(endpoint, last, text, finish)


def _streamed_message(events: list[dict[str, Any]]) -> Told:
    (begun,) = [one["message"] for one in events if one["type"] == "message_start"]
    (ended,) = [one for one in events if one["type"] == "message_delta"]
    text = "".join(one["delta"]["text"] for one in events if one["type"] == "content_block_delta")
    stop = f"{ended['delta']['stop_reason']} {ended['delta']['stop_sequence']}"
    first, last = _told(MESSAGES, begun, text, stop), _told(MESSAGES, ended, text, stop)
    assert (first.prompt, first.read, first.written) == (last.prompt, last.read, last.written)
    return last


def _told(endpoint: str, made: dict[str, Any], text: str, ending: str) -> Told:
    usage, report = made["usage"], made.get("prompt_cache")
    if endpoint == MESSAGES:
        read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        assert sum(usage["cache_creation"].values()) == written
        prompt, generated = usage["input_tokens"] + read + written, usage["output_tokens"]
        return Told(text, ending, prompt, read, written, generated, report)
    kind, said = ("input", "output") if endpoint == RESPONSES else ("prompt", "completion")
    details = usage[f"{kind}_tokens_details"]
    read, written = details["cached_tokens"], details["cache_write_tokens"]
    prompt, generated = usage[f"{kind}_tokens"], usage[f"{said}_tokens"]
    assert usage["total_tokens"] == prompt + generated
    if "cache_write_tokens_details" in details:
        assert sum(details["cache_write_tokens_details"].values()) == written
    return Told(text, ending, prompt, read, written, generated, report)
