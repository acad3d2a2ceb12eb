"""Runs the server until a signal: loading, serving, draining."""

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

ENDING = ("SIGINT", "SIGTERM", "SIGHUP")  # SIGHUP is missing on some systems
_ECHO_SECONDS = 0.5  # a repeated signal within this time is ignored: a process group may get it twice
_SENDING_SECONDS = 0.5  # for connections to send their remaining data
_LOADING_SECONDS = 1.0  # wait for a model that is almost loaded


class StillLoadingError(StoppedError):
    """A signal arrived while the model was loading; the loading thread cannot be stopped."""


def configured(app: Application) -> uvicorn.Config:
    """Returns uvicorn's configuration, without an access log."""
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
    """A server that leaves signal handling to its caller."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Does nothing."""
        yield

    def hang_up(self) -> None:
        """Drops the remaining connections without sending their data."""
        for connection in [*self.server_state.connections]:
            connection.transport.abort()


class _Signals:
    """The received signals.

    Attributes:
        first: set at the first signal.
        second: set at a second signal, unless it is a repetition of the first.
        number: number of the first signal.
    """

    def __init__(self) -> None:
        self.first, self.second = asyncio.Event(), asyncio.Event()
        self.number: int | None = None
        self._at = 0.0

    def came(self, number: int) -> None:
        """Records a signal."""
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
    """Serves until SIGINT, SIGTERM or SIGHUP, then drains; a second signal cancels all requests.

    Args:
        app: the application.
        service: its service, which gets the engine.
        listening: a bound socket.
        load: opens the engine on a thread; the server responds "loading" meanwhile.
        grace: time in seconds for running answers.
        ready: called when the engine is open.

    Raises:
        KeyboardInterrupt: SIGINT stopped the server.
        StoppedError: another signal stopped the server.
        StillLoadingError: a signal arrived before the engine was open; the loading thread continues.
        PromptCacheError: the engine cannot be opened.
    """
    number, loaded = asyncio.run(_serve(app, service, listening, load, grace, ready))
    if number is not None and not loaded:
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
    """Serves, and returns the signal number and whether the loading thread ended."""
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
    """Calls a function on a daemon thread, which does not block the exit."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Engine] = loop.create_future()

    def tell(put: Callable[[Any], None], found: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(put, found)

    def call() -> None:
        try:
            tell(future.set_result, load())
        except BaseException as error:
            tell(future.set_exception, error)

    threading.Thread(target=call, name="loading", daemon=True).start()
    return future


@contextlib.contextmanager
def _on_signals() -> Iterator[_Signals]:
    """Handles the signals; signals ignored before, as under nohup, stay ignored."""
    loop, signals = asyncio.get_running_loop(), _Signals()
    numbers = [getattr(signal, name) for name in ENDING if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    ours = [number for number in numbers if number == signal.SIGINT or before[number] != signal.SIG_IGN]
    for number in ours:
        loop.add_signal_handler(number, signals.came, number)
    try:
        yield signals
    finally:
        for number in ours:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
