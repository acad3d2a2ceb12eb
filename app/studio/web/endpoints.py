"""The page's endpoints: methods from a typed request to an object or an error message."""

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
    """Marks a method as an endpoint; its one parameter is the request, its result the answer."""
    setattr(method, _MARK, True)
    return method


class Endpoint:
    """One endpoint.

    Args:
        method: a bound method that `endpoint` has marked.

    Attributes:
        name: the endpoint's name.
        request: the request's type.
        answer: the answer's type.
    """

    def __init__(self, method: Callable[[Any], Any]) -> None:
        hints = get_type_hints(method, include_extras=True)
        self.name: str = getattr(method, "__name__", "")
        self.answer = hints.pop("return")
        (self.request,) = hints.values()
        self._method, self._reader = method, TypeAdapter[Any](self.request)

    def ask(self, sent: object) -> Json:
        """Returns the answer, or a message in `error`, never a traceback."""
        try:
            answer: Json = self._method(read(self._reader, sent))
            return answer
        except PromptCacheError as error:
            return {"error": str(error)}
        except Exception as error:
            logger.exception("The page's request %s failed", self.name)
            return {"error": f"The studio could not do this: {error!r}. Nothing was changed."}

    def function(self) -> Callable[[Any], Response]:
        """Returns the function for Gradio, named like the endpoint."""

        def answer(sent: Any) -> Response:
            result = self.ask(sent)
            try:
                body = json.dumps(result, allow_nan=False)
            except (ValueError, RecursionError) as error:
                logger.exception("The answer to the page's request %s cannot be sent", self.name)
                body = json.dumps({"error": f"The studio cannot send the answer to the page: {error!r}."})
            return Response(body, media_type="application/json")

        answer.__name__ = self.name
        return answer


class Endpoints:
    """Base class of parts with endpoints."""

    def endpoints(self) -> list[Endpoint]:
        """Returns the endpoints by name."""
        methods = inspect.getmembers(self, inspect.ismethod)
        return [Endpoint(method) for _, method in methods if hasattr(method, _MARK)]


def by_name(parts: Iterable[Endpoints]) -> dict[str, Endpoint]:
    """Merges the endpoints of several parts; names must be unique."""
    endpoints: dict[str, Endpoint] = {}
    for part in parts:
        for endpoint in part.endpoints():
            assert endpoint.name not in endpoints, endpoint.name
            endpoints[endpoint.name] = endpoint
    return endpoints


def read(reader: TypeAdapter[Request], sent: object) -> Request:
    """Validates a request.

    Raises:
        PromptCacheError: the request does not match its type.
    """
    if not isinstance(sent, dict):
        raise PromptCacheError("The page sent a value that is not an object. Reload it and try again.")
    try:
        return reader.validate_python(sent)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        place = ".".join(map(str, fault["loc"])) or "its request"
        rule = f"{fault['msg'][:1].lower()}{fault['msg'][1:]}"
        value = "nothing" if fault["type"] == "missing" else reprlib.repr(fault["input"])
        raise PromptCacheError(
            f"The page sent {value} as {place}: {rule}. Reload it and try again."
        ) from None
