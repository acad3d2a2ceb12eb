"""Clients that no library would be: they hang up, stall, or send half of what they should."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable
from typing import Any


def connect(url: str, *, window: int | None = None) -> socket.socket:
    """A connection to a server; with a small window it takes little before it reads."""
    host, port = url.removeprefix("http://").split(":")
    line = socket.socket()
    if window is not None:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    line.settimeout(30)
    line.connect((host, int(port)))
    return line


def request(path: str, body: Any, *, cut: int | None = None) -> bytes:
    """The bytes of a POST, or as many of its body as are asked for."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data[:cut]


def hang_up(line: socket.socket, *, rudely: bool) -> None:
    """Goes away: with a farewell, or as a process does that was killed with data unread."""
    if rudely:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


def eventually(holds: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Waits until something holds."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.01)
