"""Answers runs of this user's command line, streamed line by line.

Requests need the secret of the studio's presence file, which pages cannot read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from typing_extensions import TypedDict

from app.remote.client import FULL, GREETING, RUN
from app.remote.lines import Line, answering, checking, of_fault
from app.remote.presence import Presence
from app.studio.web.streaming import Streamed, in_a_thread, send_lines
from engine.inference.run_settings import RunSettings

if TYPE_CHECKING:
    from engine import Engine

logger = logging.getLogger(__name__)

AT_ONCE = 8  # concurrent runs; others wait in order
MOST = 128  # running and waiting runs; the command computes further ones itself


class HandedRun(TypedDict):
    """A run from the command line."""

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
    """Answers the command line's runs with the current model."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._presence: Presence | None = None
        self._computing: list[Engine] = []  # one per run, running or waiting
        self._turns = asyncio.Semaphore(AT_ONCE)

    def open(self, engine: Engine, presence: Presence) -> None:
        """Starts to answer.

        Args:
            engine: computes the answers.
            presence: checks the secret.
        """
        self._engine, self._presence = engine, presence

    def close(self) -> None:
        """Rejects new runs; running ones continue."""
        self._engine = self._presence = None

    def busy(self, engine: Engine) -> int:
        """Returns the number of running and waiting runs of an engine."""
        return sum(running is engine for running in self._computing)

    def routes(self) -> list[Route]:
        """Returns the HTTP routes."""
        return [Route(GREETING, self.greet, methods=["POST"]), Route(RUN, Streamed(self.answer))]

    async def greet(self, request: Request) -> Response:
        """Proves that this studio wrote the presence file."""
        greeting = await _read(request, _GREETING)
        if self._presence is None or greeting is None:
            return PlainTextResponse("Refused: this is not a greeting.\n", 400)
        return JSONResponse({"proof": self._presence.proof(greeting["challenge"])})

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Computes a run and streams its lines; stops if the client disconnects."""
        request = Request(scope, receive)
        engine, presence = self._engine, self._presence
        authorization = request.headers.get("authorization", "")
        if (
            engine is None
            or presence is None
            or not compare_digest(authorization.encode(), f"Bearer {presence.secret}".encode())
        ):
            await PlainTextResponse("Refused: the secret is wrong.\n", 403)(scope, receive, send)
            return
        run = await _read(request, _RUN)
        if run is None:
            await PlainTextResponse("Refused: this is not a run.\n", 400)(scope, receive, send)
            return
        if len(self._computing) >= MOST:
            await PlainTextResponse("Refused: too many runs are waiting.\n", FULL)(scope, receive, send)
            return
        self._computing.append(engine)
        try:
            await send_lines(in_a_thread(computed(engine, run), self._turns), receive, send)
        finally:
            self._computing.remove(engine)


async def _read(request: Request, reader: TypeAdapter[Any]) -> Any:
    try:
        return reader.validate_json(await request.body())
    except ValidationError:
        return None


def computed(engine: Engine, run: HandedRun) -> Iterator[Line]:
    """Yields the lines of a run, including errors, storage warnings, its check and the end."""
    lines = []  # for the check
    try:
        settings = RunSettings.read(run["settings"])
        prompt = engine.schema(run["schema"]).prompt(run["prompt"])
        for line in answering(engine, prompt, settings, run["mode"], check=False):
            if line["event"] in ("finished", "reuse"):
                lines.append(line)
            yield line
        if run["mode"] != "uncached" and (unsaved := engine.segment_cache.unsaved()):
            yield {"event": "unsaved", "warning": f"The answer is complete, but {unsaved}"}
        yield from checking(prompt, settings, lines)
    except Exception as error:  # the command shows it
        logger.info("a run of the command line ended: %r", error)
        yield of_fault(error)
    else:
        yield {"event": "over"}
