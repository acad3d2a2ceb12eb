"""Maps paths to endpoints, and explains requests to unknown paths."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

from starlette.routing import Route

from app.server.http.errors import NO_METHOD, NOT_FOUND, ApiError
from app.server.http.truncate import cut, listed

VERSION = "v1"
_ROOT = f"/{VERSION}/"
BASE_URLS = "The base URL of OpenAI's clients ends in /v1, and that of Anthropic's clients does not."
ALL = "GET /v1/openapi.json describes every endpoint."
_ALIKE = 0.8  # minimum difflib ratio of a misspelled path

_CONVERSATIONS = (
    "The server stores no conversations. "
    "Send all messages to POST /v1/chat/completions, POST /v1/responses or POST /v1/messages."
)
_FILES = (
    "The server stores no files. "
    "Put the text into a message, or into a schema with PUT /v1/prompt_cache/schemas/NAME."
)
_TEXT = "The model reads and writes text only. Send text to POST /v1/chat/completions."
_BATCHES = (
    "The server runs no batches. "
    "Send each request to POST /v1/chat/completions or POST /v1/messages, several at a time."
)
_PROMPTS = (
    "The server only answers prompts: "
    "use POST /v1/chat/completions, POST /v1/responses, POST /v1/completions or POST /v1/messages."
)
NOT_OFFERED: Mapping[str, str] = {
    "chat/completions": "The server stores no chat completions. "
    "Store each answer yourself, and send all messages to POST /v1/chat/completions.",
    "responses": "The server stores no responses. Send the whole input to POST /v1/responses.",
    "responses/compact": "The server shortens no conversations. "
    "Send the items that the model must read to POST /v1/responses.",
    "models": "Requests cannot change the model. Choose the model with `pml serve MODEL`.",
    "complete": "Anthropic's text completions are not offered. "
    "Use POST /v1/messages, or POST /v1/completions for raw text.",
    **dict.fromkeys(
        ("api/pull", "api/push", "api/create", "api/copy", "api/delete", "api/blobs"),
        "Requests cannot change the model. Choose the model with `pml serve MODEL`.",
    ),
    "api/embeddings": "It is Ollama's older endpoint. Use POST /api/embed, with the text as input.",
    "moderations": "The server does not moderate texts. Ask the model itself with POST /v1/chat/completions.",
    "messages/batches": _BATCHES,
    "batches": _BATCHES,
    **dict.fromkeys(("files", "uploads", "containers", "skills", "vector_stores", "memory_stores"), _FILES),
    **dict.fromkeys(("audio", "images", "videos", "realtime", "live"), _TEXT),
    **dict.fromkeys(
        ("assistants", "threads", "conversations", "chatkit", "agents", "sessions"), _CONVERSATIONS
    ),
    **dict.fromkeys(
        ("evals", "fine_tuning", "organization", "organizations", "projects", "safety"), _PROMPTS
    ),
}
"""By the start of a path, why an endpoint of the vendors is missing and what to use instead."""


class Endpoints:
    """The endpoints, with one route for each path and its methods."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = [*routes]

    def name_of(self, path: str) -> str:
        """Returns the endpoint path in the API description; "other" for an unknown path."""
        return next((route.path_format for route in self._routes if route.path_regex.match(path)), "other")

    def methods_at(self, path: str) -> list[str]:
        """Returns the methods that a path accepts; none for an unknown path."""
        exact = [route for route in self._routes if route.path == path]
        matching = exact or [route for route in self._routes if route.path_regex.match(path)]
        return sorted({method for route in matching for method in route.methods or ()} - {"HEAD"})

    def refusal(self, method: str, path: str) -> ApiError:
        """Returns the error for an unknown endpoint, with the likely intended request."""
        methods, steps = self.methods_at(path), _steps(path)
        kind = NO_METHOD if methods else NOT_FOUND
        missing = f"There is no endpoint {cut(path)}."
        if not methods and (reached := self._reached(steps)):
            same_place = [*filter(None, path.lower().split("/"))] == reached.lower().split("/")[1:]
            more = [BASE_URLS] if reached.startswith(_ROOT) and not same_place else []
            return ApiError(kind, " ".join((missing, f"Use {self._told(method, reached)}.", *more)))
        alike = self._alike(steps)
        if methods and method in self.methods_at(alike) and alike != path:
            return ApiError(NOT_FOUND, f"{missing} Did you mean {method} {alike}?")
        stored = "/".join(steps).lower() in NOT_OFFERED and method == "GET"
        exact = any(route.path == path and "{" not in path for route in self._routes)
        if (not exact or stored) and (words := _not_offered(steps)):
            return ApiError(kind, f"{cut(method)} {cut(path)} is not offered. {words}")
        if methods:
            return ApiError(kind, f"{cut(path)} does not take {cut(method)}. Use {self._told(method, path)}.")
        if alike:
            return ApiError(kind, f"{missing} Did you mean {self._told(method, alike)}?")
        return ApiError(kind, f"{missing} {ALL} {BASE_URLS}")

    def _told(self, method: str, path: str) -> str:
        """Describes an endpoint, with the method if the endpoint accepts it."""
        methods = self.methods_at(path)
        return f"{listed([method] if method in methods else methods, 'or')} {cut(path)}"

    def _reached(self, steps: Sequence[str]) -> str:
        """The endpoint for path segments after fixing prefix and case; "" without one."""
        ways = [steps, *(steps[first:] for first in range(1, len(steps) - 1))]  # without a proxy's own prefix
        for way in filter(None, ways):
            for small in range(len(way) + 1):  # a name at the end keeps its case
                path = "/".join((*(step.lower() for step in way[:small]), *way[small:]))
                if endpoint := next((way for way in (_ROOT + path, f"/{path}") if self.methods_at(way)), ""):
                    return endpoint
        return ""

    def _alike(self, steps: Sequence[str]) -> str:
        """The endpoint of a misspelled or partial path; "" without one."""
        known = {route.path.removeprefix(_ROOT).lstrip("/"): route.path for route in self._routes}
        named = [name for name in known if "{" not in name]
        lowered = [step.lower() for step in steps]
        matches = difflib.get_close_matches("/".join(lowered), named, 1, _ALIKE)
        matches = matches or [name for name in named if lowered and {*lowered} <= {*name.split("/")}]
        return known[matches[0]] if matches else ""


def _steps(path: str) -> list[str]:
    """The path segments after the last version."""
    steps = [step for step in path.split("/") if step]
    versions = [place for place, step in enumerate(steps) if step.lower() == VERSION]
    return steps[versions[-1] + 1 :] if versions else steps


def _not_offered(steps: Sequence[str]) -> str:
    """Why an endpoint is missing, and its replacement; "" if unknown."""
    prefixes = ["/".join(steps[:count]).lower() for count in range(len(steps), 0, -1)]
    return next((NOT_OFFERED[start] for start in prefixes if start in NOT_OFFERED), "")
