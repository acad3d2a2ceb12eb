"""Plans and schemas have threads of their own: bounded, in turns, and no answer waits behind them."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.server.core import service as services
from app.server.http.access import Access
from app.server.http.errors import FULL, ApiError
from app.server.http.thread_limits import Lane
from engine.base.errors import CancelledError
from tests.app.server.raw import connect, eventually, hang_up, request
from tests.app.server.served import Served, served

PLAN = "/v1/prompt_cache/plan"
SCHEMAS = "/v1/prompt_cache/schemas"
LONG = services.LONG_PML


class Slow:
    """A stand-in for planning that does not end before it may."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self.may_end = threading.Event()
        self.begun: list[str] = []
        self.at_once = self.most_at_once = 0  # of those over a schema
        self._real, self._lock = real, threading.Lock()

    def __call__(self, engine: Any, asked: Any, files: Any, **how: Any) -> Any:
        with self._lock:
            self.begun.append(asked.messages[-1].blocks[0].text)
            self.at_once += asked.over is not None
            self.most_at_once = max(self.most_at_once, self.at_once)
        self.may_end.wait(20)
        with self._lock:
            self.at_once -= asked.over is not None
        return self._real(engine, asked, files, **how)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow(services.prepared)
    monkeypatch.setattr(services, "prepared", made)
    yield made
    made.may_end.set()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server where three plans may wait."""
    monkeypatch.setattr(services, "LOOKS_WAITING", 3)
    with served(tmp_path) as running:
        yield running


def asked(server: Served, text: str, schema: str = "") -> dict[str, Any]:
    over = {"prompt_cache": {"schema": schema}} if schema else {}
    said = [{"role": "user", "content": text}]
    return {"model": server.model, "messages": said, "max_tokens": 1, **over}


def long_schema() -> str:
    return f'<schema name="long"><user><module name="one">{"word " * (LONG // 5)}</module></user></schema>'


def test_no_answer_waits_behind_plans(server: Served, slow: Slow) -> None:
    with ThreadPoolExecutor(20) as pool, httpx.Client(base_url=server.url, timeout=60) as client:
        plans = [pool.submit(client.post, PLAN, json=asked(server, str(at))) for at in range(10)]
        plans += [pool.submit(client.post, PLAN, json=asked(server, "l", long_schema())) for _ in range(10)]
        eventually(lambda: len(slow.begun) >= 3, "every thread for plans is busy")
        told = httpx.post(f"{server.url}/v1/chat/completions", json=asked(server, "Well?"), timeout=20)
        assert told.status_code == 200
        assert not any(plan.done() for plan in plans)
        slow.may_end.set()
        assert {plan.result().status_code for plan in plans} == {200}


def test_of_long_plans_one_is_made_at_a_time(server: Served, slow: Slow) -> None:
    with ThreadPoolExecutor(5) as pool, httpx.Client(base_url=server.url, timeout=60) as client:
        plans = [pool.submit(client.post, PLAN, json=asked(server, "l", long_schema())) for _ in range(4)]
        eventually(lambda: len(slow.begun) == 1, "one has begun")
        short = pool.submit(client.post, PLAN, json=asked(server, "short"))
        eventually(lambda: "short" in slow.begun, "a short one does not wait behind long ones")
        slow.may_end.set()
        assert {plan.result().status_code for plan in (*plans, short)} == {200}
    assert (slow.begun.count("l"), slow.most_at_once) == (4, 1)


def test_the_collector_leaves_long_documents_alone_while_they_are_read(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[str, bool]] = []

    def noting(real: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*given: Any, **how: Any) -> Any:
            asked = given[1][0] if isinstance(given[1], tuple) else given[1]
            found.append((asked.messages[-1].blocks[0].text, gc.isenabled()))
            return real(*given, **how)

        return noted

    for name in ("prepared", "submitted"):
        monkeypatch.setattr(services, name, noting(getattr(services, name)))
    for path in (PLAN, "/v1/chat/completions"):
        for text, schema in (("long", long_schema()), ("short", ""), ("faulty", f"<schema {' ' * LONG}")):
            told = httpx.post(server.url + path, json=asked(server, text, schema), timeout=60)
            assert told.status_code == (400 if text == "faulty" else 200)
            assert gc.isenabled()
    assert found == [("long", False), ("short", True), ("faulty", False)] * 2


def test_who_finds_too_many_waiting_is_told_to_come_again(own: Served, slow: Slow) -> None:
    with ThreadPoolExecutor(8) as pool, httpx.Client(base_url=own.url, timeout=60) as client:
        two = [pool.submit(client.post, PLAN, json=asked(own, str(at))) for at in range(2)]
        eventually(lambda: len(slow.begun) == 2, "the threads are busy")
        more = [pool.submit(client.get, SCHEMAS) for _ in range(4)]
        eventually(lambda: any(one.done() for one in more), "one is refused")
        (refused,) = [one.result() for one in more if one.done()]
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert client.get("/health").status_code == 200
        slow.may_end.set()
        assert sorted(one.result().status_code for one in (*two, *more)) == [200] * 5 + [429]


def test_what_nobody_waits_for_any_more_is_not_begun(own: Served, slow: Slow) -> None:
    def waits(_: int) -> bool:
        try:
            return client.get(SCHEMAS, timeout=0.3).status_code == 200
        except httpx.ReadTimeout:
            return True

    with ThreadPoolExecutor(5) as pool, httpx.Client(base_url=own.url, timeout=60) as client:
        two = [pool.submit(client.post, PLAN, json=asked(own, str(at))) for at in range(2)]
        eventually(lambda: len(slow.begun) == 2, "the threads are busy")
        lines = [connect(own.url) for _ in range(3)]
        for line in lines:
            line.sendall(request(PLAN, asked(own, "gone")))
        eventually(lambda: not waits(0), "no more fit")
        for line in lines:
            hang_up(line, rudely=True)
        eventually(lambda: all(pool.map(waits, range(3))), "all three are forgotten")
        slow.may_end.set()
        assert {one.result().status_code for one in two} == {200}
        assert client.get(SCHEMAS).status_code == 200
    assert "gone" not in slow.begun


def test_clients_take_turns_for_long_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, real, may_end = list[str](), services.submitted, threading.Event()

    def slow(engine: Any, asked: Any, *given: Any) -> Any:
        begun.append(asked[0].messages[-1].blocks[0].text)
        may_end.wait(20)
        return real(engine, asked, *given)

    monkeypatch.setattr(services, "submitted", slow)
    with served(tmp_path, access=Access(keys=("a", "b"))) as server, ThreadPoolExecutor(4) as pool:
        path, answers = f"{server.url}/v1/chat/completions", []
        for number, text in enumerate(("a1", "a2", "a3", "b1"), 1):
            more = {"json": asked(server, text, long_schema()), "headers": {"x-api-key": text[0]}}
            answers.append(pool.submit(httpx.post, path, timeout=60, **more))  # type: ignore[arg-type]
            eventually(lambda number=number: server.service.inside == number, "it is taken in")  # type: ignore[misc]
        may_end.set()
        assert {one.result().status_code for one in answers} == {200}
    assert begun == ["a1", "a2", "b1", "a3"]


def test_clients_take_turns_and_what_is_first_goes_first() -> None:
    async def play() -> list[str]:
        lane, done, gate = Lane(1, 10, "lane"), list[str](), threading.Event()
        busy = asyncio.ensure_future(lane.run(lambda: gate.wait(10), "a"))
        await asyncio.sleep(0)
        waiting = [
            asyncio.ensure_future(lane.run(lambda name=name: done.append(name), name[0], first=name == "c"))
            for name in ("a1", "a2", "a3", "b1", "b2", "c")
        ]
        await asyncio.sleep(0)
        assert lane.waiting == 6
        gate.set()
        await asyncio.gather(busy, *waiting)
        assert lane.waiting == 0
        return done

    assert asyncio.run(play()) == ["c", "a1", "b1", "a2", "b2", "a3"]


def test_a_lane_that_was_full_or_left_goes_on() -> None:
    async def play() -> None:
        lane, gate, left = Lane(1, 1, "lane"), threading.Event(), asyncio.Event()
        busy = asyncio.ensure_future(lane.run(lambda: gate.wait(10), "a"))
        await asyncio.sleep(0)
        waits = asyncio.ensure_future(lane.run(lambda: 1, "a", left.wait))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as refused:
            await lane.run(lambda: 2, "b")
        assert refused.value.kind is FULL
        left.set()
        with pytest.raises(CancelledError):
            await waits
        again = asyncio.ensure_future(lane.run(lambda: 3, "b"))
        await asyncio.sleep(0)
        dropped = asyncio.ensure_future(lane.run(lambda: 4, "c", first=True))
        await asyncio.sleep(0)
        dropped.cancel()
        gate.set()
        assert (await busy, await again) == (True, 3)
        with pytest.raises(asyncio.CancelledError):
            await dropped
        with pytest.raises(ZeroDivisionError):
            await lane.run(lambda: 1 // 0, "b")
        assert await lane.run(lambda: 5, "b") == 5

    asyncio.run(play())
