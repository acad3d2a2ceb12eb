"""Background work: runs while nothing else is computed, and is cancelled when a step waits."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

from engine.base.errors import CancelledError, ClosedError
from engine.base.events import Listener, Working
from engine.inference.step_lock import Computing

log = logging.getLogger(__name__)

QUIET_SECONDS: Final = 0.5  # seconds without a step before work begins
MOST: Final = 16  # size of the queue; the oldest piece of work is dropped

Work = Callable[[], Generator[Working, None, Any]]


class Idle:
    """Runs background work on its own thread, one piece at a time.

    A piece is dropped if it fails or if another step interrupts it. Work begins after `quiet` seconds without
    a step.
    """

    def __init__(self, computing: Computing, quiet: float = QUIET_SECONDS) -> None:
        self._computing, self._quiet = computing, quiet
        self._waiting: deque[Work] = deque(maxlen=MOST)
        self._changed = threading.Condition()
        self._open, self._closed, self._busy = False, False, False
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Accepts work from now on; earlier offers are dropped."""
        self._open = True

    def offer(self, work: Work) -> None:
        """Queues a piece of work from any thread, and returns at once; never fails.

        `work` creates the generator of its steps when it is about to run.
        """
        with self._changed:
            if self._closed or not self._open:
                return
            self._waiting.append(work)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="idle work", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # no room for another thread
                    log.info("idle work is dropped: %s", error)
                    self._waiting.clear()
                    return
                self._thread = thread
            self._changed.notify_all()

    def close(self) -> None:
        """Drops queued work and stops running work at its next check; a second call does nothing."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def wait(self, seconds: float) -> bool:
        """Waits until no work is left; returns whether that happened in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._busy, seconds)

    def _run(self) -> None:
        while (work := self._next()) is not None:
            listener = Listener(stopped=lambda: self._closed or self._computing.awaited)
            try:
                self._computing.finish(work(), "cached", listener=listener)
            except (CancelledError, ClosedError):
                log.debug("idle work was cancelled: another step waits")
            except Exception:  # no caller waits for it
                log.warning("idle work failed", exc_info=True)
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def _next(self) -> Work | None:
        """Waits for work and for idle time; None if closed."""
        with self._changed:
            while not self._closed:
                lacking = self._quiet - self._computing.quiet_for
                if self._waiting and lacking <= 0:
                    self._busy = True
                    return self._waiting.popleft()
                self._changed.wait(max(lacking, 0.01) if self._waiting else None)
        return None
