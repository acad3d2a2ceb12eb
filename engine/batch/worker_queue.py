"""Queues work for a thread, which starts with the first item and ends when no more arrive."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from engine.model.thread_pool import release_thread_pool

IDLE_SECONDS = 1.0  # that the thread waits for more: a new one would set up torch's threads again
_LAST_SECONDS = 10.0  # that closing waits for the thread
T = TypeVar("T")


class Inbox(Generic[T]):
    """Work for one thread, from any number of others. `work` takes items until `take` returns False."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._changed = threading.Condition()
        self._closed = False
        self._left: deque[T] = deque()
        self._thread: threading.Thread | None = None

    def __bool__(self) -> bool:
        """Whether any item is in the queue."""
        return bool(self._left)

    @property
    def here(self) -> bool:
        """Whether the current thread is the worker."""
        return self._thread is threading.current_thread()

    def put(self, item: T) -> None:
        """Queues an item. If no thread can start, removes it and raises."""
        if not self.here:
            release_thread_pool()  # of the caller, who waits next
        with self._changed:
            self._left.append(item)
            self._changed.notify_all()
            if self._thread is None or not self._thread.is_alive():  # e.g. in a forked child
                # A daemon: it gets no more turns once the program ends.
                self._thread = threading.Thread(target=self._work, name="answers", daemon=True)
                try:
                    self._thread.start()
                except BaseException:
                    self._thread = None
                    self._left.pop()
                    raise

    def take(self, into: list[T], most: int | None = None, *, wait: bool = True) -> bool:
        """Moves up to `most` items to a list, on the worker thread; returns whether there were any.

        An item is always in the queue or in the list. With `wait`, the thread must end if none comes for a
        while or the queue is closed.
        """
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._left or self._closed, IDLE_SECONDS)
                if not self._left:
                    self._thread = None
            items = [*self._left][:most]
            into.extend(items)
            for _ in items:
                self._left.popleft()
            return bool(items)

    def close(self) -> None:
        """Stops the thread after its current work, and waits for it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_LAST_SECONDS)
