"""HTTP on a connection, which is closed where no request comes, or nobody takes the answer."""

from __future__ import annotations

import asyncio
import socket

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_SECONDS = 30.0
"""So long a new connection may take to send the head of its first request, or an old one that of another."""

STALLED_SECONDS = 60.0
"""So long nothing that fits no buffer may be taken of an answer before its reader counts as gone."""


class Protocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it; nobody is waited for who neither sends nor takes anything."""

    _head: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody is there."""
        super().connection_made(transport)
        line = transport.get_extra_info("socket")
        if line.family in (socket.AF_INET, socket.AF_INET6):
            # asyncio does it for sockets that name their protocol, which one that was bound before does not.
            # Else each event waits until the client has acknowledged the one before it, up to 40 ms.
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._await_a_head()

    def data_received(self, data: bytes) -> None:
        """Something has come."""
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._head_is_there()
        elif self._head is None and not self.transport.is_closing():
            self._await_a_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._head_is_there()
        super().connection_lost(exc)  # which resumes writing

    def pause_writing(self) -> None:
        """What is to be sent fits no buffer any more; the answer waits for its reader."""
        super().pause_writing()
        self._stalled = self._stalled or self.loop.call_later(STALLED_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """There is room again."""
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
