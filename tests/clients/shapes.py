"""Twenty models of Pydantic, whose answers fit a small context."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, create_model

Word = Annotated[str, Field(max_length=8)]
Small = Annotated[int, Field(ge=0, le=99)]


class Colour(Enum):
    RED = "red"
    BLUE = "dark blue"


class Point(BaseModel):
    x: Small
    y: Small


class Dog(BaseModel):
    kind: Literal["dog"]
    barks: bool


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=1, le=9)]


class Tree(BaseModel):
    word: Word
    below: Annotated[list[Tree], Field(max_length=1)]


class Documented(BaseModel):
    """A model with words about it."""

    word: Word = Field(description='A word, such as "sun".', title="The word")


Pair = Annotated[list[Point], Field(min_length=2, max_length=2)]
FIELDS: dict[str, dict[str, Any]] = {
    "text": {"a": Word},
    "number": {"a": Small, "b": Annotated[float, Field(ge=0, le=1, multiple_of=0.5)]},
    "flag": {"a": bool},
    "enum": {"a": Colour},
    "literal": {"a": Literal["x", "y", "z"], "b": Literal[1, 2]},
    "optional": {"a": Word | None, "b": Small | None},
    "list": {"a": Annotated[list[Small], Field(min_length=1, max_length=3)]},
    "list of enums": {"a": Annotated[list[Colour], Field(max_length=2)]},
    "nested": {"a": Point},
    "nested list": {"a": Pair},
    "lists of lists": {"a": Annotated[list[Pair], Field(max_length=1)]},
    "union": {"a": Small | bool},
    "union of models": {"a": Dog | Cat},
    "tagged union": {"a": Annotated[list[Dog | Cat], Field(max_length=2)]},
    "optional model": {"a": Point | None},
    "recursive": {"a": Tree},
    "pattern": {"a": Annotated[str, Field(pattern="^[A-C]{2}-[0-9]{3}$")]},
    "documented": {"a": Documented},
    "names": {"with_underscore": Small, "CamelCase": Small, "ü": Small},
    "all": {"a": Word, "b": Colour, "c": Pair, "d": Point | None, "e": Dog | Cat},
}


def shape(name: str) -> type[BaseModel]:
    """Returns the model of a name in `FIELDS`."""
    made: type[BaseModel] = create_model(
        "Shape", **{field: (kind, ...) for field, kind in FIELDS[name].items()}
    )
    return made
