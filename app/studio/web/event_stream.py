"""Streams to pages: that the studio is alive, and the progress of jobs.

Both work while the engine computes.
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
READERS = 4  # threads that read job states for all followers


class Following:
    """Routes for liveness and job progress.

    Args:
        jobs: the jobs.
        assets: the path of the page's files; another path tells a page to reload.
    """

    def __init__(self, jobs: Jobs, assets: str) -> None:
        self._jobs = jobs
        self._here = {"start": secrets.token_hex(8), "assets": assets}
        self._readers = CapacityLimiter(READERS)

    def routes(self) -> list[Route]:
        """Returns the HTTP routes."""
        return [Route(ALIVE, self.alive, methods=["GET"]), Route(WORK, Streamed(self.follow))]

    async def alive(self, _request: Request) -> Response:
        """Identifies this start of the studio."""
        return JSONResponse(self._here, headers={"cache-control": "no-store"})

    async def follow(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Streams the states of a job until it ends; the job stops when its last follower leaves."""
        try:
            job = self._jobs.find(Request(scope).query_params.get("key", ""))
        except PromptCacheError as error:
            await PlainTextResponse(f"{error}\n", 404)(scope, receive, send)
            return
        await send_lines(states(job, self._readers), receive, send)


async def states(job: Job, readers: CapacityLimiter) -> Lines:
    """Yields the states of a job as they change, including the last; waiting takes no thread."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def notify() -> None:
        with contextlib.suppress(RuntimeError):  # the server has stopped
            loop.call_soon_threadsafe(changed.set)

    def read() -> tuple[bytes, bool]:
        state = job.state()
        return line(state), state["over"]

    with job.followed(notify):
        over = False
        while not over:
            changed.clear()
            body, over = await run_sync(read, limiter=readers)
            yield body
            if not over:
                await asyncio.sleep(FRAME_SECONDS)
                await changed.wait()
