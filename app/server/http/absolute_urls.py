"""Accepts a path or an absolute URL, as proxies send it, as a request target; and vLLM's own paths."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

OTHER_PATHS = {
    **{f"/{name}": f"/v1/{name}" for name in ("rerank", "score", "generative_scoring")},
    "/v2/rerank": "/v1/rerank",
}
"""Paths of vLLM, by which it also serves endpoints below /v1."""
ALONE = frozenset({"/health", "/metrics"})
FIRST = frozenset(
    {"api", "chat", "completions", "decisions", "embeddings", "messages", "models", "responses", "systemone"}
)
"""First path segments of Ollama's API, and those that clients use if their base URL lacks /v1."""
_WHOLE_URL = re.compile(rb"https?://([^/?#]*)([^?#]*)", re.IGNORECASE)


def in_origin_form(scope: Scope) -> Scope:
    """Returns a request with a path as its target; the host of an absolute URL becomes the header Host.

    RFC 9112 (3.2.2) requires servers to accept absolute URLs and to prefer their host to the header. Paths
    below /v1 and /api lose a trailing slash, and vLLM's other paths become those below /v1.
    """
    if scope["type"] != "http":
        return scope
    match = _WHOLE_URL.fullmatch(scope.get("raw_path") or b"")
    if match is not None:
        target = match[2] or b"/"
        headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"host"]
        scope = {
            **scope,
            "path": unquote(target.decode("ascii", "replace")),
            "raw_path": target,
            "headers": [(b"host", match[1]), *headers],
        }
    path = str(scope["path"])
    shorter = path.removesuffix("/")
    own = OTHER_PATHS.get(shorter, shorter if path.startswith(("/v1/", "/api/")) else path)
    return scope if own == path else {**scope, "path": own}


def is_of_programs(path: str) -> bool:
    """Returns whether a path belongs to the server or is a misspelled one, not to the studio's page."""
    steps = [step.lower() for step in path.split("/") if step]
    return path in ALONE or "v1" in steps or (steps[:1] != [] and steps[0] in FIRST)


def taking_urls(app: Application) -> Application:
    """Wraps an application so that it gets only paths as request targets."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await app(in_origin_form(scope), receive, send)

    return application
