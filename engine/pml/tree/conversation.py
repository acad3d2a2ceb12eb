"""Converts a bound prompt to the turns of a conversation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.pml.tree.parts import Part, RoleClose, RoleOpen, part_text


@dataclass(frozen=True)
class Message:
    """The text of one turn, or text outside turns if `role` is None."""

    role: str | None
    text: str


def conversation(parts: Iterable[Part]) -> tuple[Message, ...]:
    """Returns the turns in the parts of a bound prompt and the text between them, in reading order."""
    messages: list[Message] = []
    role: str | None = None
    texts: list[str] = []

    def close() -> None:
        if texts or role is not None:
            messages.append(Message(role, "".join(texts)))
        texts.clear()

    for part in parts:
        if isinstance(part, (RoleOpen, RoleClose)):
            close()
            role = part.role if isinstance(part, RoleOpen) else None
        elif text := part_text(part):
            texts.append(text)
    close()
    return tuple(messages)
