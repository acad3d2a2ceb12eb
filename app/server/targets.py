"""What a request names that is asked for: a path, or the whole URL, as requests through proxies name it."""

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

_WHOLE_URL = re.compile(rb"https?://([^/?#]*)([^?#]*)", re.IGNORECASE)


def in_origin_form(scope: Scope) -> Scope:
    """Returns a request with a path as its target; of one that names a URL with its host as the header Host.

    As RFC 9112 has it (3.2.2): a server takes URLs too, and what they say of the host counts, whatever the
    header says.
    """
    whole = _WHOLE_URL.fullmatch(scope.get("raw_path") or b"") if scope["type"] == "http" else None
    if whole is None:
        return scope
    path = whole[2] or b"/"
    headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"host"]
    return {
        **scope,
        "path": unquote(path.decode("ascii", "replace")),
        "raw_path": path,
        "headers": [(b"host", whole[1]), *headers],
    }


def taking_urls(app: Application) -> Application:
    """Returns an application that is asked by paths alone, whatever clients name."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await app(in_origin_form(scope), receive, send)

    return application
