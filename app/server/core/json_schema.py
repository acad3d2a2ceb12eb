"""JSON Schemas of answers, in few words; and those of what is neither vendor's."""

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
    """Returns a shape with words."""
    return {**shape, "description": description}


def one_of(*values: Any) -> Shape:
    """Returns the shape of one of some values."""
    return {"const": values[0]} if len(values) == 1 else {"enum": [*values]}


def either(*shapes: Shape) -> Shape:
    """Returns what has one of some shapes."""
    return {"anyOf": [*shapes]}


def maybe(shape: Shape) -> Shape:
    """Returns what has a shape, or is null."""
    return either(shape, NULL)


def many(shape: Shape) -> Shape:
    """Returns a list of things of a shape."""
    return {"type": "array", "items": shape}


def named(name: str) -> Shape:
    """Returns a shape that has a name of its own."""
    return {"$ref": f"#/components/schemas/{name}"}


def record(description: str, optional: Sequence[str] = (), /, **fields: Shape) -> Shape:
    """Returns an object that has these fields and no others, of which some may be absent."""
    return {
        "type": "object",
        "description": description,
        "properties": fields,
        "required": [name for name in fields if name not in optional],
        "additionalProperties": False,
    }


def event(kind: str, description: str, /, **fields: Shape) -> Shape:
    """Returns an event that says its own kind."""
    return record(description, type=one_of(kind), **fields)


READ = words("Tokens of the prompt that were there before it.", COUNT)
WRITTEN = words("Tokens that this request computed and that go to disk.", COUNT)
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
        "A fault of a document of PML.",
        code=words("As in docs/pml.md.", TEXT),
        severity=TEXT,
        line=COUNT,
        column=COUNT,
        message=TEXT,
        hint=maybe(TEXT),
    ),
    "Report": record(
        "What of the cache an answer used.",
        modules=many(
            record(
                "A segment that it read, or lacked.",
                path=TEXT,
                tokens=COUNT,
                tier=_TIER,
                outcome=TEXT,
                reason=TEXT,
                saved_ms=maybe(NUMBER),
            )
        ),
        marks=many(record("What became of a mark.", param=TEXT, tokens=COUNT, seconds=NUMBER, reason=TEXT)),
        read=COUNT,
        written=COUNT,
        computed=COUNT,
        ttft_ms=NUMBER,
        saved_ms=maybe(NUMBER),
        warnings=many(TEXT),
    ),
    "Schema": record(
        "A schema that was put.",
        **_SCHEMA,
        token_count=COUNT,
        modules=many(
            record(
                "A piece of text that is a segment of its own.",
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
        "What a request would read and compute.",
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
        "What is in memory.",
        model=TEXT,
        fingerprint=TEXT,
        bytes=COUNT,
        budget=COUNT,
        segments=many(record("A segment.", key=TEXT, bytes=COUNT)),
    ),
    "Health": record("Whether the server answers.", status=one_of("ok", "loading", "draining", "off")),
}
