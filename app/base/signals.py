"""A plain kill and the end of the terminal stop a command as Ctrl-C does: what waits is written before."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

NAMES = ("SIGTERM", "SIGHUP")  # the latter not everywhere
REPEATED_SECONDS = 2.0  # in which another one is the same wish: a group of processes may hear it twice


class StoppedError(KeyboardInterrupt):
    """The signal that came.

    Attributes:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def as_interrupts() -> Iterator[None]:
    """Has the first of these signals raise StoppedError in the main thread.

    One that comes later ends the process at once. What is ignored, as under nohup, or handled by others stays
    so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    known = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    ours = [number for number in known if signal.getsignal(number) == signal.SIG_DFL]

    first: list[float] = []  # when the first one came

    def stop(number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if not first:
            first.append(now)
            raise StoppedError(number)
        if now - first[0] > REPEATED_SECONDS:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            if signal.getsignal(number) is stop:
                signal.signal(number, signal.SIG_DFL)
