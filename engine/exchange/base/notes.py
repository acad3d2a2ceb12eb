"""Notes of an import on omissions and changes: one line for each kind, with a count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

_SHOWN: Final = 3
_NAMED: Final = 50


@dataclass
class _Kind:
    noun: str
    what: str
    most: int = _SHOWN
    number: int = 0
    examples: list[str] = field(default_factory=list)

    def told(self) -> str:
        if not self.noun:
            return self.what
        shown = ", ".join(self.examples)
        more = self.number - len(self.examples)
        rest = f" and {more:,} more" if more else ""
        return f"{self.number:,} {self.noun}{'' if self.number == 1 else 's'} {self.what}: {shown}{rest}"


class Notes:
    """Collects notes in the order of their first occurrence."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def say(self, sentence: str) -> None:
        """Adds a sentence unless it is already noted."""
        self._kinds.setdefault(("", sentence), _Kind("", sentence))

    def count(self, noun: str, what: str, example: str, most: int = _SHOWN) -> None:
        """Counts one more of a kind.

        Args:
            noun: the counted thing, in the singular.
            what: what happened to it, as a predicate after the number and the noun.
            example: the concrete item; the first few are shown.
            most: the maximum number of shown examples.
        """
        kind = self._kinds.setdefault((noun, what), _Kind(noun, what, most))
        kind.number += 1
        if len(kind.examples) < kind.most:
            kind.examples.append(_printable(example))

    def left_out(self, where: str, role: str) -> None:
        """Notes a message without text, which becomes no turn."""
        self.count("message", "without text left out (PML has no empty turn)", f"{where} ({role})", _NAMED)
        if role == "system":
            self.say("a chat template may write its own system text if this one is empty")

    def told(self, *nouns: str) -> tuple[str, ...]:
        """Returns the notes, or those about some things, one sentence each."""
        return tuple(kind.told() for kind in self._kinds.values() if not nouns or kind.noun in nouns)


def _printable(example: str) -> str:
    """An example on one line, with limited length."""
    shown = example if example.isprintable() else ascii(example)
    return shown if len(shown) <= 80 else f"{shown[:79]}…"
