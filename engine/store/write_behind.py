"""Delayed work, done by one thread in order, with a limited queue.

`put` waits only if the queue is full. Work begins at the first token (`hurry`), when a caller waits for it,
or after a delay. The executor of the standard library finishes pending work at the end of the program.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor

log = logging.getLogger(__name__)

MOST_BYTES = 256 << 20  # of segments that wait to be written
MOST = 64  # that wait; each has a lock, and so an open file
QUIET_SECONDS = 2.0  # the most that work waits for a first token, which it would delay


class Behind:
    """Delayed work, one piece after the other.

    One piece may exceed `most_bytes`.
    """

    def __init__(self, most_bytes: int, most: int) -> None:
        self._most_bytes, self._most = most_bytes, most
        self._changed = threading.Condition()
        self._undone: dict[int, tuple[str, int]] = {}  # key and bytes of each piece
        self._begun: set[int] = set()  # of those
        self._numbers = itertools.count()
        self._worker: ThreadPoolExecutor | None = None
        self._thread: int | None = None
        self._quiet_until = 0.0

    @property
    def busy(self) -> bool:
        """Whether any work is pending."""
        return bool(self._undone)

    @property
    def keys(self) -> set[str]:
        """The segments of pending work."""
        return {key for key, _ in tuple(self._undone.values())}

    def bytes_of(self, keys: Collection[str] | None = None) -> int:
        """Bytes of pending work, for these segments or all."""
        return sum(size for key, size in tuple(self._undone.values()) if keys is None or key in keys)

    def put(self, work: Callable[[], None], key: str = "", size: int = 0) -> None:
        """Queues a piece of work; waits while the queue is full.

        `size` is the bytes that the piece retains in memory. It must raise nothing.
        """
        with self._changed:
            crowded = not self._has_room(size)
        if crowded:
            self.hurry()
        with self._changed:
            self._changed.wait_for(lambda: self._has_room(size))
            if not self._undone:
                self._quiet_until = time.monotonic() + QUIET_SECONDS
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, "segments")
            number = next(self._numbers)
            try:
                self._undone[number] = key, size
                self._worker.submit(self._do, number, work)
            except RuntimeError:  # the program is ending, or no thread can start
                pass
            except BaseException:
                self._forget(number)
                raise
            else:
                return
        try:
            self.wait(before=number)
            self._do(number, work)
        except BaseException:
            self._forget(number)
            raise

    def hurry(self) -> None:
        """Begins pending work now."""
        if self._undone:
            with self._changed:
                self._quiet_until = 0.0
                self._changed.notify_all()

    def wait(self, keys: Collection[str] | None = None, *, before: int | None = None) -> None:
        """Waits until the pending work is done, only for these keys or before this piece."""
        if not self._undone or threading.get_ident() == self._thread:
            return
        wanted = None if keys is None else set(keys)
        if wanted is not None and not wanted & self.keys:
            return
        self.hurry()
        with self._changed:
            last = next(self._numbers) if before is None else before
            self._changed.wait_for(
                lambda: (
                    not any(
                        number < last and (wanted is None or key in wanted)
                        for number, (key, _) in self._undone.items()
                    )
                )
            )

    def close(self) -> None:
        """Waits until all work is done, and ends the thread."""
        self.wait()
        if self._worker is not None:
            self._worker.shutdown()

    def _has_room(self, size: int) -> bool:
        waiting = sum(size for _, size in self._undone.values())
        return not self._undone or (waiting + size <= self._most_bytes and len(self._undone) < self._most)

    def _forget(self, number: int) -> None:
        with self._changed:
            self._undone.pop(number, None)
            self._begun.discard(number)
            self._changed.notify_all()

    def _do(self, number: int, work: Callable[[], None]) -> None:
        """Does a piece of work unless it was dropped. Waits if another thread is doing it."""
        with self._changed:
            if number in self._begun:
                self._changed.wait_for(lambda: number not in self._undone)
            if number not in self._undone:
                return
            self._begun.add(number)
            self._thread = threading.get_ident()
            self._changed.wait_for(lambda: not self._quiet_until, self._quiet_until - time.monotonic())
        try:
            work()
        except Exception:
            log.exception("work behind an answer failed")
        finally:
            self._thread = None
            self._forget(number)
