"""The OpenAPI description of the server: FastAPI's, with the shapes that it cannot find in the routes."""

from __future__ import annotations

from typing import Any, get_args

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from app.server.anthropic.cache_plan import ChatPlanBody, MessagePlanBody
from app.server.anthropic.shapes import MessageEvent
from app.server.http.errors import AnthropicError, OllamaError, OpenAIError, TypeSafeError
from app.server.openai.response_shapes import ResponseEvent
from app.server.openai.shapes import ChatCompletionChunk
from app.server.schemas import PutBody

_ABOUT = (
    "Answers through the APIs of OpenAI, Anthropic and Ollama, with attention states that are computed once. "
    "An undescribed field that would change the answer is rejected by name; others are ignored. "
    "See docs/server.md."
)
BODIES = (PutBody, ChatPlanBody, MessagePlanBody)
REPLIES = (
    OpenAIError,
    AnthropicError,
    TypeSafeError,
    OllamaError,
    ChatCompletionChunk,
    *get_args(ResponseEvent),
    *get_args(MessageEvent),
)


def description(app: FastAPI) -> dict[str, Any]:
    """Returns the description of an application, and caches it."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=_ABOUT, routes=app.routes)
        shapes = document["components"]["schemas"]
        for name in ("HTTPValidationError", "ValidationError"):
            del shapes[name]
        _, more = models_json_schema(
            [*((body, "validation") for body in BODIES), *((reply, "serialization") for reply in REPLIES)],
            ref_template="#/components/schemas/{model}",
        )
        shapes |= more["$defs"]
        for operation in (one for methods in document["paths"].values() for one in methods.values()):
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]  # the server answers 400
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
        document["security"] = [{}, {"bearer": []}, {"key": []}]
        app.openapi_schema = document
    return app.openapi_schema
