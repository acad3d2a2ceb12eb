"""What answers of every page are made of: objects as they are sent, types of the engine for their JSON."""

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
    """Says of an object which type it spells in JSON, to whoever checks it.

    Attributes:
        known: the type; None where it is only named.
        named: MODULE:NAME of a type with whose module torch comes, for which the page need not wait.
    """

    known: Any = None
    named: str = ""

    @property
    def type(self) -> Any:
        """The type; loads what is named."""
        module, _, name = self.named.partition(":")
        return getattr(importlib.import_module(module), name) if name else self.known

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Has pydantic read the object as that type."""
        return handler(self.type)


class JobState(TypedDict, Generic[Result]):
    """How far a piece of long work is, what has come of it, and what went wrong in words."""

    key: str
    what: str
    done: int
    total: int
    over: bool
    fault: str
    result: Result | None
