"""The endpoints of the server: what a path leads to, and what a request means that none of them answers."""

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
_ALIKE = 0.8  # difflib's ratio from which a path counts as misspelt

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
    "models": "Models cannot be changed by requests. Choose the model with `pml serve MODEL`.",
    "complete": "Anthropic's text completions are not offered. "
    "Use POST /v1/messages, or POST /v1/completions for raw text.",
    "embeddings": "The model writes text and makes no embeddings. "
    "Use a server of an embedding model; `pml ask` finds the modules that answer a question.",
    "moderations": "The server judges no texts. Ask the model itself with POST /v1/chat/completions.",
    "messages/batches": _BATCHES,
    "batches": _BATCHES,
    **dict.fromkeys(("files", "uploads", "containers", "skills", "vector_stores", "memory_stores"), _FILES),
    **dict.fromkeys(("audio", "images", "videos", "realtime", "live"), _TEXT),
    **dict.fromkeys(
        ("assistants", "threads", "conversations", "chatkit", "agents", "sessions"), _CONVERSATIONS
    ),
    **dict.fromkeys(
        ("decisions", "evals", "fine_tuning", "organization", "organizations", "projects", "safety"), _PROMPTS
    ),
}
"""Why an endpoint of the vendors is not offered, and what to use instead, by the beginning of its path."""


class Endpoints:
    """The endpoints.

    Args:
        routes: one for each path and its methods.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = [*routes]

    def name_of(self, path: str) -> str:
        """Returns the path of an endpoint as the description has it; "other" for none."""
        return next((route.path_format for route in self._routes if route.path_regex.match(path)), "other")

    def methods_at(self, path: str) -> list[str]:
        """Returns the methods that a path takes; none where it leads to no endpoint."""
        exact = [route for route in self._routes if route.path == path]
        found = exact or [route for route in self._routes if route.path_regex.match(path)]
        return sorted({method for route in found for method in route.methods or ()} - {"HEAD"})

    def refusal(self, method: str, path: str) -> ApiError:
        """Returns the refusal of a request that no endpoint answers, with the request that is meant.

        Args:
            method: of the request.
            path: of the request.
        """
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
        """A request for an endpoint, by its method where the endpoint takes it."""
        methods = self.methods_at(path)
        return f"{listed([method] if method in methods else methods, 'or')} {cut(path)}"

    def _reached(self, steps: Sequence[str]) -> str:
        """The endpoint that steps lead to with the right beginning and in small letters; "" for none."""
        ways = [steps, *(steps[first:] for first in range(1, len(steps) - 1))]  # less a proxy's own folders
        for way in filter(None, ways):
            for small in range(len(way) + 1):  # a name at the end stays as it is
                path = "/".join((*(step.lower() for step in way[:small]), *way[small:]))
                if found := next((one for one in (_ROOT + path, f"/{path}") if self.methods_at(one)), ""):
                    return found
        return ""

    def _alike(self, steps: Sequence[str]) -> str:
        """The endpoint of a misspelt path, or of a part of one; "" for none."""
        known = {route.path.removeprefix(_ROOT).lstrip("/"): route.path for route in self._routes}
        named = [name for name in known if "{" not in name]
        given = [step.lower() for step in steps]
        found = difflib.get_close_matches("/".join(given), named, 1, _ALIKE)
        found = found or [name for name in named if given and {*given} <= {*name.split("/")}]
        return known[found[0]] if found else ""


def _steps(path: str) -> list[str]:
    """The steps of a path behind its last version."""
    steps = [step for step in path.split("/") if step]
    versions = [place for place, step in enumerate(steps) if step.lower() == VERSION]
    return steps[versions[-1] + 1 :] if versions else steps


def _not_offered(steps: Sequence[str]) -> str:
    """Why what steps lead to is not offered, and what is; "" where that is not known."""
    begun = ["/".join(steps[:count]).lower() for count in range(len(steps), 0, -1)]
    return next((NOT_OFFERED[one] for one in begun if one in NOT_OFFERED), "")
