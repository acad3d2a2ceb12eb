"""Server-sent events with keep-alive comments; a disconnect ends the stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

KEEP_ALIVE_SECONDS = 15.0
DONE = format_sse_event(data_str="[DONE]")
_BREAKS = tuple((char.encode(), f"\\u{ord(char):04x}".encode()) for char in "\x85\u2028\u2029")


def event(data: BaseModel, name: str | None = None) -> bytes:
    """Returns one event. Its JSON has no line breaks, even unusual ones that some clients split at."""
    spelled = to_json(data)
    for char, escape in _BREAKS:
        spelled = spelled.replace(char, escape)
    head = b"" if name is None else b"event: %s\n" % name.encode()
    return b"%sdata: %s\n\n" % (head, spelled)


def line(data: BaseModel) -> bytes:
    """Returns one line of JSON."""
    return to_json(data) + b"\n"


class EventStream(StreamingResponse):
    """A response of events. Always closes its source, even if no event is read.

    A comment is sent during long pauses, so that proxies do not drop the connection. Each event is produced
    after the previous one is sent.
    """

    media_type = "text/event-stream"
    comment = KEEPALIVE_COMMENT

    def __init__(self, events: AsyncIterator[bytes], close: Callable[[], None]) -> None:
        super().__init__(events, headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        self._events, self._close = events, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()

    async def stream_response(self, send: Send) -> None:
        """Sends head, events, and keep-alive comments."""
        loop, latest = asyncio.get_running_loop(), 0.0

        async def put(data: bytes, *, more: bool = True) -> None:
            nonlocal latest
            latest = loop.time()
            await send({"type": "http.response.body", "body": data, "more_body": more})

        async def breathe() -> None:
            while True:
                await asyncio.sleep(max(latest + KEEP_ALIVE_SECONDS - loop.time(), 0.001))
                if self.comment and loop.time() - latest >= KEEP_ALIVE_SECONDS:
                    await put(self.comment)

        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        latest = loop.time()
        breathing = asyncio.ensure_future(breathe())
        try:
            async for chunk in self._events:
                await put(chunk)
        finally:
            breathing.cancel()
        await put(b"", more=False)


class LineStream(EventStream):
    """A response of lines of JSON, which have no comments."""

    media_type = "application/x-ndjson"
    comment = b""


def gone(request: Request) -> Callable[[], Awaitable[None]]:
    """Returns a function that waits until the client disconnects; read the body before."""

    async def wait() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return wait
