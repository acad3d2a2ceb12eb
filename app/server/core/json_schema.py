"""Helpers for JSON Schemas of responses, and the schemas of this server's own responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Shape = dict[str, Any]

TEXT: Shape = {"type": "string"}
WHOLE: Shape = {"type": "integer"}
COUNT: Shape = {"type": "integer", "minimum": 0}
NUMBER: Shape = {"type": "number"}
FLAG: Shape = {"type": "boolean"}
NULL: Shape = {"type": "null"}
ANY: Shape = {}
OBJECT: Shape = {"type": "object"}


def words(description: str, shape: Shape) -> Shape:
    """Returns a shape with a description."""
    return {**shape, "description": description}


def one_of(*values: Any) -> Shape:
    """Returns the shape of an enumeration."""
    return {"const": values[0]} if len(values) == 1 else {"enum": [*values]}


def either(*shapes: Shape) -> Shape:
    """Returns a union of shapes."""
    return {"anyOf": [*shapes]}


def maybe(shape: Shape) -> Shape:
    """Returns a nullable shape."""
    return either(shape, NULL)


def many(shape: Shape) -> Shape:
    """Returns a list of a shape."""
    return {"type": "array", "items": shape}


def named(name: str) -> Shape:
    """Returns a reference to a named shape."""
    return {"$ref": f"#/components/schemas/{name}"}


def record(description: str, optional: Sequence[str] = (), /, **fields: Shape) -> Shape:
    """Returns an object with these fields only, some of them optional."""
    return {
        "type": "object",
        "description": description,
        "properties": fields,
        "required": [name for name in fields if name not in optional],
        "additionalProperties": False,
    }


def event(kind: str, description: str, /, **fields: Shape) -> Shape:
    """Returns an event with its `type`."""
    return record(description, type=one_of(kind), **fields)


READ = words("Prompt tokens read from the cache.", COUNT)
WRITTEN = words("Prompt tokens computed and stored on disk.", COUNT)
REPORT = named("Report")

_TIER = one_of("memory", "disk", "none")
_OUTCOME = one_of("hit", "miss")
_SCHEMA: dict[str, Shape] = {
    "name": TEXT,
    "model": TEXT,
    "digest": TEXT,
    "created_at": TEXT,
    "expires_at": maybe(TEXT),
    "pinned": FLAG,
}

OWN: dict[str, Shape] = {
    "Diagnostic": record(
        "An error of a PML document.",
        code=words("A code of docs/pml.md.", TEXT),
        severity=TEXT,
        line=COUNT,
        column=COUNT,
        message=TEXT,
        hint=maybe(TEXT),
    ),
    "Report": record(
        "The cache use of an answer.",
        modules=many(
            record(
                "A segment, read or missing.",
                path=TEXT,
                tokens=COUNT,
                tier=_TIER,
                outcome=TEXT,
                reason=TEXT,
                saved_ms=maybe(NUMBER),
            )
        ),
        marks=many(record("The outcome of a mark.", param=TEXT, tokens=COUNT, seconds=NUMBER, reason=TEXT)),
        read=COUNT,
        written=COUNT,
        computed=COUNT,
        ttft_ms=NUMBER,
        saved_ms=maybe(NUMBER),
        warnings=many(TEXT),
    ),
    "Schema": record(
        "A stored schema.",
        **_SCHEMA,
        token_count=COUNT,
        modules=many(
            record(
                "A segment.",
                path=TEXT,
                tokens=COUNT,
                key=maybe(TEXT),
                tier=_TIER,
            )
        ),
    ),
    "Schemas": record(
        "A page of schemas, without their modules.",
        ["next_page_token"],
        schemas=many(record("A schema.", **_SCHEMA)),
        next_page_token=TEXT,
    ),
    "Plan": record(
        "The segments that a request would read and compute.",
        total=COUNT,
        read=COUNT,
        computed=COUNT,
        parts=many(
            record(
                "A part of the prompt, by position.",
                kind=TEXT,
                path=TEXT,
                start=COUNT,
                tokens=COUNT,
                tier=_TIER,
                outcome=_OUTCOME,
                reason=TEXT,
            )
        ),
    ),
    "Residency": record(
        "The segments in memory.",
        model=TEXT,
        fingerprint=TEXT,
        bytes=COUNT,
        budget=COUNT,
        segments=many(record("A segment.", key=TEXT, bytes=COUNT)),
    ),
    "Health": record("The state of the server.", status=one_of("ok", "loading", "draining", "off")),
}
