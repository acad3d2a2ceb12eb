"""Streams of the studio: many at once, listeners who leave, and the threads that others need."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.concurrency import run_in_threadpool

from app.remote.client import FULL
from app.remote.presence import Presence
from app.remote.terms import Held
from app.studio.model import remote_runs as handed_runs
from app.studio.model.remote_runs import Handed
from app.studio.web.event_stream import Following
from app.studio.web.jobs import Job, Jobs, Result
from engine import Engine
from engine.base.errors import PromptCacheError
from engine.base.events import Delta

MANY = 60
SECONDS = 60.0


class Listener:
    """The other side of a stream, which can go away."""

    def __init__(self, answer: Callable[..., Any], scope: dict[str, Any], body: bytes = b"") -> None:
        self.status, self.text, self._body = 0, b"", body
        self._sent, self._left = False, asyncio.Event()
        self.task = asyncio.ensure_future(answer({"type": "http", **scope}, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": self._body}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.text += message.get("body", b"")

    async def leave(self) -> None:
        """Goes away, and waits until that was noticed."""
        self._left.set()
        await asyncio.wait_for(self.task, SECONDS)

    async def hear(self, words: bytes) -> None:
        """Waits until words have come."""
        async with asyncio.timeout(SECONDS):
            while words not in self.text:
                await asyncio.sleep(0.005)


async def answered() -> bool:
    """Whether a question of a page gets a thread."""
    with suppress(TimeoutError):
        return await asyncio.wait_for(run_in_threadpool(lambda: True), SECONDS)
    return False


def endless(go: threading.Event) -> Callable[[Job], Result]:
    """Work that goes on until it is told to stop, or to end."""

    def work(job: Job) -> Result:
        until = time.monotonic() + SECONDS
        while not go.wait(0.01):
            job.progress(1, 2, "a step")
            assert time.monotonic() < until
        raise PromptCacheError("The end.")

    return work


def silent(go: threading.Event) -> Callable[[Job], Result]:
    """Work of which nothing is to be told for long."""

    def work(job: Job) -> Result:
        assert go.wait(SECONDS)
        job.progress(1, 1, "the end")
        raise PromptCacheError("The end.")

    return work


def following(jobs: Jobs) -> Callable[[], Listener]:
    follow = Following(jobs, "").follow
    return lambda: Listener(
        follow, {"method": "GET", "path": "/work", "query_string": b"key=k", "headers": []}
    )


@pytest.mark.parametrize("kind", [endless, silent])
def test_who_follows_work_takes_no_thread_from_questions(kind: Callable[..., Any]) -> None:
    go, jobs = threading.Event(), Jobs()

    async def scene() -> None:
        jobs.start(Job("k", kind(go), "test"))
        listen = following(jobs)
        listeners = [listen() for _ in range(MANY)]
        for one in listeners:
            await one.hear(b"\n")
        assert await answered()
        go.set()
        for one in listeners:
            await asyncio.wait_for(one.task, SECONDS)
            told = [json.loads(line) for line in one.text.splitlines()]
            assert [state["over"] for state in told] == [False] * (len(told) - 1) + [True]
            assert told[-1]["fault"] == "The end."

    asyncio.run(scene())


@pytest.mark.parametrize("kind", [endless, silent])
def test_work_goes_on_until_its_last_listener_has_left(kind: Callable[..., Any]) -> None:
    go, jobs = threading.Event(), Jobs()

    async def scene() -> None:
        job = jobs.start(Job("k", kind(go), "test"))
        listen = following(jobs)
        first, *others = [listen() for _ in range(3)]
        for one in (first, *others):
            await one.hear(b"\n")
        for one in others:
            await one.leave()
        assert not job.stopping
        await first.leave()
        assert job.stopping
        go.set()

    asyncio.run(scene())


def test_who_comes_when_work_is_over_and_leaves_has_not_stopped_it() -> None:
    go, jobs = threading.Event(), Jobs()
    go.set()

    async def scene() -> None:
        job = jobs.start(Job("k", endless(go), "test"))
        while not job.over:
            await asyncio.sleep(0.005)
        late = following(jobs)()
        await asyncio.wait_for(late.task, SECONDS)
        assert not job.stopping
        assert json.loads(late.text)["fault"] == "The end."

    asyncio.run(scene())


class Runs:
    """Runs that are handed over to an engine which answers when it is told to."""

    def __init__(self) -> None:
        self.go, self.begun, self.most = threading.Event(), 0, 0
        self._now, self._lock = 0, threading.Lock()
        prompt = SimpleNamespace(stream=self._stream)
        engine = SimpleNamespace(
            schema=lambda _: SimpleNamespace(prompt=lambda _: prompt),
            placement=lambda wanted: wanted,
            model=SimpleNamespace(probe=SimpleNamespace(to_json=dict)),
            store=SimpleNamespace(settings=SimpleNamespace(budget=1)),
        )
        self.engine = cast(Engine, engine)
        self.handed, self._presence = Handed(), Presence(1, cast(Held, None))
        self.handed.open(self.engine, self._presence)

    def _stream(self, *_: Any, **__: Any) -> Iterator[Any]:
        with self._lock:
            self.begun, self._now = self.begun + 1, self._now + 1
            self.most = max(self.most, self._now)
        try:
            until = time.monotonic() + SECONDS
            while not self.go.wait(0.01):
                assert time.monotonic() < until
                yield Delta("cached", "more ")
        finally:
            with self._lock:
                self._now -= 1

    def hand(self) -> Listener:
        """Hands a run over."""
        headers = [(b"authorization", f"Bearer {self._presence.secret}".encode())]
        body = json.dumps({"schema": "", "prompt": "", "settings": {}, "mode": "uncached"}).encode()
        return Listener(
            self.handed.answer, {"method": "POST", "path": "/runs/answer", "headers": headers}, body
        )


def test_many_runs_that_are_handed_over_leave_threads_to_questions_and_are_all_answered() -> None:
    async def scene() -> None:
        runs = Runs()
        listeners = [runs.hand() for _ in range(MANY)]
        async with asyncio.timeout(SECONDS):
            while runs.begun < handed_runs.AT_ONCE:
                await asyncio.sleep(0.005)
        assert await answered()
        assert runs.handed.busy(runs.engine) == MANY
        runs.go.set()
        for one in listeners:
            await asyncio.wait_for(one.task, SECONDS)
            assert json.loads(one.text.splitlines()[-1]) == {"event": "over"}
        assert (runs.begun, runs.most) == (MANY, handed_runs.AT_ONCE)
        assert runs.handed.busy(runs.engine) == 0

    asyncio.run(scene())


def test_a_run_that_waits_for_its_turn_and_is_given_up_is_not_computed() -> None:
    async def scene() -> None:
        runs = Runs()
        computed = [runs.hand() for _ in range(handed_runs.AT_ONCE)]
        for one in computed:
            await one.hear(b"delta")
        waits = runs.hand()
        while not waits.status:
            await asyncio.sleep(0.005)
        await waits.leave()
        assert runs.handed.busy(runs.engine) == handed_runs.AT_ONCE
        await computed[0].leave()
        runs.go.set()
        for one in computed[1:]:
            await asyncio.wait_for(one.task, SECONDS)
        assert runs.begun == handed_runs.AT_ONCE

    asyncio.run(scene())


def test_a_run_for_which_there_is_no_room_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handed_runs, "MOST", 2)

    async def scene() -> None:
        runs = Runs()
        listeners = [runs.hand() for _ in range(3)]
        await asyncio.wait_for(listeners[2].task, SECONDS)
        assert (listeners[2].status, listeners[2].text[:8]) == (FULL, b"Refused:")
        runs.go.set()
        for one in listeners[:2]:
            await asyncio.wait_for(one.task, SECONDS)
            assert one.text.splitlines()[-1] == b'{"event": "over"}'
        again = runs.hand()
        await asyncio.wait_for(again.task, SECONDS)
        assert again.status == 200

    asyncio.run(scene())
