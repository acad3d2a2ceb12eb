"""Shared types of answers, and their JSON schemas."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema
from typing_extensions import TypedDict

Json = dict[str, Any]
Result = TypeVar("Result")


@dataclass(frozen=True)
class JsonOf:
    """Annotates an object with the type that its JSON has.

    Attributes:
        known: the type; None if it is only named.
        named: MODULE:NAME of a type whose module imports torch, loaded on demand.
    """

    known: Any = None
    named: str = ""

    @property
    def type(self) -> Any:
        """The type; imports a named one."""
        module, _, name = self.named.partition(":")
        return getattr(importlib.import_module(module), name) if name else self.known

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Makes pydantic validate the object as that type."""
        return handler(self.type)


class JobState(TypedDict, Generic[Result]):
    """A job's progress, its result, and its error message."""

    key: str
    what: str
    done: int
    total: int
    over: bool
    fault: str
    result: Result | None
