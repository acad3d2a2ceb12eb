"""What the page may ask: methods from a typed request to an object, or to a sentence of refusal."""

from __future__ import annotations

import inspect
import json
import logging
import reprlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from engine.base.errors import PromptCacheError

logger = logging.getLogger(__name__)

Json = dict[str, Any]
Method = TypeVar("Method", bound=Callable[..., Any])
Request = TypeVar("Request")
_MARK = "asked_by_the_page"


def endpoint(method: Method) -> Method:
    """Marks a method that the page may ask; its one parameter is the request, what it returns the answer."""
    setattr(method, _MARK, True)
    return method


class Endpoint:
    """One question that the page may ask.

    Args:
        method: a bound method that `endpoint` has marked.

    Attributes:
        name: the name by which the page asks.
        request: the type of what the page sends.
        answer: the type of what it gets.
    """

    def __init__(self, method: Callable[[Any], Any]) -> None:
        hints = get_type_hints(method, include_extras=True)
        self.name: str = getattr(method, "__name__", "")
        self.answer = hints.pop("return")
        (self.request,) = hints.values()
        self._method, self._reader = method, TypeAdapter[Any](self.request)

    def ask(self, sent: object) -> Json:
        """Returns the answer, or a sentence under `error`, never a traceback."""
        try:
            answer: Json = self._method(read(self._reader, sent))
            return answer
        except PromptCacheError as error:
            return {"error": str(error)}
        except Exception as error:
            logger.exception("The page's request %s failed", self.name)
            return {"error": f"The studio could not do this: {error!r}. Nothing was changed."}

    def function(self) -> Callable[[Any], Response]:
        """Returns what Gradio calls: its name is the question's."""

        def answer(sent: Any) -> Response:
            found = self.ask(sent)
            try:
                body = json.dumps(found, allow_nan=False)
            except (ValueError, RecursionError) as error:
                logger.exception("The answer to the page's request %s cannot be sent", self.name)
                body = json.dumps({"error": f"The studio cannot send the answer to the page: {error!r}."})
            return Response(body, media_type="application/json")

        answer.__name__ = self.name
        return answer


class Endpoints:
    """A part of the studio whose marked methods the page may ask."""

    def endpoints(self) -> list[Endpoint]:
        """Returns them by name."""
        methods = inspect.getmembers(self, inspect.ismethod)
        return [Endpoint(method) for _, method in methods if hasattr(method, _MARK)]


def by_name(parts: Iterable[Endpoints]) -> dict[str, Endpoint]:
    """Returns the endpoints of several parts; no two have one name."""
    found: dict[str, Endpoint] = {}
    for part in parts:
        for one in part.endpoints():
            assert one.name not in found, one.name
            found[one.name] = one
    return found


def read(reader: TypeAdapter[Request], sent: object) -> Request:
    """Returns a request as its type says.

    Raises:
        PromptCacheError: the page sent something else.
    """
    if not isinstance(sent, dict):
        raise PromptCacheError("The page sent something else than an object. Reload it and try again.")
    try:
        return reader.validate_python(sent)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(map(str, fault["loc"])) or "its request"
        rule = f"{fault['msg'][:1].lower()}{fault['msg'][1:]}"
        found = "nothing" if fault["type"] == "missing" else reprlib.repr(fault["input"])
        raise PromptCacheError(
            f"The page sent {found} as {place}: {rule}. Reload it and try again."
        ) from None
