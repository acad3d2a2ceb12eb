"""Reasoning before an answer: what a chat template says of it, and how it is split from the text."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, Literal

OPEN: Final = "<think>"
CLOSE: Final = "</think>"
_SWITCHES: Final = ("enable_thinking", "thinking")
_LEVEL: Final = "reasoning_effort"
OFF: Final = "none"


@dataclass(frozen=True)
class Thinking:
    """What a chat template says of reasoning.

    Attributes:
        marked: whether it knows the marks around the reasoning, `<think>` and `</think>`.
        switch: the variable that switches reasoning; "" for none.
        levels: whether it has the variable `reasoning_effort`.
    """

    marked: bool = False
    switch: str = ""
    levels: bool = False

    @classmethod
    def of(cls, source: str, variables: Collection[str]) -> Thinking:
        """Reads a template's text and the names of its variables."""
        switch = next((name for name in _SWITCHES if name in variables), "")
        return cls(OPEN in source or CLOSE in source, switch, _LEVEL in variables)

    def __bool__(self) -> bool:
        """Whether the template has a notion of reasoning."""
        return self.marked or bool(self.switch) or self.levels

    def variables(self, effort: str) -> dict[str, Any] | None:
        """Returns the template variables for an effort, such as "none" or "high"; None if there are none."""
        if self.switch and (effort == OFF or not self.levels):
            return {self.switch: effort != OFF}
        return {_LEVEL: effort} if self.levels else None


class ThoughtSplitter:
    """Splits the text of an answer, as it comes, into reasoning and the answer proper.

    Args:
        opened: whether the prompt ends within the reasoning.
    """

    def __init__(self, *, opened: bool) -> None:
        self._state: Literal["start", "thought", "after", "text"] = "thought" if opened else "start"
        self._held = ""  # it may belong to a mark, or to white space next to one
        self._begun = False  # whether there is reasoning

    def add(self, text: str) -> tuple[str, str]:
        """Returns new reasoning and new text."""
        self._held += text
        thought = ""
        if self._state == "start":
            ahead = self._held.lstrip()
            if OPEN.startswith(ahead[: len(OPEN)]) and len(ahead) < len(OPEN):
                return "", ""
            opens = ahead.startswith(OPEN)
            self._state = "thought" if opens else "text"
            self._held = ahead[len(OPEN) :] if opens else self._held
        if self._state == "thought":
            thought = self._thought()
        if self._state == "after":
            self._held = self._held.lstrip("\n")
            self._state = "text" if self._held else "after"
        if self._state != "text":
            return thought, ""
        said, self._held = self._held, ""
        return thought, said

    def _thought(self) -> str:
        """Takes the reasoning out of the held text, without white space around it."""
        if not self._begun:
            self._held = self._held.lstrip()
        before, mark, behind = self._held.partition(CLOSE)
        if mark:
            self._held, self._state = behind, "after"
            return before.rstrip()
        most = min(len(CLOSE) - 1, len(before))
        cut = next((size for size in range(most, 0, -1) if CLOSE.startswith(before[-size:])), 0)
        ready = before[: len(before) - cut].rstrip()
        self._begun = self._begun or bool(ready)
        self._held = before[len(ready) :]
        return ready

    def rest(self) -> tuple[str, str]:
        """Returns the held reasoning and text, once nothing follows."""
        held, self._held = self._held, ""
        return (held.rstrip(), "") if self._state == "thought" else ("", held)


def split(text: str, *, opened: bool) -> tuple[str, str]:
    """Splits a complete answer into reasoning and text."""
    splitter = ThoughtSplitter(opened=opened)
    (thought, said), (more, rest) = splitter.add(text), splitter.rest()
    return thought + more, said + rest
