"""The bodies of requests: objects of JSON, read whole and strictly before anything is made of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast

from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from app.server.http.errors import INVALID, WRONG_TYPE, ApiError
from app.server.http.truncate import cut, shown
from engine.base.strict_json import JsonError, JsonValueError, read_json

One = TypeVar("One")
DEEPEST = 64
"""How deep a body may nest; whatever is made of it, down to a chat template, has bounds of its own below."""
_LARGE = 200_000  # bytes, which are read on a thread of their own
_HALVES = re.compile(r"[\ud800-\udfff]")
_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
UNKNOWN = "unknown_field"
"""What pydantic calls a field that is not known; its context has the `name`, and those that are `known`."""
_KINDS = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}


def _whole(value: object) -> object:
    """5.0 is the same number as 5 in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole number of a body."""


@dataclass(frozen=True)
class _FirstFault:
    """Has a list looked through up to its first fault: a body may hold millions of them."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        found: Any = handler(source)
        found["fail_fast"] = True
        return cast(CoreSchema, found)


Many = Annotated[list[One], _FirstFault()]
"""A list of a body, of which the first fault is told."""


class Strict(BaseModel):
    """An object of ours in a body: a field that is not known is a mistake, and the first of them is told."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _require_known(cls, given: Any) -> Any:
        known = [one.alias or name for name, one in cls.model_fields.items()]
        unknown = (name for name in given if name not in known) if isinstance(given, dict) else iter(())
        if (first := next(unknown, None)) is not None:
            raise PydanticCustomError(UNKNOWN, "unknown", {"name": first, "known": known})
        return given


class BodyRoute(APIRoute):
    """A route whose body, where it has one, is an object of JSON; what is none is told in a sentence."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns what answers a request of which the body was read."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def strictly(request: Request) -> Response:
            return await handle(_Read(request, await object_of(request)))

        return strictly


class _Read(Request):
    """A request whose body was read."""

    def __init__(self, request: Request, found: dict[str, Any]) -> None:
        super().__init__(request.scope, request.receive)
        self._found = found

    async def body(self) -> bytes:
        """Returns a body that is not empty."""
        return b"{}"

    async def json(self) -> Any:
        """Returns what was read."""
        return self._found


async def object_of(request: Request) -> dict[str, Any]:
    """Reads the body of a request.

    Raises:
        ApiError: it is no object of JSON, or was sent as something else.
    """
    require_json(request)
    data = await bytes_of(request)
    return await asyncio.to_thread(parsed, data) if len(data) > _LARGE else parsed(data)


async def bytes_of(request: Request) -> bytes:
    """Returns the bytes of a body.

    Raises:
        ApiError: they do not all come; then mostly nobody is there to be told.
    """
    try:
        return await request.body()
    except Exception as error:
        raise ApiError(INVALID, "The body of the request broke off. Send it again, whole.") from error


def media_type(request: Request) -> str:
    """Returns what a body is sent as, in small letters; "" where the request does not say it."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def require_json(request: Request) -> None:
    """Refuses a body that is sent as something else than JSON, or compressed.

    Raises:
        ApiError: it is.
    """
    kind, coding = media_type(request), request.headers.get("content-encoding", "identity").strip().lower()
    if kind not in ("", "application/json") and not re.fullmatch(r"application/[^/]+\+json", kind):
        words = f"The content-type is {shown(kind)}; send JSON as application/json."
        raise ApiError(WRONG_TYPE, words, "content-type")
    if coding not in ("", "identity"):
        words = f"The content-encoding is {shown(coding)}; send the body as it is, not compressed."
        raise ApiError(WRONG_TYPE, words, "content-encoding")


def parsed(data: bytes) -> dict[str, Any]:
    """Reads the bytes of a body.

    Raises:
        ApiError: they are no object of JSON, nest too deep, or a text holds half of a surrogate pair.
    """
    if not data.strip():
        raise ApiError(INVALID, "The body is empty. Send an object of JSON.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        words = f"The body is no JSON in UTF-8: byte {error.start} belongs to no character."
        raise ApiError(INVALID, words) from error
    try:
        found = read_json(text)
    except JsonValueError as error:
        where = f"See line {error.line}, column {error.column}."
        raise ApiError(INVALID, f"The body is no JSON: {error.what}. {where}", error.path or None) from error
    except JsonError as error:
        raise ApiError(INVALID, f"The body is no JSON: {error}.") from error
    if not isinstance(found, dict):
        kind = _KINDS.get(type(found), "a number")
        raise ApiError(INVALID, f"The body must be an object of JSON, and this is {kind}.")
    if _ESCAPED_HALF.search(text) or data.count(b"[") + data.count(b"{") > DEEPEST:
        _require_sound(found)
    return found


def half_in(text: str) -> str:
    """Returns the half of a surrogate pair that a text holds, as U+D800; "" where there is none."""
    found = _HALVES.search(text)
    return f"U+{ord(found[0]):04X}" if found else ""


def _require_sound(body: dict[str, Any]) -> None:
    """Refuses what nests too deep, and texts that are none."""
    waiting: list[tuple[Any, int, tuple[Any, ...]]] = [(body, 1, ())]  # each with the way back to the top
    while waiting:
        value, depth, way = waiting.pop()
        if depth > DEEPEST:
            raise ApiError(INVALID, f"The body nests more than {DEEPEST} deep.", _param(way))
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
        words = f"A text holds half of a surrogate pair ({half}), which is no character. Remove it."
        raise ApiError(INVALID, words, _param(way))


def _param(way: tuple[Any, ...]) -> str | None:
    """The field that a way leads to."""
    steps = []
    while way:
        way, name = way
        steps.append(name)
    return param_of(steps[::-1])


def param_of(steps: Iterable[int | str]) -> str | None:
    """Returns the field that steps into a body lead to, as `messages[0].content`; None for no steps."""
    named = (f"[{one}]" if isinstance(one, int) else f".{cut(one)}" for one in steps)
    return "".join(named).lstrip(".") or None
