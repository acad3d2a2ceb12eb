"""ASGI middleware that records requests and their outcomes. It runs before the access check."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from app.server.core.metrics import Figures, Request
from app.server.http.access import Application, Message, Receive, Scope, Send, dialect_of

ANSWERED = frozenset(
    {
        *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"),
        *("/api/chat", "/api/generate", "/api/embed"),
        *("/v1/decisions", "/v1/systemone", "/v1/rerank", "/v1/score", "/v1/generative_scoring"),
    }
)
"""Paths that produce answers. Other paths are listed only if a request is refused."""
_LARGEST = 65536  # bytes of an error body


class Noting:
    """Records requests to `ANSWERED` paths and rejected requests; `scope["state"]["noted"]` is the record.

    Args:
        app: the application with its access check.
        figures: the metrics that list the requests.
        endpoint: returns the endpoint path for a request path.
    """

    def __init__(self, app: Application, figures: Figures, endpoint: Callable[[str], str]) -> None:
        self._app, self._figures, self._endpoint = app, figures, endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Calls the application and records the response."""
        path = str(scope.get("path", ""))
        if scope["type"] != "http" or not path.startswith(("/v1/", "/api/")):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): b"" for name, _ in scope["headers"]}
        noted = self._figures.came(path, dialect_of(path, headers))
        state = scope.setdefault("state", {})
        state["noted"] = noted
        if scope["method"] == "POST" and path in ANSWERED:
            self._figures.listed(noted)
        refusal, vanished = bytearray(), False

        async def received() -> Message:
            nonlocal vanished
            noted.client = state.get("client", "")
            message = await receive()
            vanished = vanished or message["type"] == "http.disconnect"
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                noted.status = None if vanished else message["status"]  # the client is gone
                noted.client = state.get("client", "")
            elif (noted.status or 0) >= 400 and len(refusal) < _LARGEST:
                refusal.extend(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, received, sent)
        finally:
            self._over(noted, bytes(refusal), vanished)
            self._figures.answered(self._endpoint(path), noted)

    def _over(self, noted: Request, refusal: bytes, vanished: bool) -> None:
        if vanished and noted.outcome == "waiting":  # the client is gone
            noted.status = None
        elif (noted.status or 0) >= 400:
            noted.failed(_sentence(refusal) or f"The server answered with status {noted.status}.")
            if not noted.number:
                self._figures.listed(noted)
        noted.over()


def _sentence(refusal: bytes) -> str:
    """Returns the message of an error body in any API; "" if there is none."""
    try:
        body: Any = json.loads(refusal)
        if isinstance(body.get("error"), str):
            words, field = body["error"], None
        elif "detail" in body:
            field, words = ".".join(map(str, body["detail"][0]["loc"][1:])) or None, body["detail"][0]["msg"]
        else:
            words, field = body["error"]["message"], body["error"].get("param")
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
    if not isinstance(words, str):
        return ""
    named = isinstance(field, str) and re.search(rf"(?<![\w.]){re.escape(field)}(?!\w)", words)
    return words if named or not isinstance(field, str) else f"{field}: {words}"
