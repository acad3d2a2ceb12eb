"""HTTP/1.1 with timeouts for idle and stalled connections."""

from __future__ import annotations

import asyncio
import socket

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_SECONDS = 30.0  # timeout for the head of a connection's next request

STALLED_SECONDS = 60.0  # timeout for a client that stops reading a response


class Protocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol; it drops clients that neither send nor read."""

    _head: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the timeout for the first request."""
        super().connection_made(transport)
        line = transport.get_extra_info("socket")
        if line.family in (socket.AF_INET, socket.AF_INET6):
            # Without TCP_NODELAY each event may wait 40 ms for the acknowledgement of the previous one.
            # asyncio sets it only for sockets that name their protocol, which a bound socket does not.
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._await_a_head()

    def data_received(self, data: bytes) -> None:
        """Handles received data."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._head_is_there()
        elif self._head is None and not self.transport.is_closing():
            self._await_a_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the timeouts."""
        self._head_is_there()
        super().connection_lost(exc)  # resumes writing

    def pause_writing(self) -> None:
        """Starts the timeout for a client that stops reading."""
        super().pause_writing()
        self._stalled = self._stalled or self.loop.call_later(STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancels that timeout."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def _await_a_head(self) -> None:
        self._head = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)

    def _head_is_there(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
