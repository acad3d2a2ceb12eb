"""The types of what the page asks, for the checker of its scripts.

`python -m tests.app.studio.web.endpoint_types` writes them anew, after a change of a request or an answer.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NotRequired, TypeVar, Union, get_args, get_origin, get_type_hints

from app.studio.pages import PAGES
from app.studio.web.endpoints import Endpoint, Endpoints
from app.studio.web.json_answers import JsonOf
from app.studio.workspace.all_pages import SHARED

FILE = Path(__file__).parents[4] / "app" / "editor" / "types" / "api.d.ts"
HEAD = "// What the page asks the server. Written by `python -m tests.app.studio.web.endpoint_types`.\n"
PLAIN: dict[Any, str] = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    Any: "any",
    object: "unknown",
}


class Writer:
    """Writes types as TypeScript; what has a name becomes an interface of its own.

    Requests come first: what a request has a default for need not be sent.
    """

    def __init__(self, requests: Sequence[Any]) -> None:
        self.interfaces: dict[str, str] = {}
        self._written: dict[str, Any] = {}
        self._sending = True
        for request in requests:
            self.spell(request)
        self._sending = False

    def spell(self, kind: Any) -> str:
        """Returns a type as TypeScript."""
        if kind in PLAIN:
            return PLAIN[kind]
        origin, inner = get_origin(kind), get_args(kind)
        if origin is typing.Annotated:
            of = next((one.type for one in kind.__metadata__ if isinstance(one, JsonOf)), inner[0])
            return self.spell(of)
        if origin is NotRequired:
            return self.spell(inner[0])
        if origin in (Union, types.UnionType):
            return " | ".join(dict.fromkeys(map(self.spell, inner)))
        if origin is Literal:
            return " | ".join(f'"{value}"'.replace("\n", "\\n").replace("\r", "\\r") for value in inner)
        if origin is tuple and inner[-1] is not Ellipsis:
            return f"[{', '.join(map(self.spell, inner))}]"
        if origin in (list, tuple, Sequence):
            element = self.spell(inner[0])
            return f"({element})[]" if "|" in element else f"{element}[]"
        if origin in (dict, Mapping):
            return f"Record<{self.spell(inner[0])}, {self.spell(inner[1])}>"
        if isinstance(kind, type) and issubclass(kind, Enum):
            return " | ".join(f'"{member.value}"' for member in kind)
        if isinstance(kind, TypeVar):
            return kind.__name__
        return f"{self._named(origin)}<{', '.join(map(self.spell, inner))}>" if inner else self._named(kind)

    def _named(self, kind: Any) -> str:
        name: str = kind.__name__
        assert self._written.setdefault(name, kind) is kind, f"two types are called {name}"
        filled_in = getattr(kind, "__parameters__", ())
        head = f"{name}<{', '.join(map(self.spell, filled_in))}>" if filled_in else name
        if head in self.interfaces:
            return name
        self.interfaces[head] = ""
        hints = get_type_hints(kind, include_extras=True)
        if dataclasses.is_dataclass(kind):
            fields = dataclasses.fields(kind)
            defaults = {f.name for f in fields if self._sending and not _is_required(f)}
            hints = {f.name: hints[f.name] for f in fields}
        else:
            defaults = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
        bases = [base for base in kind.__bases__ if dataclasses.is_dataclass(base)]
        extended = f" extends {', '.join(map(self.spell, bases))}" if bases else ""
        inherited = {field.name for base in bases for field in dataclasses.fields(base)}
        lines = [
            f"    {field}{'?' if field in defaults else ''}: {self.spell(hint)}\n"
            for field, hint in hints.items()
            if field not in inherited
        ]
        self.interfaces[head] = f"  interface {head}{extended} {{\n{''.join(lines)}  }}"
        return name


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def endpoints() -> list[Endpoint]:
    """Returns every question of the page, without a studio that answers."""
    parts: list[type[Endpoints]] = [*SHARED, *PAGES]
    made = [part.__new__(part) for part in parts]
    return sorted((one for part in made for one in part.endpoints()), key=lambda one: one.name)


def written() -> str:
    """Returns the whole file."""
    writer = Writer([one.request for one in endpoints()])
    lines = [
        f"    {one.name}: [{writer.spell(one.request)}, {writer.spell(one.answer)}]" for one in endpoints()
    ]
    types_of_api = "\n\n".join(written for _, written in sorted(writer.interfaces.items()))
    questions = (
        "  /** Each question: what is sent, and what is answered. */\n  interface Questions {\n"
        + "\n".join(lines)
        + "\n  }\n"
    )
    return f"{HEAD}declare namespace Api {{\n{questions}\n{types_of_api}\n}}\n"


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(written(), encoding="utf-8")
