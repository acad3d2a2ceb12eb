"""What a chat template writes round the turns of a conversation, and what it reads of their texts."""

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
    """The model's chat template takes too long or writes too much."""


@dataclass(frozen=True)
class Told:
    """What the template is told besides the turns.

    Attributes:
        day: the date that it may write.
        tools: what the assistant may call; guarded.
        form: how calls are written.
        word: a word that no tool and no call has.
    """

    day: datetime.date
    tools: Tools
    form: Form = FORMS[0]
    word: str = "marker"

    def marker(self, turn: int) -> str:
        """What stands for the text of a turn."""
        return f"turn{turn}{self.word}"


@dataclass(frozen=True)
class Turns:
    """The text around the turns of one conversation.

    Attributes:
        begin: the spelling of the token that begins the text, where the template writes one.
        opens: the text before each turn's content.
        closes: the text after each turn's content.
        generation: the text after the last close, inviting the assistant to speak.
        trims: for each turn, whether the template strips white space at its start, and at its end.
        invites: whether the template writes otherwise when it is asked to invite the assistant.
        contents: what becomes of each turn's text: it is read as it is, as in a text of JSON, or not at all.
        form: how calls of tools are written.

    Words of an author in what the template writes, as in definitions of tools, are guarded: what stands round
    turns is read by `Tokenizer.rendered`.
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
        """What becomes of the text of a turn."""
        return self.contents[turn] if self.contents else "kept"

    def read(self, turn: int, text: str) -> str:
        """Text of a turn, or a part of it, as it is read."""
        return json.dumps(text, ensure_ascii=False)[1:-1] if self.content(turn) == "quoted" else text


def likely(turns: Turns, turn: int, content: str) -> Iterator[tuple[int, int]]:
    """What templates strip: as they do at the borders of turns, else white space, thoughts, or both."""
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
    """How much white space stands at the sides that are stripped."""
    starts, ends = sides
    left = len(content) - len(content.lstrip()) if starts else 0
    rest = content[left:]
    return left, len(rest) - len(rest.rstrip()) if ends else 0
