"""Makes SIGTERM and SIGHUP stop a command like Ctrl-C, so that pending data is written first."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

NAMES = ("SIGTERM", "SIGHUP")  # SIGHUP is missing on some systems
REPEATED_SECONDS = 2.0  # a repeated signal within this time is ignored: a process group may get it twice


class StoppedError(KeyboardInterrupt):
    """A signal stopped the command.

    Attributes:
        number: number of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextlib.contextmanager
def as_interrupts() -> Iterator[None]:
    """Makes the first of these signals raise StoppedError in the main thread.

    A later one ends the process immediately. Signals that are ignored, as under nohup, or handled elsewhere
    stay unchanged.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    known = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
    ours = [number for number in known if signal.getsignal(number) == signal.SIG_DFL]

    first: list[float] = []  # time of the first signal

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
