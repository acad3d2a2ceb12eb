"""What came next the last time: drafts of an answer from the text before it.

An answer that quotes its documents repeats runs of their tokens, so what follows the latest tokens where they
stood before is a good guess (prompt look-up decoding). A guess costs nothing but rows of a pass that reads
the weights anyway.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

LENGTHS = (4, 2)  # of the runs that are looked up, the longer first
PLACES = 8  # where a run stood that are compared, the latest first
COMPARED = 32  # tokens before such a place
MOST_TOKENS = 1 << 17  # that are remembered, the latest


class Ngrams:
    """Where each short run of tokens of a text has stood, for guesses at what comes next.

    A look-up and a further token take a time that does not depend on the text. Memory is bounded by
    `MOST_TOKENS`, some 300 bytes each.

    Args:
        tokens: the text so far.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens: list[int] = []
        self._latest: dict[int, int] = {}  # hash of a run → the place behind it
        self._earlier = {length: array("q", (0,)) for length in LENGTHS}  # by place: the same run before
        for token in tokens[-MOST_TOKENS:]:
            self.add(token)

    def add(self, token: int) -> None:
        """Takes the next token of the text."""
        self._tokens.append(token)
        place = len(self._tokens)
        for length in LENGTHS:
            before = 0
            if length <= place <= MOST_TOKENS:
                run = hash((length, *self._tokens[place - length :]))
                before = self._latest.get(run, 0)
                self._latest[run] = place
            self._earlier[length].append(before)

    def draft(self, count: int) -> list[int]:
        """Guesses the next `count` tokens; none where the latest tokens have not stood together before."""
        place = self._place()
        drafted: list[int] = []
        for at in range(place, place + count if place else place):
            behind = at - len(self._tokens)  # a text that repeats itself goes on with its own guess
            drafted.append(self._tokens[at] if behind < 0 else drafted[behind])
        return drafted

    def _place(self) -> int:
        """Behind the longest run that ends as the text does, the latest of several; 0 for none."""
        best, longest = 0, min(LENGTHS) - 1
        for length in LENGTHS:
            earlier = self._earlier[length]
            place = earlier[len(self._tokens)]
            for _ in range(PLACES):
                if not place:
                    break
                if (alike := self._alike(place)) > longest:
                    best, longest = place, alike
                place = earlier[place]
            if best:
                break
        return best

    def _alike(self, place: int) -> int:
        """How many tokens before a place are those at the end of the text."""
        tokens, end = self._tokens, len(self._tokens)
        most = min(COMPARED, place)
        return next((i for i in range(most) if tokens[place - 1 - i] != tokens[end - 1 - i]), most)
