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
