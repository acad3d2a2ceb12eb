"""Threads for what is no answer: so many things wait for them, by turns. For one event loop."""

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
    """Some threads, each of which does one thing after the other.

    Args:
        threads: how many.
        most: how many things may wait for one.
        name: of the threads.
    """

    def __init__(self, threads: int, most: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free, self._most = threads, most
        self._first: _Queue = {}
        self._others: _Queue = {}

    @property
    def waiting(self) -> int:
        """How many things wait for a thread."""
        return sum(map(len, (*self._first.values(), *self._others.values())))

    async def run(
        self, do: Callable[[], Made], client: str, gone: Gone | None = None, *, first: bool = False
    ) -> Made:
        """Does something on a thread, once one is free and it is the client's turn.

        Args:
            do: what to do.
            client: who wants it: where many wait, each client's next thing is done in turn.
            gone: waits until nobody listens any more; what has not begun by then is not done.
            first: whether it goes before all that does not, and waits however many wait.

        Raises:
            ApiError: too many wait.
            CancelledError: nobody wants it any more, and it was not begun.
        """
        if self._free:
            self._free -= 1
        else:
            if not first and self.waiting >= self._most:
                words = f"{self.waiting} requests for plans and schemas wait, and no more fit."
                raise ApiError(FULL, f"{words} Try again in a moment.")
            await self._turn(self._first if first else self._others, client, gone)
        try:
            running = asyncio.get_running_loop().run_in_executor(self._pool, do)
        except BaseException:
            self._pass_on()
            raise
        running.add_done_callback(lambda _: self._pass_on())
        return await asyncio.shield(running)  # a thread is not free before it has ended

    async def _turn(self, queue: _Queue, client: str, gone: Gone | None) -> None:
        """Waits until a thread is handed over.

        Raises:
            CancelledError: nobody listens any more.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.setdefault(client, deque()).append(turn)
        watcher = None if gone is None else asyncio.ensure_future(gone())
        try:
            if watcher is None:
                await turn
                return
            await asyncio.wait({turn, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                raise CancelledError("The client went away before it was begun.")
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # it was handed over in the same moment
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
        """Gives a thread that is free to the next request."""
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


_Queue = dict[str, deque[asyncio.Future[None]]]
"""By client what waits, each in order; whose turn it is comes first."""
