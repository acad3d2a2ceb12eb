"""The description of the server by OpenAPI: what each endpoint takes, answers and refuses.

The routes know what they take; what they answer stands in the files of shapes, and what they refuse in the
table of errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.server.anthropic.shapes import ANTHROPIC
from app.server.core.json_schema import OWN, Shape, either, named
from app.server.field_words import described
from app.server.http import errors
from app.server.http.errors import Dialect, Kind
from app.server.openai.shapes import OPENAI, RESPONSES
from app.server.schemas import PutBody, TermsBody

_ABOUT = (
    "Answers in the dialects of OpenAI and of Anthropic, from attention states that were computed once. "
    "A field that is not described and would change the answer is refused by its name; every other one is "
    "let pass. docs/server.md says more."
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
    """What an endpoint answers.

    Attributes:
        shapes: the names of the shapes of which its answer has one.
        event: that of the events of a stream; "" where there is none.
        dialects: of its errors.
        places: whether it needs a place, of which there may be none.
        statuses: of what is no error.
        words: what there is to say of it.
    """

    shapes: tuple[str, ...] = ()
    event: str = ""
    dialects: tuple[Dialect, ...] = _BOTH
    places: bool = False
    statuses: tuple[int, ...] = (200,)
    words: str = "The answer."


_OPENAI: tuple[Dialect, ...] = ("openai",)
_ANTHROPIC: tuple[Dialect, ...] = ("anthropic",)
_NONE = Told((), dialects=_OPENAI, statuses=())
_SCHEMA = "/v1/prompt_cache/schemas"
_OPERATORS = "It tells of all clients: with an operator's key alone where there is one, and with --isolate."

TOLD: Mapping[tuple[str, str], Told] = {
    ("/v1/chat/completions", "post"): Told(
        ("ChatCompletion",),
        "ChatCompletionChunk",
        _OPENAI,
        places=True,
        words="The answer, whole; with `stream` an event `data: …` for each part, and `data: [DONE]`.",
    ),
    ("/v1/completions", "post"): Told(
        ("Completion",),
        "Completion",
        _OPENAI,
        places=True,
        words="The answer, whole; with `stream` an event `data: …` for each part, and `data: [DONE]`.",
    ),
    ("/v1/responses", "post"): Told(
        ("Response",),
        "ResponseEvent",
        _OPENAI,
        places=True,
        words="The answer, whole; with `stream` events `event: TYPE`, `data: …`.",
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
        words="The answer, whole; with `stream` events `event: TYPE`, `data: …`.",
    ),
    ("/v1/messages/count_tokens", "post"): Told(("TokenCount",), dialects=_ANTHROPIC, places=True),
    ("/v1/models", "get"): Told(
        ("OpenAIModels", "AnthropicModels"), words="Anthropic's where the header anthropic-version is there."
    ),
    ("/v1/models/{name}", "get"): Told(
        ("OpenAIModel", "AnthropicModel"), words="Anthropic's where the header anthropic-version is there."
    ),
    (f"{_SCHEMA}/{{name}}", "put"): Told(
        ("Schema",),
        places=True,
        statuses=(200, 201),
        words="The schema, as it is kept now; 201 where it is new or has another text.",
    ),
    (f"{_SCHEMA}/{{name}}", "get"): Told(("Schema",), places=True, words="The schema."),
    (f"{_SCHEMA}/{{name}}", "patch"): Told(("Schema",), places=True, words="The schema, as it is kept now."),
    (f"{_SCHEMA}/{{name}}", "delete"): Told(places=True, statuses=(204,), words="It is there no more."),
    (_SCHEMA, "get"): Told(("Schemas",), places=True, words="A page of schemas by name."),
    ("/v1/prompt_cache/plan", "post"): Told(
        ("Plan",), places=True, words="What the request would read and compute."
    ),
    ("/v1/prompt_cache/residency", "get"): Told(
        ("Residency",), places=True, words=f"What is in memory. {_OPERATORS}"
    ),
    ("/health", "get"): Told(("Health",), dialects=(), statuses=(200, 503), words="Whether it answers."),
    ("/metrics", "get"): Told(words=f"What was counted, in Prometheus' text. {_OPERATORS}"),
}
"""By path and method, each endpoint that there is."""


def description(app: FastAPI) -> dict[str, Any]:
    """Returns the description of an application, which is made once.

    Args:
        app: the routes of the server.
    """
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=_ABOUT, routes=app.routes)
        _complete(made)
        app.openapi_schema = made
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
    shapes |= {**OPENAI, **RESPONSES, **ANTHROPIC, **OWN}
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


def _body(operation: dict[str, Any], path: str, method: str) -> dict[str, Any] | None:
    """What an endpoint takes; those of schemas and plans read their bodies themselves."""
    if path.startswith(_SCHEMA) and method in ("put", "patch"):
        name = "PutBody" if method == "put" else "TermsBody"
        content: dict[str, Any] = {_JSON: {"schema": named(name)}}
        if method == "put":
            content |= {kind: {"schema": {"type": "string"}} for kind in ("application/xml", "text/xml")}
        operation["requestBody"] = {"required": True, "content": content}
    elif path == "/v1/prompt_cache/plan":
        operation["requestBody"]["content"] = {_JSON: {"schema": named("PlanBody")}}
    found: dict[str, Any] | None = operation.get("requestBody")
    return found


def _plan_body() -> Shape:
    words = {
        "description": "The vendor whose request body this is. Default: chosen by the headers.",
        "enum": [*_BOTH],
    }
    more = {"type": "object", "properties": {"dialect": words}}
    bodies = either(named("ChatBody"), named("CountBody"))
    return {"description": "A request whose plan is wanted.", "allOf": [bodies, more]}


def _operation(operation: dict[str, Any], told: Told, takes: bool) -> None:
    """Says what an endpoint answers and refuses."""
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
    wanted = {*_ALWAYS, *(_OF_BODIES if takes else ()), *(_OF_PLACES if told.places else ())}
    who = told.dialects[0] if len(told.dialects) == 1 else "both"
    for status in _statuses(told.dialects):
        if status in wanted:
            responses.setdefault(str(status), {"$ref": f"#/components/responses/{who}{status}"})
    operation["responses"] = responses


def _pairs() -> list[tuple[Dialect, int]]:
    return [(dialect, status) for dialect in _BOTH for status in _statuses((dialect,))]


def _statuses(dialects: Sequence[Dialect]) -> list[int]:
    """The statuses of errors in some dialects."""
    return sorted({kind.status_in(dialect) for dialect in dialects for kind in KINDS})


def _error(dialect: str, status: int) -> dict[str, Any]:
    """The answer with an error of a status."""
    dialects: tuple[Dialect, ...] = _BOTH if dialect == "both" else (dialect,)  # type: ignore[assignment]
    kinds = [kind for kind in KINDS if any(kind.status_in(one) == status for one in dialects)]
    names = dict.fromkeys(
        f"`{kind.anthropic if one == 'anthropic' else kind.code or kind.type}`"
        for one in dialects
        for kind in kinds
    )
    shapes = [named(_ERRORS[one]) for one in dialects]
    found: dict[str, Any] = {
        "description": f"Refused, or failed: {', '.join(names)}.",
        "content": {_JSON: {"schema": shapes[0] if len(shapes) == 1 else either(*shapes)}},
    }
    if any(kind.retry for kind in kinds):
        found["headers"] = {"retry-after": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
    return found
