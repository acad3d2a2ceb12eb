"""Decides how many tokens to guess before each pass: as many as pay, and none for a while if they do not.

It counts passes and rows, never time, so that the same answer is computed the same way every time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.inference.ngrams import Ngrams

FEW, MANY = 3, 7  # tokens to guess at once; with the latest one a pass has 4 or 8 rows
ROW_COST = 0.125  # the most that a further row costs, in passes: 8 rows take less than two passes
DEBT, CREDIT = -0.75, 2.0  # passes: guessing pauses at the first, and saves up no more than the second
PAUSE_PER_PASS = 20  # tokens per lost pass, so that guessing costs at most a twentieth
LONGEST_PAUSE = 256  # tokens; each pause doubles the next


@dataclass
class Speculation:
    """Guesses of one answer, and their results; `drafted` counts guessed tokens."""

    prompt: Sequence[int]
    drafted: int = 0

    def __post_init__(self) -> None:
        self._ngrams: Ngrams | None = None
        self._seen = 0  # tokens of the answer that the n-grams have
        self._most = FEW
        self._spared = 0.0  # passes, over all guesses
        self._balance = 0.0  # passes, since the last pause
        self._pause = 1.0  # factor on the length of the next pause
        self._resumes = 0  # guesses again at this number of tokens of the answer

    def draft(self, answer: Sequence[int], room: int) -> list[int]:
        """Guesses the next tokens: none, FEW or MANY. `room` is the number of tokens that fit."""
        most = MANY if min(self._most, room) >= MANY else FEW
        if len(answer) < self._resumes or room < most:
            return []
        if self._ngrams is None:
            self._ngrams = Ngrams(self.prompt)
        for token in answer[self._seen :]:
            self._ngrams.add(token)
        self._seen = len(answer)
        return self._ngrams.draft(most)

    def judge(self, drafted: int, accepted: int, answered: int) -> None:
        """Counts the results of a draft when the answer has `answered` tokens."""
        self.drafted += drafted
        self._most = MANY if accepted >= FEW else FEW
        saved = accepted - drafted * ROW_COST
        self._spared += saved
        self._balance = min(self._balance + saved, CREDIT)
        if self._balance == CREDIT:
            self._pause = 1.0
        elif self._balance <= DEBT:
            self._rest(-self._balance * self._pause, answered)
            self._pause = min(2 * self._pause, LONGEST_PAUSE / PAUSE_PER_PASS)

    def repeat(self, passes: int, answered: int) -> None:
        """Counts passes of one token each that ruled out an effect of rounding."""
        self._spared -= passes
        if self._spared < 0:
            self._rest(-self._spared, answered)
            self._spared = 0.0

    def _rest(self, passes: float, answered: int) -> None:
        """Pauses guessing until the lost passes are a small share of the passes without a guess."""
        self._resumes = max(self._resumes, answered + math.ceil(passes * PAUSE_PER_PASS))
        self._balance, self._most = 0.0, FEW
