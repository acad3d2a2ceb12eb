"""Allows only requests of the studio's own page, and sets the content security policy.

Pages on other sites or ports can make a browser send requests to 127.0.0.1. Three headers that a page cannot
forge reveal them: Host (another one means DNS rebinding), Origin, and Sec-Fetch-Site. Links on other sites
may open the page, because they cannot read it. Only the Gradio routes listed below are served. Routes for the
command line reject requests with browser headers and require a secret (`app/studio/model/remote_runs.py`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# Gradio's page needs inline scripts and `eval`; other sites are blocked.
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
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-dns-prefetch-control", b"off"),
)

READ = frozenset({"GET", "HEAD"})
PAGES = frozenset({"/", "/theme.css", "/favicon.ico"})
FOLDERS = ("/assets/", "/static/")
QUESTIONS = frozenset({"/gradio_api/startup-events", "/alive", "/work"})
CALLS = frozenset({"/gradio_api/component_server"})
COMMANDS = frozenset({"/runs/greeting", "/runs/answer"})
BROWSERS_SEND = frozenset({"origin", "referer", "cookie"})

_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::[0-9]{1,5})?")  # host and port
LARGEST_BODY = 32 * 1024 * 1024
"""Maximum bytes of a request: three documents of 5 MB as JSON, and their settings."""


@dataclass(frozen=True)
class Refusal:
    """A rejected request: its status and reason."""

    status: int
    words: str


FOREIGN = Refusal(
    403,
    "Refused: this request was not sent by the studio's own page. Open the address that `pml studio` prints.",
)
UNKNOWN = Refusal(404, "The studio has no page of this name. Its page is at /.")
UNKNOWN_PAGE = f"""<!doctype html>
<html lang="en">
<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">
<title>Prompt Cache Studio</title><p>{UNKNOWN.words} <a href="/">Open the studio</a></p></html>
"""
NOT_JSON = Refusal(415, "Refused: the studio accepts JSON only.")
TOO_LARGE = Refusal(413, f"Refused: a request has at most {LARGEST_BODY // 1024 // 1024} MB.")


class _TooLargeError(Exception):
    """The body went on beyond the limit."""


class Guard:
    """ASGI middleware around the studio.

    Args:
        app: the application to protect.
        hosts: the studio's host names, without ports.
        assets: the path of the page's own files.
    """

    def __init__(self, app: Application, hosts: frozenset[str], assets: str) -> None:
        self._app = app
        self._hosts = hosts
        self._folders = (*FOLDERS, assets + "/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers rejected requests with a message, and adds protective headers to all other answers."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        fault = self.fault(scope, headers)
        if fault is not None:
            logger.warning(
                "Refused (%d) a request to %r (Origin %r)",
                fault.status,
                scope.get("path"),
                headers.get("origin"),
            )
            await _refuse(fault, scope, send)
            return
        await self._pass_on(scope, receive, send)

    def fault(self, scope: Scope, headers: dict[str, str]) -> Refusal | None:
        """Returns why a request is rejected, or None."""
        method, path = str(scope.get("method", "")), str(scope.get("path", ""))
        if not self._is_ours(headers) and not self._is_link(method, path, headers):
            return FOREIGN
        if scope["type"] == "websocket" or not self._is_served(method, path):
            return UNKNOWN
        if path in COMMANDS and any(name in BROWSERS_SEND or name.startswith("sec-") for name in headers):
            return FOREIGN
        if method in READ:
            return None
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return NOT_JSON
        length = headers.get("content-length", "0")
        return TOO_LARGE if not length.isdecimal() or int(length[:20]) > LARGEST_BODY else None

    def _is_served(self, method: str, path: str) -> bool:
        if method in READ:
            return path in PAGES | QUESTIONS or (
                path.startswith(self._folders) and ".." not in path.split("/")
            )
        return method == "POST" and (path.removesuffix("/") in CALLS or path in COMMANDS)

    def _is_ours(self, headers: dict[str, str]) -> bool:
        """Whether these headers come from the studio's page or a program other than a browser."""
        host, origin = headers.get("host", ""), headers.get("origin")
        return (
            self._is_our_host(host)
            and (origin is None or origin.lower() == f"http://{host.lower()}")
            and headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        )

    def _is_link(self, method: str, path: str, headers: dict[str, str]) -> bool:
        """Whether the request follows a link to the page in a top-level window."""
        return (
            (method, path) == ("GET", "/")
            and self._is_our_host(headers.get("host", ""))
            and "origin" not in headers
            and headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest") == "document"
        )

    def _is_our_host(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        return match is not None and match[1].lower() in self._hosts

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Calls the application and counts the body's bytes, regardless of Content-Length."""
        taken, started, over = 0, False, False

        async def counted() -> Message:
            nonlocal taken, over
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > LARGEST_BODY:
                over = True
                raise _TooLargeError
            return message

        async def protected(message: Message) -> None:
            nonlocal started
            if over and not started:
                return  # ignore the answer to the truncated body
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", ()), *PROTECTION]
            await send(message)

        try:
            await self._app(scope, counted, protected)
        except Exception:
            if not over:
                raise
        if over and not started:
            await _refuse(TOO_LARGE, scope, send)


async def _refuse(fault: Refusal, scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    shown = fault is UNKNOWN and (b"sec-fetch-dest", b"document") in scope["headers"]
    body = (UNKNOWN_PAGE if shown else f"{fault.words}\n").encode()
    headers = [
        (b"content-type", b"text/html; charset=utf-8" if shown else b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),  # the rest of the body is not read
        *PROTECTION,
    ]
    await send({"type": "http.response.start", "status": fault.status, "headers": headers})
    await send({"type": "http.response.body", "body": body if scope.get("method") != "HEAD" else b""})
