"""Serving an application on a socket until somebody ends it: signals, loading, draining."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from app.base.signals import StoppedError
from app.server.core.service import Service
from app.server.http.access import Application
from app.server.http.protocol import Protocol
from engine import Engine

log = logging.getLogger(__name__)

ENDING = ("SIGINT", "SIGTERM", "SIGHUP")  # the last not everywhere
_ECHO_SECONDS = 0.5  # in which another signal is the same wish: a group of processes may hear it twice
_SENDING_SECONDS = 0.5  # that connections have to take what was written for them
_LOADING_SECONDS = 1.0  # that a model which is nearly there has to come


class StillLoadingError(StoppedError):
    """The signal came while the model was loading, which goes on on a thread that nothing can stop."""


def configured(app: Application) -> uvicorn.Config:
    """Returns how the application is served: without a word in the log for each request."""
    return uvicorn.Config(
        app,
        http=Protocol,
        log_level="warning",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=2,
    )


class _Server(uvicorn.Server):
    """A server whose signals are somebody else's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals alone."""
        yield

    def hang_up(self) -> None:
        """Drops the connections that are left, whatever was to be sent to them."""
        for connection in [*self.server_state.connections]:
            connection.transport.abort()


class _Signals:
    """The signals that have come.

    Attributes:
        first: set at the first one.
        second: set at another one, which is not the same once more.
        number: of the first one.
    """

    def __init__(self) -> None:
        self.first, self.second = asyncio.Event(), asyncio.Event()
        self.number: int | None = None
        self._at = 0.0

    def came(self, number: int) -> None:
        """Notes one."""
        if self.number is None:
            self.number, self._at = number, time.monotonic()
            self.first.set()
        elif time.monotonic() - self._at > _ECHO_SECONDS:
            self.second.set()


def serve(
    app: Application,
    service: Service,
    listening: socket.socket,
    load: Callable[[], Engine],
    *,
    grace: float,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serves until SIGINT, SIGTERM or SIGHUP; answers have a while to end, and none after a second signal.

    Args:
        app: the application.
        service: of the application; it answers once the engine is there.
        listening: a bound socket.
        load: opens the engine, on a thread of its own; the server answers meanwhile that it is loading.
        grace: seconds that answers under way have.
        ready: told when the engine is there.

    Raises:
        KeyboardInterrupt: it was ended by SIGINT, in order.
        StoppedError: it was ended by another signal, in order.
        StillLoadingError: it was ended by any of them before the engine was there, and its thread goes on.
        PromptCacheError: the engine cannot be opened.
    """
    number, there = asyncio.run(_serve(app, service, listening, load, grace, ready))
    if number is not None and not there:
        raise StillLoadingError(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    if number is not None:
        raise StoppedError(number)


async def _serve(
    app: Application,
    service: Service,
    listening: socket.socket,
    load: Callable[[], Engine],
    grace: float,
    ready: Callable[[], None],
) -> tuple[int | None, bool]:
    """Returns which signal ended it, and whether what opens the engine has come to an end."""
    server = _Server(configured(app))
    with _on_signals() as signals:
        serving = asyncio.ensure_future(server.serve([listening]))
        opening = _on_a_thread(load)
        ending = asyncio.ensure_future(signals.first.wait())
        engine: Engine | None = None
        try:
            anything: set[asyncio.Future[Any]] = {opening, ending, serving}
            await asyncio.wait(anything, return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                engine = opening.result()
                service.opened(engine)
                ready()
                await asyncio.wait({ending, serving}, return_when=asyncio.FIRST_COMPLETED)
            await service.drain(grace, signals.second)
        finally:
            ending.cancel()
            server.should_exit = True
            await asyncio.wait({serving}, timeout=_SENDING_SECONDS)
            server.hang_up()
            await asyncio.gather(serving, return_exceptions=True)
            if engine is None:
                await asyncio.wait({opening}, timeout=_LOADING_SECONDS)
                engine = opening.result() if opening.done() and opening.exception() is None else None
            if engine is not None:
                await asyncio.to_thread(engine.close)
    return signals.number, opening.done()


def _on_a_thread(load: Callable[[], Engine]) -> asyncio.Future[Engine]:
    """Has it called on a thread that nothing waits for when all else has ended."""
    loop = asyncio.get_running_loop()
    made: asyncio.Future[Engine] = loop.create_future()

    def tell(put: Callable[[Any], None], found: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(put, found)

    def call() -> None:
        try:
            tell(made.set_result, load())
        except BaseException as error:
            tell(made.set_exception, error)

    threading.Thread(target=call, name="loading", daemon=True).start()
    return made


@contextlib.contextmanager
def _on_signals() -> Iterator[_Signals]:
    """Notes the signals; what is ignored, as under nohup, stays so."""
    loop, signals = asyncio.get_running_loop(), _Signals()
    known = [getattr(signal, name) for name in ENDING if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in known}
    ours = [number for number in known if number == signal.SIGINT or before[number] != signal.SIG_IGN]
    for number in ours:
        loop.add_signal_handler(number, signals.came, number)
    try:
        yield signals
    finally:
        for number in ours:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
