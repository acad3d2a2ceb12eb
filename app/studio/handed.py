"""Runs that this user's command line hands to the studio, answered line by line while they go on.

Only who knows the secret of the studio's presence file is answered; a page cannot read that file.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from typing_extensions import TypedDict

from app.handover.client import GREETING, RUN
from app.handover.lines import Line, answering, of_fault
from app.handover.presence import Presence
from engine.inference.params import RunSettings

if TYPE_CHECKING:
    from engine import Engine

logger = logging.getLogger(__name__)


class HandedRun(TypedDict):
    """A run as the command line hands it over."""

    schema: str
    prompt: str
    settings: dict[str, Any]
    mode: Literal["cached", "uncached", "both"]


class Greeting(TypedDict):
    """A challenge that only the studio can answer."""

    challenge: str


_RUN = TypeAdapter(HandedRun)
_GREETING = TypeAdapter(Greeting)


class Handed:
    """Answers runs that are handed over, from when the model is there until the studio ends."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._presence: Presence | None = None

    def open(self, engine: Engine, presence: Presence) -> None:
        """Begins to answer.

        Args:
            engine: computes the answers.
            presence: knows the secret.
        """
        self._engine, self._presence = engine, presence

    def routes(self) -> list[Route]:
        """Returns where it is asked."""
        return [Route(GREETING, self.greet, methods=["POST"]), Route(RUN, _Endpoint(self.answer))]

    async def greet(self, request: Request) -> Response:
        """Proves that this is the studio which the presence file tells of."""
        greeting = await _read(request, _GREETING)
        if self._presence is None or greeting is None:
            return PlainTextResponse("Refused: no greeting.\n", 400)
        return JSONResponse({"proof": self._presence.proof(greeting["challenge"])})

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Computes a run and sends its lines; it stops when nobody listens any more."""
        request = Request(scope, receive)
        engine, presence = self._engine, self._presence
        given = request.headers.get("authorization", "")
        if (
            engine is None
            or presence is None
            or not compare_digest(given.encode(), f"Bearer {presence.secret}".encode())
        ):
            await PlainTextResponse("Refused: the secret is another one.\n", 403)(scope, receive, send)
            return
        run = await _read(request, _RUN)
        if run is None:
            await PlainTextResponse("Refused: this is no run.\n", 400)(scope, receive, send)
            return
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")],
            }
        )
        await send_lines(computed(engine, run), receive, send)


class _Endpoint:
    """What Starlette calls as it is: functions it would give a request, and take a response from."""

    def __init__(self, answer: Callable[[Scope, Receive, Send], Any]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, receive, send)


async def _read(request: Request, reader: TypeAdapter[Any]) -> Any:
    try:
        return reader.validate_json(await request.body())
    except ValidationError:
        return None


def computed(engine: Engine, run: HandedRun) -> Iterator[Line]:
    """Returns the lines of a run, a fault, what could not be stored, and the end included."""
    try:
        settings = RunSettings.read(run["settings"])
        yield from answering(engine, engine.schema(run["schema"]), run["prompt"], settings, run["mode"])
        if run["mode"] != "uncached" and (unsaved := engine.segment_cache.unsaved()):
            yield {"event": "unsaved", "warning": f"The answer is complete, but {unsaved}"}
    except Exception as error:  # the command shows it
        logger.info("a run that was handed over ended: %r", error)
        yield of_fault(error)
    else:
        yield {"event": "over"}


async def send_lines(lines: Iterator[Line], receive: Receive, send: Send) -> None:
    """Sends lines as they are computed, all of them in one thread, until the other side goes away."""
    loop, ready = asyncio.get_running_loop(), asyncio.Queue[bytes]()
    gone = threading.Event()

    def compute() -> None:
        try:
            with contextlib.closing(lines):  # type: ignore[type-var]
                for line in lines:
                    loop.call_soon_threadsafe(ready.put_nowait, json.dumps(line).encode() + b"\n")
                    if gone.is_set():
                        break
        finally:
            loop.call_soon_threadsafe(ready.put_nowait, b"")

    async def listen() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

    computing = asyncio.ensure_future(run_in_threadpool(compute))
    listening = asyncio.ensure_future(listen())
    try:
        while body := await ready.get():
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.set()
        listening.cancel()
        await computing
