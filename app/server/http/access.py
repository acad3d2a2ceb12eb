"""The door of the server: who may come in, from where, with how much. ASGI, before everything else.

A page on another site can make a browser send requests to this machine. So on a loopback address a foreign
Host (DNS rebinding) is refused, and an Origin that was not allowed is refused everywhere. What is refused is
told in the dialect of the client.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
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
OPENAIS = ("/v1/chat/", "/v1/completions", "/v1/responses")
"""Prefixes of the paths that only OpenAI's clients use."""
PUBLIC = frozenset({"/health"})
OF_ALL = frozenset({"/metrics", "/v1/prompt_cache/residency"})
"""What tells of all clients together; where there are operators, theirs alone."""
BODY_SECONDS = 30.0
"""So long nothing more of a body may come before it is not waited for."""
HOST_NAME = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")
"""How a name or an address of a server is spelled in the header Host, without a port."""
_LONGEST_NAME = 253
_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::[0-9]{1,5})?")  # a name or an address, and a port


@dataclass(frozen=True)
class Access:
    """Who may come in.

    Attributes:
        keys: secrets, one of which a request must know; empty where all may come.
        hosts: names that a request may call the server by, in small letters; None for any.
        origins: sites whose pages may send requests.
        largest: the most bytes of a request's body.
        operators: secrets with which what tells of all clients can be asked for, and nothing else.
    """

    keys: tuple[str, ...] = ()
    hosts: frozenset[str] | None = LOOPBACK
    origins: frozenset[str] = frozenset()
    largest: int = 32 * 1000 * 1000
    operators: tuple[str, ...] = ()

    def salt(self, headers: dict[str, str]) -> str | None:
        """Returns a name for the key that a request brings, not the key itself; None where it is unknown."""
        named = _named(headers)
        return named if _is_among(self.keys, named) or not self.keys else None

    def operates(self, headers: dict[str, str]) -> bool | None:
        """Returns whether a request brings an operator's key; None where there are no operators."""
        return _is_among(self.operators, _named(headers)) if self.operators else None


def name_of(key: str) -> str:
    """Returns a name for a key that does not tell it."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _named(headers: dict[str, str]) -> str:
    """The name of the key that a request brings."""
    bearer = headers.get("authorization", "")
    key = bearer[7:] if bearer[:7].lower() == "bearer " else headers.get("x-api-key", "")
    with suppress(UnicodeDecodeError):
        key = key.encode("latin-1").decode()  # most clients write UTF-8, and headers are read as Latin-1
    return name_of(key.strip())


def _is_among(keys: Iterable[str], named: str) -> bool:
    found = [key for key in keys if hmac.compare_digest(name_of(key), named)]  # all: each takes as long
    return bool(found)


def _foreign_host(header: str, name: str) -> ApiError:
    """The refusal of a request by the name that it calls the server by, with the option that allows it."""
    said = f"The request calls the server by a name that is not its own: the header Host is {shown(header)}."
    if not HOST_NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        return ApiError(FOREIGN, f"{said} Send the name of the server there.")
    how = f"Allow it with `pml serve --allowed-host {name}`"
    return ApiError(FOREIGN, f"{said} {how}; `--host 0.0.0.0` with API keys allows every name.")


class _BrokenOffError(Exception):
    """The rest of the body is not read."""


class Door:
    """ASGI middleware round the server; `scope["state"]` gets what is known of a request.

    That is `request_id`, `client`, a digest of its key, and `operator`: whether that is an operator's.

    Args:
        app: the application.
        access: who may come in.
    """

    def __init__(self, app: Application, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers what is refused, and gives every answer the request's id."""
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
        """Why a request is refused; None where it may come in."""
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
        """Lets the application answer, and counts the body as it is read, whatever length was announced."""
        taken, started, whole = 0, False, False
        fault: ApiError | None = None

        async def counted() -> Message:
            nonlocal taken, whole, fault
            if whole:  # what comes now is that the client is gone
                return await receive()
            try:
                async with asyncio.timeout(BODY_SECONDS):
                    message = await receive()
            except TimeoutError:
                fault = ApiError(TOO_SLOW, "The body of the request does not come. Send it again, whole.")
                raise _BrokenOffError from None
            whole = not message.get("more_body", False)
            taken += len(message.get("body", b""))
            if taken > self._access.largest:
                fault = self._too_large()
                raise _BrokenOffError
            return message

        async def sent(message: Message) -> None:
            nonlocal started
            if fault is not None and not started:
                return  # what the application makes of the broken body is of no use
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
    """The dialect that a client speaks, by what it asks for, and by its header where both ask for it."""
    if path.startswith(OPENAIS):
        return "openai"
    return "anthropic" if path.startswith("/v1/messages") or "anthropic-version" in headers else "openai"


async def refuse(fault: ApiError, dialect: Dialect, request_id: str, send: Send) -> None:
    """Sends a refusal, whose connection is closed: the rest of a body is not read."""
    body = json.dumps(fault.body(dialect, request_id)).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *([(b"www-authenticate", b"Bearer")] if fault.kind is NO_KEY else []),
    ]
    await send({"type": "http.response.start", "status": fault.kind.status_in(dialect), "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _identified(send: Send, request_id: str) -> Send:
    """Adds the request's id to an answer, by the names that both vendors' clients look for."""
    names = [(b"x-request-id", request_id.encode()), (b"request-id", request_id.encode())]

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                *message.get("headers", ()),
                *names,
                (b"x-content-type-options", b"nosniff"),
            ]
        await send(message)

    return sent
