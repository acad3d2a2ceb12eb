"""What is handed to a thread of its own, which starts with the first of it and ends when no more comes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from engine.model.thread_pool import release_thread_pool

IDLE_SECONDS = 1.0  # that the thread waits for more: a new one would set up torch's threads again
_LAST_SECONDS = 10.0  # that closing waits for a thread which nothing is computed for any more
T = TypeVar("T")


class Inbox(Generic[T]):
    """Work for one thread, from any number of others.

    Args:
        work: done on the thread; it takes with `take` until it gets nothing.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._changed = threading.Condition()
        self._closed = False
        self._left: deque[T] = deque()
        self._thread: threading.Thread | None = None

    def __bool__(self) -> bool:
        """Whether there is something that was not taken yet."""
        return bool(self._left)

    @property
    def here(self) -> bool:
        """Whether this is the thread."""
        return self._thread is threading.current_thread()

    def put(self, item: T) -> None:
        """Hands something over. Where no thread can be started, it is not taken in, and that is raised."""
        if not self.here:
            release_thread_pool()  # of whoever goes on to wait
        with self._changed:
            self._left.append(item)
            self._changed.notify_all()
            if self._thread is None or not self._thread.is_alive():  # as in a child of a fork
                # The engine's turn is never given to it once the program ends, so it need not be waited for.
                self._thread = threading.Thread(target=self._work, name="answers", daemon=True)
                try:
                    self._thread.start()
                except BaseException:
                    self._thread = None
                    self._left.pop()
                    raise

    def take(self, into: list[T], most: int | None = None, *, wait: bool = True) -> bool:
        """Takes what was handed over, on the thread; no item is in neither place meanwhile.

        Args:
            into: is added to.
            most: how many at most; None for all.
            wait: wait for some. Where none comes for a while, or this is closed, the thread is to end.

        Returns:
            Whether there was some.
        """
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._left or self._closed, IDLE_SECONDS)
                if not self._left:
                    self._thread = None
            taken = [*self._left][:most]
            into.extend(taken)
            for _ in taken:
                self._left.popleft()
            return bool(taken)

    def close(self) -> None:
        """Has the thread end with what it has taken, and waits for it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LAST_SECONDS)
