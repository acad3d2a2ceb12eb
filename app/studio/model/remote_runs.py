"""Runs that this user's command line hands to the studio, answered line by line while they go on.

Only who knows the secret of the studio's presence file is answered; a page cannot read that file.
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

AT_ONCE = 8  # runs that are computed at a time; the others wait, first come, first served
MOST = 128  # runs that are computed or wait; who comes then computes it himself


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
    """Answers runs that are handed over, by the model that is there."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._presence: Presence | None = None
        self._computing: list[Engine] = []  # one for each run, those that wait included
        self._turns = asyncio.Semaphore(AT_ONCE)

    def open(self, engine: Engine, presence: Presence) -> None:
        """Begins to answer.

        Args:
            engine: computes the answers.
            presence: knows the secret.
        """
        self._engine, self._presence = engine, presence

    def close(self) -> None:
        """Begins no more runs; those under way go on."""
        self._engine = self._presence = None

    def busy(self, engine: Engine) -> int:
        """How many runs an engine still computes, or will."""
        return sum(one is engine for one in self._computing)

    def routes(self) -> list[Route]:
        """Returns where it is asked."""
        return [Route(GREETING, self.greet, methods=["POST"]), Route(RUN, Streamed(self.answer))]

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
        if len(self._computing) >= MOST:
            await PlainTextResponse("Refused: too many runs wait already.\n", FULL)(scope, receive, send)
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
    """Returns the lines of a run, a fault, what could not be stored, its check, and the end included."""
    told = []  # what the check needs
    try:
        settings = RunSettings.read(run["settings"])
        prompt = engine.schema(run["schema"]).prompt(run["prompt"])
        for line in answering(engine, prompt, settings, run["mode"], check=False):
            if line["event"] in ("finished", "reuse"):
                told.append(line)
            yield line
        if run["mode"] != "uncached" and (unsaved := engine.segment_cache.unsaved()):
            yield {"event": "unsaved", "warning": f"The answer is complete, but {unsaved}"}
        yield from checking(prompt, settings, told)
    except Exception as error:  # the command shows it
        logger.info("a run that was handed over ended: %r", error)
        yield of_fault(error)
    else:
        yield {"event": "over"}
