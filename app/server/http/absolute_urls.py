"""What a request asks for: a path, or a whole URL, as requests through proxies have it."""

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

ALONE = frozenset({"/health", "/metrics"})
FIRST = frozenset({"chat", "completions", "embeddings", "messages", "models", "responses"})
"""Where paths begin that clients ask for whose base URL lacks /v1."""
_WHOLE_URL = re.compile(rb"https?://([^/?#]*)([^?#]*)", re.IGNORECASE)


def in_origin_form(scope: Scope) -> Scope:
    """Returns a request with a path as its target; of one that names a URL with its host as the header Host.

    As RFC 9112 has it (3.2.2): a server takes URLs too, and what they say of the host counts, whatever the
    header says. A slash at the end of a path below /v1 is left out.
    """
    if scope["type"] != "http":
        return scope
    whole = _WHOLE_URL.fullmatch(scope.get("raw_path") or b"")
    if whole is not None:
        target = whole[2] or b"/"
        headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"host"]
        scope = {
            **scope,
            "path": unquote(target.decode("ascii", "replace")),
            "raw_path": target,
            "headers": [(b"host", whole[1]), *headers],
        }
    path = str(scope["path"])
    return {**scope, "path": path[:-1]} if path.startswith("/v1/") and path.endswith("/") else scope


def is_of_programs(path: str) -> bool:
    """Whether a path is one of the server's, or a misspelt one, and none of the studio's page."""
    steps = [step.lower() for step in path.split("/") if step]
    return path in ALONE or "v1" in steps or (steps[:1] != [] and steps[0] in FIRST)


def taking_urls(app: Application) -> Application:
    """Returns an application that is asked by paths alone, whatever clients name."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await app(in_origin_form(scope), receive, send)

    return application
