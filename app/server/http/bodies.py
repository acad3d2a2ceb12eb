"""Parses request bodies: JSON objects, completely read and strictly validated."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast

from fastapi.routing import APIRoute
from pydantic import BeforeValidator, ConfigDict, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from app.server.http.errors import INVALID, WRONG_TYPE, ApiError
from app.server.http.shapes import Shape
from app.server.http.truncate import cut, shown
from engine.base.strict_json import JsonError, JsonValueError, read_json

One = TypeVar("One")
DEEPEST = 64  # maximum nesting of a body. Templates and other users of a body have lower limits.
_LARGE = 200_000  # bytes; larger bodies are parsed on a thread
_HALVES = re.compile(r"[\ud800-\udfff]")
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
UNKNOWN = "unknown_field"  # the pydantic error type for an unknown field; its context has `name` and `known`
_KINDS = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}


def _whole(value: object) -> object:
    """Accepts 5.0 as 5, because they are equal in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]  # a whole number in a body


@dataclass(frozen=True)
class _FirstFault:
    """Stops list validation at the first error, because a body may have millions."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: Any = handler(source)
        schema["fail_fast"] = True
        return cast(CoreSchema, schema)


Many = Annotated[list[One], _FirstFault()]  # a list in a body; only its first error is reported


class Strict(Shape):
    """An object of this server's own API: unknown fields are errors, and the first is reported."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _require_known(cls, given: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        unknown = (name for name in given if name not in known) if isinstance(given, dict) else iter(())
        if (first := next(unknown, None)) is not None:
            raise PydanticCustomError(UNKNOWN, "unknown", {"name": first, "known": known})
        return given


class BodyRoute(APIRoute):
    """A route whose body, if any, must be a JSON object."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns a handler that parses the body first."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def strictly(request: Request) -> Response:
            return await handle(_Read(request, await object_of(request)))

        return strictly


class _Read(Request):
    """A request with its parsed body."""

    def __init__(self, request: Request, found: dict[str, Any]) -> None:
        # FastAPI parses no body of a form.
        headers = [one for one in request.scope["headers"] if one[0] != b"content-type"]
        super().__init__({**request.scope, "headers": headers}, request.receive)
        self._found = found

    async def body(self) -> bytes:
        """Returns a non-empty placeholder."""
        return b"{}"

    async def json(self) -> Any:
        """Returns the parsed body."""
        return self._found


async def object_of(request: Request) -> dict[str, Any]:
    """Parses the body of a request; raises ApiError unless it is a JSON object, sent as JSON."""
    require_json(request)
    data = await bytes_of(request)
    return await asyncio.to_thread(parsed, data) if len(data) > _LARGE else parsed(data)


async def bytes_of(request: Request) -> bytes:
    """Reads the bytes of a body; raises ApiError if they are incomplete, mostly after a disconnect."""
    try:
        return await request.body()
    except Exception as error:
        raise ApiError(INVALID, "The request body is incomplete. Send it again.") from error


def media_type(request: Request) -> str:
    """Returns the media type of a body in lower case; "" without one."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


_FORM = "application/x-www-form-urlencoded"


def require_json(request: Request) -> None:
    """Rejects compressed bodies and media types other than JSON with an ApiError."""
    kind, coding = media_type(request), request.headers.get("content-encoding", "identity").strip().lower()
    if kind == _FORM and request.url.path.startswith("/api/"):  # curl's own, in Ollama's examples
        kind = ""
    if kind not in ("", "application/json") and not re.fullmatch(r"application/[^/]+\+json", kind):
        words = f"The content-type is {shown(kind)}; send JSON as application/json."
        raise ApiError(WRONG_TYPE, words, "content-type")
    if coding not in ("", "identity"):
        words = f"The content-encoding is {shown(coding)}; send the body as it is, not compressed."
        raise ApiError(WRONG_TYPE, words, "content-encoding")


def parsed(data: bytes) -> dict[str, Any]:
    """Parses the bytes of a body.

    Raises:
        ApiError: they are not a JSON object, nest too deep, or contain half of a surrogate pair.
    """
    if not data.strip():
        raise ApiError(INVALID, "The body is empty. Send a JSON object.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        words = f"The body is not JSON in UTF-8: byte {error.start} is not part of a character."
        raise ApiError(INVALID, words) from error
    try:
        value = read_json(text)
    except JsonValueError as error:
        where = f"See line {error.line}, column {error.column}."
        path = None if half_in(error.path) else error.path or None
        raise ApiError(INVALID, f"The body is not JSON: {error.what}. {where}", path) from error
    except JsonError as error:
        raise ApiError(INVALID, f"The body is not JSON: {error}.") from error
    if not isinstance(value, dict):
        kind = _KINDS.get(type(value), "a number")
        raise ApiError(INVALID, f"The body must be a JSON object, not {kind}.")
    if _ESCAPED_HALF.search(text) or data.count(b"[") + data.count(b"{") > DEEPEST:
        _require_sound(value)
    return value


def half_in(text: str) -> str:
    """Returns the first half of a surrogate pair in a text, as U+D800; "" without one."""
    match = _HALVES.search(text)
    return f"U+{ord(match[0]):04X}" if match else ""


def _require_sound(body: dict[str, Any]) -> None:
    """Rejects deep nesting and unpaired surrogates."""
    waiting: list[tuple[Any, int, tuple[Any, ...]]] = [(body, 1, ())]  # each value with its path
    while waiting:
        value, depth, way = waiting.pop()
        if depth > DEEPEST:
            raise ApiError(INVALID, f"The body nests deeper than {DEEPEST} levels.", _param(way))
        parts: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in parts:
            if isinstance(name, str) and not name.isascii():
                _require_characters(name, way)
            if isinstance(part, str):
                if not part.isascii():
                    _require_characters(part, (way, name))
            elif part and isinstance(part, dict | list):
                waiting.append((part, depth + 1, (way, name)))


def _require_characters(text: str, way: tuple[Any, ...]) -> None:
    if half := half_in(text):
        words = f"A text has half of a surrogate pair ({half}), which is not a character. Remove it."
        raise ApiError(INVALID, words, _param(way))


def _param(way: tuple[Any, ...]) -> str | None:
    steps = []
    while way:
        way, name = way
        steps.append(name)
    return param_of(steps[::-1])


def param_of(steps: Iterable[int | str]) -> str | None:
    """Returns a path in a body as a field name like `messages[0].content`; None for an empty path."""
    named = (f"[{step}]" if isinstance(step, int) else f".{cut(step)}" for step in steps)
    return "".join(named).lstrip(".") or None
