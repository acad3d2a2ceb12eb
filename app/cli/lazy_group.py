"""A mapping of commands that imports their modules on first use."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import click


class Commands(MutableMapping[str, click.Command]):
    """The commands of a click group, each located by "module:attribute"; listing names imports nothing."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._known: dict[str, str | click.Command] = dict(places)

    def __getitem__(self, name: str) -> click.Command:
        """Returns a command; raises KeyError if the name is unknown."""
        entry = self._known[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            command: click.Command = getattr(importlib.import_module(module), attribute)
            self._known[name] = entry = command
        return entry

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def get(self, name: str, default: Any = None) -> Any:
        """Returns a command or a default; errors of the import propagate."""
        return self[name] if name in self._known else default

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._known[name] = command

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
