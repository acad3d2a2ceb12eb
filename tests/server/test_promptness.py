"""What is ready is sent at once: nothing of an answer waits for the client to acknowledge what was before."""

from __future__ import annotations

import asyncio
import socket

import httpx
import pytest

from app.server.protocol import Protocol
from tests.server.served import Served


def test_an_event_does_not_wait_until_the_one_before_is_acknowledged(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may acknowledge 40 ms late, and an event is less than a packet (Nagle's algorithm)."""
    found: list[int] = []
    made = Protocol.connection_made

    def noted(self: Protocol, transport: asyncio.Transport) -> None:
        made(self, transport)
        line = transport.get_extra_info("socket")
        found.append(line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(Protocol, "connection_made", noted)
    assert httpx.get(f"{server.url}/health").status_code == 200
    assert len(found) == 1
    assert found[0] != 0
