"""The base classes of all shapes: objects of requests and answers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import MISSING, BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]


def _described(schema: dict[str, Any], shape: type[BaseModel]) -> None:
    """Drops titles, which repeat names, and requires no field that may be absent."""
    for part in (schema, *schema.get("properties", {}).values()):
        part.pop("title", None)
    absent = {name for name, field in shape.model_fields.items() if field.default is MISSING}
    if absent:
        schema["required"] = [name for name in schema["required"] if name not in absent]


def optional(description: str, default: Any = None) -> Any:
    """Returns a field that a request may omit."""
    return Field(default=default, description=description)


class Shape(BaseModel):
    """An object of a request or an answer."""

    model_config = ConfigDict(json_schema_extra=_described)


class Reply(Shape):
    """An object of an answer. It has the described fields only. A MISSING field is not sent."""

    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)
