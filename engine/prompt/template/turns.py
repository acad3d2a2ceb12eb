"""The text that a chat template writes around the turns of a conversation, and its treatment of contents."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from engine.base.errors import PromptCacheError
from engine.prompt.conversation.tools import FORMS, Form, Tools

_THOUGHT = "</think>"
System = Literal["kept", "refused"]
Content = Literal["kept", "quoted", "dropped"]


class ChatError(PromptCacheError):
    """The model's chat template refuses a conversation."""


class ChatLimitError(ChatError):
    """The model's chat template exceeds a limit of time or size."""


@dataclass(frozen=True)
class Told:
    """The input of a template besides the turns.

    Attributes:
        day: the date that it may write.
        tools: the guarded tools for the assistant.
        form: the form of calls.
        word: a word that occurs in no tool and no call.
    """

    day: datetime.date
    tools: Tools
    form: Form = FORMS[0]
    word: str = "marker"

    def marker(self, turn: int) -> str:
        """Returns the marker for the text of a turn."""
        return f"turn{turn}{self.word}"


@dataclass(frozen=True)
class Turns:
    """The text around the turns of one conversation.

    Attributes:
        begin: the spelling of the token that begins the text, if the template writes one.
        opens: the text before each turn's content.
        closes: the text after each turn's content.
        generation: the text after the last close, which invites the assistant to answer.
        trims: for each turn, whether the template strips white space at its start, and at its end.
        invites: whether the invitation changes the text.
        contents: for each turn, whether its text is read unchanged, as JSON text, or not at all.
        form: the form of tool calls.

    The text may contain guarded words of authors, as in definitions of tools; use `Tokenizer.rendered` to
    read it.
    """

    begin: str
    opens: tuple[str, ...]
    closes: tuple[str, ...]
    generation: str
    trims: tuple[tuple[bool, bool], ...]
    invites: bool = True
    contents: tuple[Content, ...] = ()
    form: Form = FORMS[0]

    def content(self, turn: int) -> Content:
        """Returns the treatment of a turn's text."""
        return self.contents[turn] if self.contents else "kept"

    def read(self, turn: int, text: str) -> str:
        """Returns text of a turn, or a part of it, as it is read."""
        return json.dumps(text, ensure_ascii=False)[1:-1] if self.content(turn) == "quoted" else text


def likely(turns: Turns, turn: int, content: str) -> Iterator[tuple[int, int]]:
    """Yields likely extents of a stripped content: as at turn ends, white space, thoughts, or both."""
    if turns.content(turn) == "dropped":
        yield len(content), 0
        return
    yield _spaces(content, turns.trims[turn])
    spoken = content.rfind(_THOUGHT) + len(_THOUGHT) if _THOUGHT in content else 0
    for start in dict.fromkeys((0, spoken)):
        for sides in ((False, False), (True, True), (True, False), (False, True)):
            left, right = _spaces(content[start:], sides)
            yield start + left, right


def _spaces(content: str, sides: tuple[bool, bool]) -> tuple[int, int]:
    """The amount of white space at the stripped sides."""
    starts, ends = sides
    left = len(content) - len(content.lstrip()) if starts else 0
    rest = content[left:]
    return left, len(rest) - len(rest.rstrip()) if ends else 0
