"""Threads for work other than answers, with a fair, limited queue. Use them from one event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from app.server.http.errors import FULL, ApiError
from engine.base.errors import CancelledError

Made = TypeVar("Made")
Gone = Callable[[], Awaitable[None]]


class Lane:
    """A few threads with a shared queue."""

    def __init__(self, threads: int, most: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free, self._most = threads, most
        self._first: _Queue = {}
        self._others: _Queue = {}

    @property
    def waiting(self) -> int:
        """Returns the number of queued functions."""
        return sum(map(len, (*self._first.values(), *self._others.values())))

    async def run(
        self, do: Callable[[], Made], client: str, gone: Gone | None = None, *, first: bool = False
    ) -> Made:
        """Runs a function on the next free thread.

        Args:
            do: the function.
            client: the client; clients take turns.
            gone: completes when the client disconnects, which cancels a queued function.
            first: whether the function goes before others and ignores the limit.

        Raises:
            ApiError: too many functions wait.
            CancelledError: the client disconnected before the start.
        """
        if self._free:
            self._free -= 1
        else:
            if not first and self.waiting >= self._most:
                words = f"{self.waiting} requests for plans and schemas are waiting, and no more fit."
                raise ApiError(FULL, f"{words} Try again in a moment.")
            await self._turn(self._first if first else self._others, client, gone)
        try:
            running = asyncio.get_running_loop().run_in_executor(self._pool, do)
        except BaseException:
            self._pass_on()
            raise
        running.add_done_callback(lambda _: self._pass_on())
        return await asyncio.shield(running)  # the thread is busy until its function ends

    async def _turn(self, queue: _Queue, client: str, gone: Gone | None) -> None:
        """Waits for a free thread."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.setdefault(client, deque()).append(turn)
        watcher = None if gone is None else asyncio.ensure_future(gone())
        try:
            if watcher is None:
                await turn
                return
            await asyncio.wait({turn, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                raise CancelledError("The client disconnected before the start.")
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # the thread was assigned at the same moment
            turn.cancel()
            self._leave(queue, client, turn)
            raise
        finally:
            if watcher is not None:
                watcher.cancel()

    def _leave(self, queue: _Queue, client: str, turn: asyncio.Future[None]) -> None:
        turns = queue.get(client)
        if turns is not None and turn in turns:
            turns.remove(turn)
            if not turns:
                del queue[client]

    def _pass_on(self) -> None:
        """Assigns a free thread to the next function."""
        for queue in (self._first, self._others):
            for client in [*queue]:
                turns = queue.pop(client)
                turn = turns.popleft()
                if turns:
                    queue[client] = turns  # behind all the others
                if not turn.done():
                    turn.set_result(None)
                    return
        self._free += 1


_Queue = dict[str, deque[asyncio.Future[None]]]  # queued functions by client; the next client is first
