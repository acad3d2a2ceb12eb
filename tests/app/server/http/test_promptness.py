"""What is ready is sent at once: nothing of an answer waits for the client to acknowledge what was before."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest

from app.server.core import service
from app.server.http.protocol import Protocol
from tests.app.server.raw import connect, request
from tests.app.server.served import Served


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


@pytest.mark.parametrize(
    ("path", "asked", "opening", "text"),
    [
        ("/v1/chat/completions", {"max_tokens": 3}, b'"role":"assistant"', b'"delta":{"content":"'),
        ("/v1/messages", {"max_tokens": 3}, b"message_start", b"text_delta"),
        ("/v1/responses", {"max_output_tokens": 3}, b"output_item.added", b"output_text.delta"),
    ],
)
def test_what_opens_an_answer_goes_out_with_its_first_text(
    server: Served,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    asked: dict[str, Any],
    opening: bytes,
    text: bytes,
) -> None:
    """Where the text is there already: each piece by itself would wake its reader."""
    submitted = service.submitted

    def answered(*given: Any) -> Any:
        taken = submitted(*given)
        taken[0].ticket.result()
        return taken

    monkeypatch.setattr(service, "submitted", answered)
    said = [{"role": "user", "content": "Hello"}]
    body = {"model": server.model, "stream": True, "temperature": 0, "repetition_penalty": 1.5, **asked}
    body["input" if path == "/v1/responses" else "messages"] = said
    with connect(server.url) as line:
        line.sendall(request(path, body))
        raw = b""
        while not raw.endswith(b"0\r\n\r\n"):
            raw += line.recv(65536)
    (piece,) = [one for one in pieces(raw.partition(b"\r\n\r\n")[2]) if opening in one]
    assert text in piece


def pieces(body: bytes) -> list[bytes]:
    """The chunks of a body, as they were sent."""
    found = []
    while size := int(body.partition(b"\r\n")[0], 16):
        begin = body.index(b"\r\n") + 2
        found.append(body[begin : begin + size])
        body = body[begin + size + 2 :]
    return found
