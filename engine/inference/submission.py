"""One side of a prompt, planned and with its settings, ready to be answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.base.errors import SettingsError
from engine.base.events import Answer, ReuseTaken, Side
from engine.inference.run_settings import RunSettings
from engine.prompt.tokenized import Planned, TokenizedPrompt


@dataclass(frozen=True)
class Mark:
    """A prefix of a conversation, up to a block's end, to store on disk for at least `seconds`."""

    position: int
    seconds: float | None = None


@dataclass(frozen=True)
class Submission:
    """One side of a prompt to answer.

    Attributes:
        prompt: the prompt.
        planned: its plan for this side; errors of the prompt were reported when it was made.
        settings: its settings.
        side: the side.
        parse_ms: milliseconds to read its text, which count in its time to first token.
        marks: the prefixes to store on disk.
        warm: compute the prompt only, for later prompts, without an answer.
        taken: the fix that reuse "auto" chose for it.
        logprobs: the number of alternatives in the log-probabilities of its tokens; None for none.
        moved: texts of earlier prompts that it may read at another place; None for none.
        ended: receives its answer; must be quick and never fail.
    """

    prompt: TokenizedPrompt
    planned: Planned
    settings: RunSettings
    side: Side
    parse_ms: float
    marks: tuple[Mark, ...] = ()
    warm: bool = False
    taken: ReuseTaken | None = None
    logprobs: int | None = None
    moved: Any = None  # a `MovedTexts`, of which this folder does not know
    ended: Callable[[Answer], None] = field(default=lambda _: None, compare=False)

    @property
    def marked(self) -> int:
        """The position up to which it must be on disk."""
        return max((mark.position for mark in self.marks), default=0)

    def marked_at(self, marks: Sequence[Mark], *, warm: bool = False) -> Submission:
        """Returns it with marks; `warm` computes the prompt only.

        Raises:
            SettingsError: a mark is not at a boundary, or its time is not a number above 0.
        """
        borders = self.planned.plan.borders
        for mark in marks:
            if not isinstance(mark, Mark):
                raise SettingsError(f"marks contains {mark!r}; each item must be a Mark(position, seconds).")
            if mark.position not in borders:
                ends = ", ".join(map(str, borders)) or "none, since only conversations have them"
                raise SettingsError(
                    f"A mark is at position {mark.position}, which is not a block boundary. The boundaries "
                    f"of this prompt are {ends}; borders() returns them."
                )
            if mark.seconds is not None and not 0 < mark.seconds < float("inf"):
                raise SettingsError(
                    f"A mark has {mark.seconds!r} seconds; it must be a number above 0, or None."
                )
        return replace(self, marks=tuple(marks), warm=warm)
