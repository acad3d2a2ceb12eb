"""What an import says of what it left out or changed: a line for each kind, however often it happened."""

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
    """Gathers notes, in the order in which their kinds first came up."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def say(self, sentence: str) -> None:
        """Adds a sentence; the same one is told once."""
        self._kinds.setdefault(("", sentence), _Kind("", sentence))

    def count(self, noun: str, what: str, example: str, most: int = _SHOWN) -> None:
        """Counts one more of a kind.

        Args:
            noun: what is counted, one of it.
            what: what became of it, to stand behind the number and the noun.
            example: which one it is; the first few are shown.
            most: how many are shown.
        """
        kind = self._kinds.setdefault((noun, what), _Kind(noun, what, most))
        kind.number += 1
        if len(kind.examples) < kind.most:
            kind.examples.append(_printable(example))

    def left_out(self, where: str, role: str) -> None:
        """Names a message without text, which becomes no turn.

        Args:
            where: which message it is.
            role: its role.
        """
        self.count("message", "without text left out (PML has no empty turn)", f"{where} ({role})", _NAMED)
        if role == "system":
            self.say("a chat template may write a system text of its own where this one is empty")

    def told(self) -> tuple[str, ...]:
        """The notes, a sentence each."""
        return tuple(kind.told() for kind in self._kinds.values())


def _printable(example: str) -> str:
    """An example on one line, and a bounded one."""
    shown = example if example.isprintable() else ascii(example)
    return shown if len(shown) <= 80 else f"{shown[:79]}…"
