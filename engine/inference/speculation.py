"""How many tokens to guess before each pass: as many as pay, and none for a while where they do not.

Counted in passes and rows and never in milliseconds, so that the same answer is computed the same way twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.inference.ngrams import Ngrams

FEW, MANY = 3, 7  # tokens that are guessed at once; with the latest one a pass has 4 or 8 rows
ROW_COST = 0.125  # of a pass, at most, for each further row: 8 rows take less than two passes
DEBT, CREDIT = -0.75, 2.0  # passes: guessing pauses below the one, and saves up no more than the other
PAUSE_PER_PASS = 20  # tokens for each pass that was lost, so that guessing costs a twentieth at most
LONGEST_PAUSE = 256  # tokens, of those that double each time


@dataclass
class Speculation:
    """Guesses of one answer, and what became of them.

    Attributes:
        prompt: tokens of the prompt.
        drafted: tokens that were guessed.
    """

    prompt: Sequence[int]
    drafted: int = 0

    def __post_init__(self) -> None:
        self._ngrams: Ngrams | None = None
        self._seen = 0  # tokens of the answer that the guesses know
        self._most = FEW
        self._spared = 0.0  # passes, by all guesses
        self._balance = 0.0  # passes, by the latest
        self._pause = 1.0  # by how much longer it takes than it must
        self._resumes = 0  # at as many tokens of the answer

    def draft(self, answer: Sequence[int], room: int) -> list[int]:
        """Guesses what follows: nothing, FEW or MANY tokens.

        Args:
            answer: its tokens so far.
            room: how many tokens fit behind them.
        """
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
        """Takes what became of a draft.

        Args:
            drafted: its tokens.
            accepted: those that the model chose.
            answered: tokens of the answer by now.
        """
        self.drafted += drafted
        self._most = MANY if accepted >= FEW else FEW
        spared = accepted - drafted * ROW_COST
        self._spared += spared
        self._balance = min(self._balance + spared, CREDIT)
        if self._balance == CREDIT:
            self._pause = 1.0
        elif self._balance <= DEBT:
            self._rest(-self._balance * self._pause, answered)
            self._pause = min(2 * self._pause, LONGEST_PAUSE / PAUSE_PER_PASS)

    def repeat(self, passes: int, answered: int) -> None:
        """Takes that rounding had to be kept from deciding, by passes of one token each.

        Args:
            passes: how many.
            answered: tokens of the answer by now.
        """
        self._spared -= passes
        if self._spared < 0:
            self._rest(-self._spared, answered)
            self._spared = 0.0

    def _rest(self, passes: float, answered: int) -> None:
        """Guesses nothing for so long that the passes lost are a small share of those without a guess."""
        self._resumes = max(self._resumes, answered + math.ceil(passes * PAUSE_PER_PASS))
        self._balance, self._most = 0.0, FEW
