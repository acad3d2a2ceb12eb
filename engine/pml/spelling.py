"""The nearest known name to one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

_MAX_LENGTH: Final = 64
_CUTOFF: Final = 0.6


class Speller:
    """Suggests names, within a budget of comparisons, so that a broken document stays cheap to check."""

    def __init__(self, budget: int = 20_000) -> None:
        self._budget = budget

    def nearest(self, name: str, known: Iterable[str]) -> str | None:
        """The known name most like `name`, or None when none is near or the budget is spent."""
        if len(name) > _MAX_LENGTH or self._budget <= 0:
            return None
        names = [candidate for candidate in dict.fromkeys(known) if len(candidate) <= _MAX_LENGTH]
        self._budget -= len(names)
        if self._budget < 0:
            return None
        folded = {candidate.casefold(): candidate for candidate in reversed(names)}
        found = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=_CUTOFF)
        return folded[found[0]] if found else None
