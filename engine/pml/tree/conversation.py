"""A bound prompt as the conversation that it spells."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.pml.tree.parts import Part, RoleClose, RoleOpen, part_text


@dataclass(frozen=True)
class Message:
    """Text of one turn, or with no role text that stands in no turn."""

    role: str | None
    text: str


def conversation(parts: Iterable[Part]) -> tuple[Message, ...]:
    """The turns that the parts of a bound prompt spell, and the text between turns, in reading order."""
    found: list[Message] = []
    role: str | None = None
    texts: list[str] = []

    def close() -> None:
        if texts or role is not None:
            found.append(Message(role, "".join(texts)))
        texts.clear()

    for part in parts:
        if isinstance(part, (RoleOpen, RoleClose)):
            close()
            role = part.role if isinstance(part, RoleOpen) else None
        elif text := part_text(part):
            texts.append(text)
    close()
    return tuple(found)
