"""Describes event streams and errors for FastAPI's `responses`."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel

from app.server.http import errors as table
from app.server.http.errors import AnthropicError, Dialect, Kind, OllamaError, OpenAIError, TypeSafeError

KINDS = tuple(kind for kind in vars(table).values() if isinstance(kind, Kind))
OPERATORS = "It covers all clients, so it requires an operator's key if there is one, or with --isolate."
BOTH: tuple[Dialect, ...] = ("openai", "anthropic")


def reference(*shapes: type[BaseModel]) -> dict[str, Any]:
    """Returns the schema of a shape, or of a union of shapes, by name."""
    found = [{"$ref": f"#/components/schemas/{shape.__name__}"} for shape in shapes]
    return found[0] if len(found) == 1 else {"anyOf": found}


def stream_of(events: Any) -> dict[int | str, dict[str, Any]]:
    """Describes a stream of an event, or of a union of events."""
    return {200: {"content": {"text/event-stream": {"schema": reference(*(get_args(events) or (events,)))}}}}


def lines_of(piece: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Describes a stream of lines of JSON."""
    return {200: {"content": {"application/x-ndjson": {"schema": reference(piece, OllamaError)}}}}


def errors(*dialects: Dialect, never: tuple[int, ...] = ()) -> dict[int | str, dict[str, Any]]:
    """Describes the errors of an endpoint, by status.

    Args:
        dialects: the APIs of its clients; none for both.
        never: statuses that it does not return.
    """
    apis = dialects or BOTH
    statuses = {kind.status_in(api) for kind in KINDS for api in apis if kind is not table.NO_METHOD}
    return {status: _error(apis, status) for status in sorted(statuses - {*never})}


def _error(dialects: tuple[Dialect, ...], status: int) -> dict[str, Any]:
    kinds = [(kind, api) for api in dialects for kind in KINDS if kind.status_in(api) == status]
    names = [kind.anthropic if api == "anthropic" else kind.code or kind.type for kind, api in kinds]
    shapes: dict[Dialect, type[BaseModel]] = {
        "openai": OpenAIError,
        "anthropic": AnthropicError,
        "ollama": OllamaError,
        "typesafe": TypeSafeError if status == 422 else OpenAIError,
    }
    body = reference(*(shapes[api] for api in dialects if api in {api for _, api in kinds}))
    error: dict[str, Any] = {
        "description": f"Error: {', '.join(f'`{name}`' for name in dict.fromkeys(names))}.",
        "content": {"application/json": {"schema": body}},
    }
    if any(kind.retry for kind, _ in kinds):
        error["headers"] = {"retry-after": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
    return error
