"""Requests of other web pages are refused; the studio's own and those from outside a browser pass."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.studio.guard import CONTENT_POLICY, Guard

HOSTS = frozenset({"127.0.0.1", "localhost"})


async def answering(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"fine"})


def ask(headers: dict[str, str], kind: str = "http") -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "path": "/", "headers": raw}
    asyncio.run(Guard(answering, HOSTS)(scope, receive, send))
    return sent


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:7860"},
        {"host": "localhost:7860"},
        {"host": "127.0.0.1:7860", "origin": "http://127.0.0.1:7860", "sec-fetch-site": "same-origin"},
        {"host": "127.0.0.1:7860", "sec-fetch-site": "none"},
    ],
)
def test_own_requests_pass(headers: dict[str, str]) -> None:
    start = ask(headers)[0]
    assert start["status"] == 200
    assert (b"content-security-policy", CONTENT_POLICY.encode()) in start["headers"]
    assert (b"x-frame-options", b"DENY") in start["headers"]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:7860", "origin": "http://evil.example:7860"},
        {"host": "127.0.0.1.evil.example:7860"},
        {"host": "127.0.0.1:7860", "origin": "http://127.0.0.1:9999"},
        {"host": "127.0.0.1:7860", "origin": "https://127.0.0.1:7860"},
        {"host": "127.0.0.1:7860", "origin": "http://localhost:7860"},
        {"host": "127.0.0.1:7860", "origin": "null"},
        {"host": "127.0.0.1:7860", "sec-fetch-site": "same-site"},
        {"host": "127.0.0.1:7860", "sec-fetch-site": "cross-site"},
        {},
    ],
)
def test_foreign_requests_are_refused(headers: dict[str, str]) -> None:
    start, body = ask(headers)
    assert start["status"] == 403
    assert b"Refused" in body["body"]


def test_foreign_websockets_are_closed() -> None:
    assert ask({"host": "127.0.0.1:7860", "origin": "http://evil.example"}, "websocket") == [
        {"type": "websocket.close", "code": 1008}
    ]


def test_the_policy_names_no_other_host() -> None:
    assert "http" not in CONTENT_POLICY
    assert "*" not in CONTENT_POLICY
