"""Drafts of an answer from the text before it (prompt look-up decoding).

An answer that quotes its documents repeats runs of their tokens. So the draft is the text that followed the
latest tokens before. A guess costs only rows of a pass, which reads the weights anyway.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

LENGTHS = (4, 2)  # tokens of the runs to look up, longest first
PLACES = 8  # earlier places of a run to compare, latest first
COMPARED = 32  # tokens to compare before each place
MOST_TOKENS = 1 << 17  # the latest tokens that it remembers


class Ngrams:
    """The places of each short run of tokens in a text, for guesses of the next tokens.

    Look-ups and additions take constant time. Memory is bounded by `MOST_TOKENS`, about 300 bytes each.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens: list[int] = []
        self._latest: dict[int, int] = {}  # hash of a run → its end
        self._earlier = {length: array("q", (0,)) for length in LENGTHS}  # by end of a run: its previous end
        for token in tokens[-MOST_TOKENS:]:
            self.add(token)

    def add(self, token: int) -> None:
        """Adds the next token of the text."""
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
        """Guesses the next `count` tokens; none if the latest tokens are new as a run."""
        place = self._place()
        drafted: list[int] = []
        for at in range(place, place + count if place else place):
            behind = at - len(self._tokens)  # beyond its end, a repetitive text continues with its own guess
            drafted.append(self._tokens[at] if behind < 0 else drafted[behind])
        return drafted

    def _place(self) -> int:
        """The end of the longest run that equals the text's end, the latest of several; 0 for none."""
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
        """The number of tokens before a place that equal those at the end of the text."""
        tokens, end = self._tokens, len(self._tokens)
        most = min(COMPARED, place)
        return next((i for i in range(most) if tokens[place - 1 - i] != tokens[end - 1 - i]), most)
