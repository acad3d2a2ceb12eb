"""Access checks of the server: keys, hosts, origins and body size. The outermost ASGI middleware.

A page of another site can make a browser send requests to this machine. So a loopback address rejects a
foreign Host (DNS rebinding), and every address rejects an unknown Origin. Error bodies follow the client's
API.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from app.server.http.errors import FOREIGN, NO_KEY, TOO_LARGE, TOO_SLOW, ApiError, Dialect
from app.server.http.truncate import cut, shown

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})
OPENAIS = (
    *("/v1/chat/", "/v1/completions", "/v1/responses", "/v1/decisions"),
    *("/v1/embeddings", "/v1/rerank", "/v1/score", "/v1/generative_scoring"),
)
"""Prefixes of paths that only OpenAI's clients use."""
PUBLIC = frozenset({"/health"})
OF_ALL = frozenset({"/metrics", "/v1/prompt_cache/residency"})
"""Paths with data of all clients; only operators may read them, if there are operators."""
BODY_SECONDS = 30.0  # timeout between two parts of a request body
HOST_NAME = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
"""A host name or address in the header Host, without a port."""
_LONGEST_NAME = 253
_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::[0-9]{1,5})?")  # name or address, and port


@dataclass(frozen=True)
class Access:
    """Access rules."""

    keys: tuple[str, ...] = ()  # valid API keys; empty allows all clients
    hosts: frozenset[str] | None = LOOPBACK  # accepted host names, in lower case; None accepts any
    origins: frozenset[str] = frozenset()  # sites whose pages may send requests
    largest: int = 32 * 1000 * 1000  # maximum size of a request body in bytes
    operators: tuple[str, ...] = ()  # operator keys, valid only for data of all clients

    def salt(self, headers: dict[str, str]) -> str | None:
        """Returns the digest of a request's API key; None for an unknown key."""
        named = _named(headers)
        return named if _is_among(self.keys, named) or not self.keys else None

    def operates(self, headers: dict[str, str]) -> bool | None:
        """Returns whether a request has an operator key; None without operators."""
        return _is_among(self.operators, _named(headers)) if self.operators else None


def name_of(key: str) -> str:
    """Returns a digest of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _named(headers: dict[str, str]) -> str:
    """The digest of a request's key."""
    bearer = headers.get("authorization", "")
    key = bearer[7:] if bearer[:7].lower() == "bearer " else headers.get("x-api-key", "")
    with suppress(UnicodeDecodeError):
        key = key.encode("latin-1").decode()  # most clients send UTF-8, but headers are decoded as Latin-1
    return name_of(key.strip())


def _is_among(keys: Iterable[str], named: str) -> bool:
    matches = [key for key in keys if hmac.compare_digest(name_of(key), named)]  # constant time
    return bool(matches)


def _foreign_host(header: str, name: str) -> ApiError:
    """The error for an unknown host name; it names the option that allows the host."""
    words = f"The Host header {shown(header)} is not a name of this server."
    if not HOST_NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        return ApiError(FOREIGN, f"{words} Send the server's name.")
    how = f"Allow it with `pml serve --allowed-host {name}`"
    return ApiError(FOREIGN, f"{words} {how}; `--host 0.0.0.0` with API keys allows every name.")


class _BrokenOffError(Exception):
    """Reading the rest of the body was stopped."""


class Door:
    """The outermost ASGI middleware. It sets `scope["state"]` for each request.

    The state has `request_id`, `client` (a digest of the key) and `operator` (whether the key is an
    operator's).
    """

    def __init__(self, app: Application, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Rejects or forwards a request, and adds the request id to its response."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = str(scope.get("path", ""))
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        request_id = f"req_{secrets.token_hex(12)}"
        scope.setdefault("state", {})["request_id"] = request_id
        identified = _identified(send, request_id)
        fault = self._fault(scope, headers)
        if fault is not None:
            await refuse(fault, dialect_of(path, headers), request_id, identified)
            return
        await self._pass_on(scope, receive, identified)

    def _fault(self, scope: Scope, headers: dict[str, str]) -> ApiError | None:
        """The error for a rejected request; None to accept it."""
        access, path = self._access, str(scope["path"])
        host = _HOST.fullmatch(headers.get("host", ""))
        if access.hosts is not None and (host is None or host[1].lower() not in access.hosts):
            return _foreign_host(headers.get("host", ""), host[1].lower() if host else "")
        origin = headers.get("origin")
        own = (
            origin is not None
            and origin.lower() == f"{scope.get('scheme', 'http')}://{headers.get('host', '').lower()}"
        )
        if origin is not None and not own and origin not in access.origins:
            return ApiError(
                FOREIGN,
                f"Pages of {shown(origin)} may not use this server. "
                f"Allow them with `pml serve --origin {cut(origin)}`.",
            )
        if origin is None and headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return ApiError(
                FOREIGN, "A page of another site may not use this server. Allow it with --origin."
            )
        if path in PUBLIC or (scope["method"] == "OPTIONS" and origin is not None):
            return None
        client, operator = access.salt(headers), access.operates(headers)
        if client is None and operator and path in OF_ALL:
            client = ""
        if client is None:
            return ApiError(
                NO_KEY,
                "The API key is missing or unknown. Send “Authorization: Bearer KEY” or “x-api-key: KEY”.",
            )
        scope["state"] |= {"client": client, "operator": operator}
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > access.largest:
            return self._too_large()
        return None

    def _too_large(self) -> ApiError:
        return ApiError(
            TOO_LARGE, f"The request is larger than {self._access.largest} bytes. Send less, or raise --body."
        )

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Calls the application and limits the size of the received body."""
        received, started, whole = 0, False, False
        fault: ApiError | None = None

        async def counted() -> Message:
            nonlocal received, whole, fault
            if whole:  # the next message is the disconnect
                return await receive()
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    message = await receive()
            except TimeoutError:
                fault = ApiError(TOO_SLOW, "The request body did not arrive. Send it again.")
                raise _BrokenOffError from None
            whole = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > self._access.largest:
                fault = self._too_large()
                raise _BrokenOffError
            return message

        async def sent(message: Message) -> None:
            nonlocal started
            if fault is not None and not started:
                return  # drop the response to a broken body
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, counted, sent)
        except Exception:
            if fault is None:
                raise
        if fault is not None and not started:
            headers = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
            }
            dialect = dialect_of(str(scope["path"]), headers)
            await refuse(fault, dialect, scope["state"]["request_id"], send)


def dialect_of(path: str, headers: Any) -> Dialect:
    """Returns the API of a client, by path, or by header for shared paths."""
    if path.startswith(OPENAIS):
        return "openai"
    if path.startswith("/v1/systemone"):
        return "typesafe"
    if path.startswith("/api/") and not path.startswith("/api/v1/"):
        return "ollama"
    return "anthropic" if path.startswith("/v1/messages") or "anthropic-version" in headers else "openai"


async def refuse(fault: ApiError, dialect: Dialect, request_id: str, send: Send) -> None:
    """Sends an error and closes the connection, because the rest of the body stays unread."""
    body = fault.body(dialect, request_id).model_dump_json().encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *([(b"www-authenticate", b"Bearer")] if fault.kind is NO_KEY else []),
    ]
    await send({"type": "http.response.start", "status": fault.kind.status_in(dialect), "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _identified(send: Send, request_id: str) -> Send:
    """Adds the request id to a response, under each vendor's header name."""
    names = [
        (name, request_id.encode()) for name in (b"x-request-id", b"request-id", b"x-typesafe-request-id")
    ]

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                *message.get("headers", ()),
                *names,
                (b"x-content-type-options", b"nosniff"),
            ]
        await send(message)

    return sent
