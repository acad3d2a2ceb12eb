"""Commands by name, whose modules are imported when they are first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import click


class Commands(MutableMapping[str, click.Command]):
    """What a group of click calls its commands; telling their names imports none.

    Args:
        places: by name of a command where it is made, as "module:attribute".
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._known: dict[str, str | click.Command] = dict(places)

    def __getitem__(self, name: str) -> click.Command:
        """Returns a command.

        Raises:
            KeyError: there is none of this name, or its module raises this.
        """
        found = self._known[name]
        if isinstance(found, str):
            module, _, attribute = found.partition(":")
            command: click.Command = getattr(importlib.import_module(module), attribute)
            self._known[name] = found = command
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def get(self, name: str, default: Any = None) -> Any:
        """Returns a command, or something else where there is none; a fault of its module is raised."""
        return self[name] if name in self._known else default

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._known[name] = command

    def __delitem__(self, name: str) -> None:
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
