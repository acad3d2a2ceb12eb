"""Refuses requests that another web page sends to the studio, and tells the browser what the page may load.

A page on another site, or on another port of this machine, can make a browser send requests to 127.0.0.1.
Three headers that a page cannot forge tell them apart: Host (a foreign one means DNS rebinding), Origin, and
Sec-Fetch-Site.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# Gradio's page needs inline scripts and builds functions at run time; nothing may come from elsewhere.
CONTENT_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)

PROTECTION = (
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-dns-prefetch-control", b"off"),
)

REFUSAL = b"Refused: this request was not sent by the studio's own page.\n"


class Guard:
    """ASGI middleware around the studio.

    Args:
        app: the application to protect.
        hosts: the host names the studio answers to, with or without a port in the request.
    """

    def __init__(self, app: Application, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403 to a foreign request, and add the protective headers to every other answer."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        if not self.is_ours(headers):
            logger.warning(
                "Refused a foreign request to %s (Origin %r)", scope.get("path"), headers.get("origin")
            )
            await _refuse(scope, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *PROTECTION]
            await send(message)

        await self._app(scope, receive, protected)

    def is_ours(self, headers: dict[str, str]) -> bool:
        """Whether these headers can only come from the studio's own page or from outside any browser."""
        host = headers.get("host", "")
        name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        origin = headers.get("origin")
        return (
            name.lower() in self._hosts
            and (origin is None or origin.lower() == f"http://{host.lower()}")
            and headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        )


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(REFUSAL)).encode()),
    ]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": REFUSAL})
