"""Streams answers as JSON lines.

A stream may last for minutes, so it uses none of the server's request threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.types import Receive, Scope, Send

HEADERS = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
Lines = AsyncGenerator[bytes, None]


class Streamed:
    """An ASGI app as a class; Starlette would wrap a function as a request handler."""

    def __init__(self, answer: Callable[[Scope, Receive, Send], Any]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        await self._answer(scope, receive, send)


def line(told: Mapping[str, Any]) -> bytes:
    """Returns an object as a line of JSON."""
    return json.dumps(told).encode() + b"\n"


async def send_lines(lines: Lines, receive: Receive, send: Send) -> None:
    """Sends lines as they arrive, and stops at once if the client disconnects."""
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})

    async def tell() -> None:
        try:
            async with contextlib.aclosing(lines):
                async for body in lines:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
        except Exception:
            await send({"type": "http.response.body", "body": b""})
            raise
        await send({"type": "http.response.body", "body": b""})

    async def listen() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    telling, listening = asyncio.ensure_future(tell()), asyncio.ensure_future(listen())
    try:
        await asyncio.wait({telling, listening}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        telling.cancel()
        listening.cancel()
        outcome, _ = await asyncio.gather(telling, listening, return_exceptions=True)
    if isinstance(outcome, Exception):
        raise outcome


async def in_a_thread(told: Iterator[Mapping[str, Any]], turns: asyncio.Semaphore) -> Lines:
    """Yields objects as lines, computed in one dedicated thread.

    Args:
        told: the objects; closed if the stream ends early.
        turns: limits concurrent threads; waiting takes no thread.
    """
    loop, ready = asyncio.get_running_loop(), asyncio.Queue[bytes]()
    begun, stopped = asyncio.Event(), threading.Event()

    def compute() -> None:
        with contextlib.closing(told):  # type: ignore[type-var]
            for item in told:
                loop.call_soon_threadsafe(ready.put_nowait, line(item))
                if stopped.is_set():
                    break

    async def in_turn() -> None:
        try:
            async with turns:
                begun.set()
                await run_sync(compute, limiter=CapacityLimiter(1))
        finally:
            ready.put_nowait(b"")

    computing = asyncio.ensure_future(in_turn())
    try:
        while body := await ready.get():
            yield body
        await computing
    finally:
        stopped.set()
        if not begun.is_set():
            computing.cancel()
        await asyncio.wait({computing})
