"""What a page hears without asking the pages' questions: that the studio is there, and how far long work is.

Both are answered while the engine computes: the one by the server's own thread, the other as work goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.studio.web.jobs import Job, Jobs
from app.studio.web.streaming import Lines, Streamed, line, send_lines
from engine.base.errors import PromptCacheError

ALIVE = "/alive"
WORK = "/work"
FRAME_SECONDS = 0.05
READERS = 4  # threads that look at work for all who follow some


class Following:
    """Tells pages that the studio is there, and of its work.

    Args:
        jobs: the work.
        assets: the path of the page's own files, by which a page knows that another version was started.
    """

    def __init__(self, jobs: Jobs, assets: str) -> None:
        self._jobs = jobs
        self._here = {"start": secrets.token_hex(8), "assets": assets}
        self._readers = CapacityLimiter(READERS)

    def routes(self) -> list[Route]:
        """Returns where it is asked."""
        return [Route(ALIVE, self.alive, methods=["GET"]), Route(WORK, Streamed(self.follow))]

    async def alive(self, _request: Request) -> Response:
        """Says which start of the studio this is."""
        return JSONResponse(self._here, headers={"cache-control": "no-store"})

    async def follow(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the states of a piece of work until it is over; it stops when the last listener leaves."""
        try:
            job = self._jobs.find(Request(scope).query_params.get("key", ""))
        except PromptCacheError as error:
            await PlainTextResponse(f"{error}\n", 404)(scope, receive, send)
            return
        await send_lines(states(job, self._readers), receive, send)


async def states(job: Job, readers: CapacityLimiter) -> Lines:
    """Yields the states of work as they change, the last one included; none holds a thread while it waits."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def told() -> None:
        with contextlib.suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(changed.set)

    def read() -> tuple[bytes, bool]:
        state = job.state()
        return line(state), state["over"]

    with job.followed(told):
        over = False
        while not over:
            changed.clear()
            body, over = await run_sync(read, limiter=readers)
            yield body
            if not over:
                await asyncio.sleep(FRAME_SECONDS)
                await changed.wait()
