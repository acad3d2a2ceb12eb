"""Clients that go away, stall, or never say all: nothing of them is left, and nobody else waits for them."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from app.server.core.metrics import GONE
from app.server.http import access, protocol
from engine.batch.loop import BatchLoop
from tests.app.server.raw import connect, eventually, hang_up, request
from tests.app.server.served import LONG, Served, served
from tests.drawing import draws

STREAMS = ("/v1/chat/completions", "/v1/completions", "/v1/messages")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of these tests alone, which count what is left."""
    with served(tmp_path_factory.mktemp("alone")) as running:
        yield running


@pytest.fixture
def slow(alone: Served) -> Iterator[None]:
    """A model whose steps take a while, so that there is a midst to go away in."""
    answerer = alone.engine.answerer
    assert isinstance(answerer, BatchLoop)
    answerer.watcher = lambda _: time.sleep(0.003)
    yield
    answerer.watcher = None


def body(server: Served, path: str, *, stream: bool, number: int = 0, **more: Any) -> dict[str, Any]:
    """A request whose answer is long, and whose prompt others share."""
    text = f"{LONG}{number}"
    asked = (
        {"prompt": text} if path == "/v1/completions" else {"messages": [{"role": "user", "content": text}]}
    )
    return {"model": server.model, "stream": stream, "max_tokens": 1500, "temperature": 0, **asked, **more}


def tasks(server: Served) -> int:
    """The tasks of the server's event loop."""
    return asyncio.run_coroutine_threadsafe(_count(), server.loop).result(10)


async def _count() -> int:
    return len(asyncio.all_tasks())


def idle(server: Served) -> bool:
    """Whether nothing is answered, and no place taken."""
    answerer = server.engine.answerer
    assert isinstance(answerer, BatchLoop)
    return not server.service.inside and not answerer.busy


@pytest.mark.usefixtures("slow")
def test_clients_that_vanish_leave_nothing(alone: Served) -> None:
    chance = random.Random(7)
    for path in STREAMS:  # what is made once is there
        httpx.post(alone.url + path, json=body(alone, path, stream=True, max_tokens=1), timeout=60)
    eventually(lambda: idle(alone), "the server comes to rest")
    gc.collect()
    before, held = threading.active_count(), alone.engine.memory_tier.held
    for number in range(draws(100)):
        path, stream = chance.choice(STREAMS), chance.random() < 0.6
        line = connect(alone.url)
        line.sendall(request(path, body(alone, path, stream=stream, number=number)))
        when = chance.choice(("at once", "soon", "in the midst"))
        if when == "in the midst" and stream:
            while b"data:" not in line.recv(4096):
                pass
        elif when != "at once":
            time.sleep(chance.random() * 0.02)
        hang_up(line, rudely=chance.random() < 0.5)
    eventually(lambda: idle(alone), "all that vanished are cancelled")
    recent = alone.service.figures.recent
    eventually(lambda: {one.outcome for one in recent} == {"ended", "done"}, "each has its end")
    assert {one.sentence for one in recent if one.outcome == "ended"} == {GONE}
    gc.collect()
    eventually(lambda: threading.active_count() <= before + 6, "no thread is left but the pool's")
    assert tasks(alone) <= 3
    assert alone.engine.memory_tier.held == held
    assert "pml_requests_inside 0.0" in httpx.get(f"{alone.url}/metrics").text


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("stream", [True, False])
def test_who_vanishes_is_cancelled(alone: Served, stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    eventually(lambda: idle(alone), "the server is at rest")
    passes: list[Any] = []
    answerer: Any = alone.engine.answerer

    def slowly(found: Any) -> None:
        passes.append(found)
        time.sleep(0.003)

    monkeypatch.setattr(answerer, "watcher", slowly)
    with connect(alone.url) as line:
        line.sendall(request("/v1/messages", body(alone, "/v1/messages", stream=stream)))
        eventually(lambda: len(passes) >= 5, "it is answered")
    eventually(lambda: idle(alone), "it is cancelled")
    assert len(passes) < 1000, "most of the 1500 tokens are not computed"


def test_who_reads_nothing_holds_up_nobody_and_is_given_up(
    alone: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "STALLED_SECONDS", 0.3)
    sent = "x" * 200
    # Fills every buffer soon.
    monkeypatch.setattr("app.server.openai.chat.secrets.token_hex", lambda _: sent * 100)
    line = connect(alone.url, window=4096)
    line.sendall(request("/v1/chat/completions", body(alone, "/v1/chat/completions", stream=True)))
    eventually(lambda: alone.service.inside > 0, "it is taken in")
    asked = body(alone, "/v1/completions", stream=False, max_tokens=4)
    assert httpx.post(f"{alone.url}/v1/completions", json=asked, timeout=30).status_code == 200
    eventually(lambda: idle(alone), "a reader that takes nothing loses its place", 30)
    hang_up(line, rudely=True)


def test_half_a_body_is_not_waited_for(alone: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "BODY_SECONDS", 0.2)
    with connect(alone.url) as line:
        line.sendall(request("/v1/messages", body(alone, "/v1/messages", stream=False), cut=30))
        told = b"".join(iter(lambda: line.recv(65536), b""))
    assert told.startswith(b"HTTP/1.1 408")
    assert b'"timeout_error"' in told
    with connect(alone.url) as line:
        line.sendall(request("/v1/messages", body(alone, "/v1/messages", stream=False), cut=30))
    eventually(lambda: tasks(alone) <= 3, "one that hangs up in the midst of its body is forgotten")
    assert alone.service.inside == 0


def test_idle_connections_are_closed_and_cost_others_nothing(
    alone: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.5)
    with ExitStack() as stack:
        lines = [stack.enter_context(connect(alone.url)) for _ in range(150)]
        for number, line in enumerate(lines):
            line.sendall(b"" if number % 2 else b"GET /health HTT")
        assert httpx.get(f"{alone.url}/v1/models").status_code == 200
        assert all(line.recv(100) == b"" for line in lines)
