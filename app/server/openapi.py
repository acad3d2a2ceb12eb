"""The OpenAPI description of the server: request bodies, responses and errors.

Request bodies come from the routes, responses from the shapes files, and errors from the table of errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.server.anthropic.shapes import MessageEvent
from app.server.core.json_schema import Shape, either, named
from app.server.field_words import described
from app.server.http import errors
from app.server.http.errors import AnthropicError, Dialect, Kind, OpenAIError
from app.server.openai.response_shapes import ResponseEvent
from app.server.openai.shapes import ChatCompletionChunk
from app.server.schemas import PutBody, TermsBody

_ABOUT = (
    "Answers through the APIs of OpenAI and Anthropic, with attention states that are computed once. "
    "An undescribed field that would change the answer is rejected by name; others are ignored. "
    "See docs/server.md."
)
_JSON = "application/json"
_EVENTS = "text/event-stream"
_BOTH: tuple[Dialect, ...] = ("openai", "anthropic")
_ERRORS = {"openai": "OpenAIError", "anthropic": "AnthropicError"}
KINDS: tuple[Kind, ...] = tuple(kind for kind in vars(errors).values() if isinstance(kind, Kind))
_ALWAYS = (400, 401, 403, 404, 408, 413, 500, 503, 529)
_OF_BODIES = (415,)
_OF_PLACES = (429,)


@dataclass(frozen=True)
class Told:
    """The responses of an endpoint."""

    shapes: tuple[str, ...] = ()  # alternative shapes of the response
    event: str = ""  # shape of stream events; "" without a stream
    dialects: tuple[Dialect, ...] = _BOTH  # APIs of its errors
    places: bool = False  # whether it may fail because the server is full
    statuses: tuple[int, ...] = (200,)  # success statuses
    words: str = "The answer."  # description of the response


_OPENAI: tuple[Dialect, ...] = ("openai",)
_ANTHROPIC: tuple[Dialect, ...] = ("anthropic",)
_NONE = Told((), dialects=_OPENAI, statuses=())
_SCHEMA = "/v1/prompt_cache/schemas"
_OPERATORS = "It covers all clients, so it requires an operator's key if there is one, or with --isolate."

TOLD: Mapping[tuple[str, str], Told] = {
    ("/v1/chat/completions", "post"): Told(
        ("ChatCompletion",),
        "ChatCompletionChunk",
        _OPENAI,
        places=True,
        words="The complete answer; with `stream`, events `data: …`, the last one `data: [DONE]`.",
    ),
    ("/v1/completions", "post"): Told(
        ("Completion",),
        "Completion",
        _OPENAI,
        places=True,
        words="The complete answer; with `stream`, events `data: …`, the last one `data: [DONE]`.",
    ),
    ("/v1/responses", "post"): Told(
        ("Response",),
        "ResponseEvent",
        _OPENAI,
        places=True,
        words="The complete answer; with `stream`, events `event: TYPE`, `data: …`.",
    ),
    ("/v1/responses/input_tokens", "post"): Told(("InputTokens",), dialects=_OPENAI, places=True),
    ("/v1/responses/{response_id}", "get"): _NONE,
    ("/v1/responses/{response_id}", "delete"): _NONE,
    ("/v1/responses/{response_id}/cancel", "post"): _NONE,
    ("/v1/responses/{response_id}/input_items", "get"): _NONE,
    ("/v1/messages", "post"): Told(
        ("Message",),
        "MessageEvent",
        _ANTHROPIC,
        places=True,
        words="The complete answer; with `stream`, events `event: TYPE`, `data: …`.",
    ),
    ("/v1/messages/count_tokens", "post"): Told(("TokenCount",), dialects=_ANTHROPIC, places=True),
    ("/v1/models", "get"): Told(
        ("OpenAIModels", "AnthropicModels"),
        words="Anthropic's format if the request has the header anthropic-version.",
    ),
    ("/v1/models/{name}", "get"): Told(
        ("OpenAIModel", "AnthropicModel"),
        words="Anthropic's format if the request has the header anthropic-version.",
    ),
    (f"{_SCHEMA}/{{name}}", "put"): Told(
        ("StoredSchema",),
        places=True,
        statuses=(200, 201),
        words="The stored schema; 201 if it is new or has a new text.",
    ),
    (f"{_SCHEMA}/{{name}}", "get"): Told(("StoredSchema",), places=True, words="The schema."),
    (f"{_SCHEMA}/{{name}}", "patch"): Told(("StoredSchema",), places=True, words="The stored schema."),
    (f"{_SCHEMA}/{{name}}", "delete"): Told(places=True, statuses=(204,), words="Deleted."),
    (_SCHEMA, "get"): Told(("SchemaPage",), places=True, words="A page of schemas by name."),
    ("/v1/prompt_cache/plan", "post"): Told(
        ("Plan",), places=True, words="The segments that the request would read and compute."
    ),
    ("/v1/prompt_cache/residency", "get"): Told(
        ("Residency",), places=True, words=f"The segments in memory. {_OPERATORS}"
    ),
    ("/health", "get"): Told(("Health",), dialects=(), statuses=(200, 503), words="The state of the server."),
    ("/metrics", "get"): Told(words=f"Metrics in Prometheus' text format. {_OPERATORS}"),
}
"""The responses of every endpoint, by path and method."""


def description(app: FastAPI) -> dict[str, Any]:
    """Returns the description of an application, and caches it."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=_ABOUT, routes=app.routes)
        _complete(document)
        app.openapi_schema = document
    return app.openapi_schema


def _complete(made: dict[str, Any]) -> None:
    components = made["components"]
    shapes = components["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        shapes.pop(name, None)
    for body in (PutBody, TermsBody):
        shapes[body.__name__] = body.model_json_schema()
    shapes["PlanBody"] = _plan_body()
    for name, shape in shapes.items():
        shape.pop("title", None)
        described(name, shape.get("properties", {}))
    shapes |= _definitions(
        *(OpenAIError, AnthropicError, ChatCompletionChunk),
        *(*get_args(ResponseEvent), *get_args(MessageEvent)),
    )
    for name, union in (("ResponseEvent", ResponseEvent), ("MessageEvent", MessageEvent)):
        events = either(*(named(kind.__name__) for kind in get_args(union)))
        shapes[name] = {"description": "An event.", **events}
    components["responses"] = {f"{dialect}{status}": _error(dialect, status) for dialect, status in _pairs()}
    components["responses"] |= {f"both{status}": _error("both", status) for status in _statuses(_BOTH)}
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    made["security"] = [{}, {"bearer": []}, {"key": []}]
    for path, methods in made["paths"].items():
        for method, operation in methods.items():
            _operation(operation, TOLD[path, method], bool(_body(operation, path, method)))


def _definitions(*models: type[BaseModel]) -> dict[str, Any]:
    """Returns the schemas of models that no route names as its only answer."""
    _, found = models_json_schema(
        [(model, "serialization") for model in models], ref_template="#/components/schemas/{model}"
    )
    definitions: dict[str, Any] = found["$defs"]
    return definitions


def _body(operation: dict[str, Any], path: str, method: str) -> dict[str, Any] | None:
    """Returns the request body; adds it for endpoints that parse their bodies themselves."""
    if path.startswith(_SCHEMA) and method in ("put", "patch"):
        name = "PutBody" if method == "put" else "TermsBody"
        content: dict[str, Any] = {_JSON: {"schema": named(name)}}
        if method == "put":
            content |= {kind: {"schema": {"type": "string"}} for kind in ("application/xml", "text/xml")}
        operation["requestBody"] = {"required": True, "content": content}
    elif path == "/v1/prompt_cache/plan":
        operation["requestBody"]["content"] = {_JSON: {"schema": named("PlanBody")}}
    body: dict[str, Any] | None = operation.get("requestBody")
    return body


def _plan_body() -> Shape:
    words = {
        "description": "The vendor of this request body. Default: from the headers.",
        "enum": [*_BOTH],
    }
    more = {"type": "object", "properties": {"dialect": words}}
    bodies = either(named("ChatBody"), named("CountBody"))
    return {"description": "The request to plan.", "allOf": [bodies, more]}


def _operation(operation: dict[str, Any], told: Told, takes: bool) -> None:
    """Adds the responses to an operation."""
    responses: dict[str, Any] = {}
    for status in told.statuses:
        content: dict[str, Any] = {}
        if told.shapes:
            shapes = [named(name) for name in told.shapes]
            content[_JSON] = {"schema": shapes[0] if len(shapes) == 1 else either(*shapes)}
        elif status == 200:
            content["text/plain"] = {"schema": {"type": "string"}}
        if told.event:
            content[_EVENTS] = {"schema": named(told.event)}
        responses[str(status)] = {"description": told.words, **({"content": content} if content else {})}
    included = {*_ALWAYS, *(_OF_BODIES if takes else ()), *(_OF_PLACES if told.places else ())}
    who = told.dialects[0] if len(told.dialects) == 1 else "both"
    for status in _statuses(told.dialects):
        if status in included:
            responses.setdefault(str(status), {"$ref": f"#/components/responses/{who}{status}"})
    operation["responses"] = responses


def _pairs() -> list[tuple[Dialect, int]]:
    return [(dialect, status) for dialect in _BOTH for status in _statuses((dialect,))]


def _statuses(dialects: Sequence[Dialect]) -> list[int]:
    return sorted({kind.status_in(dialect) for dialect in dialects for kind in KINDS})


def _error(dialect: str, status: int) -> dict[str, Any]:
    dialects: tuple[Dialect, ...] = _BOTH if dialect == "both" else (dialect,)  # type: ignore[assignment]
    kinds = [kind for kind in KINDS if any(kind.status_in(api) == status for api in dialects)]
    names = dict.fromkeys(
        f"`{kind.anthropic if api == 'anthropic' else kind.code or kind.type}`"
        for api in dialects
        for kind in kinds
    )
    shapes = [named(_ERRORS[api]) for api in dialects]
    error: dict[str, Any] = {
        "description": f"Error: {', '.join(names)}.",
        "content": {_JSON: {"schema": shapes[0] if len(shapes) == 1 else either(*shapes)}},
    }
    if any(kind.retry for kind in kinds):
        error["headers"] = {"retry-after": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
    return error
