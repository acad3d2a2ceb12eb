"""The scores of prompts without content, which many prompts subtract."""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

Scores = list[list[float]]
MOST: Final = 64


class Calibrations:
    """The latest scores of prompts without content, by the tokens that give them."""

    def __init__(self) -> None:
        self._scores: OrderedDict[str, Scores] = OrderedDict()

    def find(self, key: str) -> Scores | None:
        """Returns the scores of a key; None without any."""
        found = self._scores.pop(key, None)
        if found is not None:
            self._scores[key] = found
        return found

    def keep(self, key: str, scores: Scores) -> None:
        """Keeps scores, and forgets the oldest beyond the limit."""
        self._scores[key] = scores
        while len(self._scores) > MOST:
            self._scores.popitem(last=False)


def key_of(words: Sequence[object], tokens: Iterable[Sequence[int]]) -> str:
    """Returns the key of scores.

    Args:
        words: what else the scores depend on.
        tokens: lists of tokens and of positions.
    """
    digest = hashlib.sha256(repr(words).encode())
    for one in tokens:
        digest.update(len(one).to_bytes(8, "little"))
        digest.update(array("q", one).tobytes())
    return digest.hexdigest()
