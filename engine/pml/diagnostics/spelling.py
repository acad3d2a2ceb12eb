"""Suggests known names for an unknown one, and detects typos."""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable, Sequence
from typing import Final

_MAX_LENGTH: Final = 64
_CUTOFF: Final = 0.6
_NEAR: Final = 0.75
_APART: Final = 0.15  # minimum distance between the nearest name and the next

_SHORT: Final = 5  # in shorter names, one letter often makes another word

_MOST_SLIPS: Final = 2
_DOUBLE: Final = re.compile(r"(.)\1")
_DIGITS: Final = re.compile("[0-9]+")


def alike(one: str, other: str) -> bool:
    """Whether one name may be a misspelling of the other."""
    return _ratio(one[:_MAX_LENGTH], other[:_MAX_LENGTH]) >= _CUTOFF


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one.casefold(), other.casefold()).ratio()


def slips(one: str, other: str) -> int:
    """Counts letters to add, remove, change or swap with the next; ignores case.

    Names with different numbers are never typos of each other.
    """
    left, right = one.casefold(), other.casefold()
    if abs(len(left) - len(right)) > _MOST_SLIPS or _DIGITS.findall(left) != _DIGITS.findall(right):
        return _MOST_SLIPS + 1
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, char in enumerate(left, start=1):
        earlier, before, row = before, row, [i]
        for j, wanted in enumerate(right, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (char != wanted))
            if i > 1 and j > 1 and left[i - 2 : i] == wanted + right[j - 2]:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
    return min(row[-1], _MOST_SLIPS + 1)


def is_likely(name: str, other: str) -> bool:
    """Whether few slips for their length, or an abbreviation, separate two names."""
    short, long = sorted((name.casefold(), other.casefold()), key=len)
    begins = len(short) >= _SHORT - 2 and long.startswith(short) and not _DIGITS.search(long, len(short))
    return begins or slips(name, other) <= max(1, len(long) // 4)


def _is_other_word(name: str, meant: str) -> bool:
    """Whether a short name is probably another word: no swap, doubling or beginning of `meant`."""
    if min(len(name), len(meant)) >= _SHORT:
        return False
    folded, other = name.casefold(), meant.casefold()
    if len(folded) >= _SHORT - 1 and other.startswith(folded):
        return False
    return sorted(folded) != sorted(other) and _DOUBLE.sub(r"\1", folded) != _DOUBLE.sub(r"\1", other)


def meant(name: str, near: Sequence[str], words: Container[str] = ()) -> str | None:
    """Returns the only near name of which `name` is a typo; None if there are two, or none.

    Short names may be different words, unless they are in `words` (such as words of the language).
    """
    ranked = sorted((slips(name, other), other) for other in near)
    if not ranked or ranked[0][0] > _MOST_SLIPS:
        return None
    least, nearest = ranked[0]
    rivals = sum(number <= (least if least < _MOST_SLIPS else _MOST_SLIPS + 1) for number, _ in ranked)
    return nearest if rivals == 1 and (nearest in words or not _is_other_word(name, nearest)) else None


def rivals(name: str, near: Sequence[str]) -> list[str]:
    """Returns the near names if `name` is a typo of two or more of them with equally few slips."""
    ranked = sorted((slips(name, other), other) for other in near)
    nearest = [other for number, other in ranked if number == ranked[0][0] <= _MOST_SLIPS]
    return nearest if len(nearest) > 1 else []


def likeliest(name: str, near: Sequence[str]) -> str | None:
    """Returns the first near name if it is clearly nearer than the next."""
    ratios = [*(_ratio(name, other) for other in near[:2]), 0.0, 0.0]
    if ratios[0] < _NEAR or ratios[0] < ratios[1] + _APART or _is_other_word(name, near[0]):
        return None
    return near[0] if _DIGITS.findall(near[0]) == _DIGITS.findall(name) else None


class Speller:
    """Suggests names within a budget of comparisons, so that a broken document stays cheap to check."""

    def __init__(self, budget: int = 20_000) -> None:
        self._budget = budget

    @property
    def is_spent(self) -> bool:
        """Whether the budget is spent."""
        return self._budget <= 0

    def nearest(self, name: str, known: Iterable[str]) -> str | None:
        """Returns the known name most like `name`; None if no name is near or the budget is spent."""
        return next(iter(self.near(name, known, 1)), None)

    def near(self, name: str, known: Iterable[str], most: int = 4) -> list[str]:
        """Returns the known names like `name`, the nearest first; none if the budget is spent."""
        if len(name) > _MAX_LENGTH or self._budget <= 0:
            return []
        names = [candidate for candidate in dict.fromkeys(known) if len(candidate) <= _MAX_LENGTH]
        self._budget -= len(names)
        if self._budget < 0:
            return []
        folded: dict[str, list[str]] = {}
        for candidate in names:
            folded.setdefault(candidate.casefold(), []).append(candidate)
        matches = difflib.get_close_matches(name.casefold(), folded, n=most, cutoff=_CUTOFF)
        return [candidate for match in matches for candidate in folded[match] if is_likely(name, candidate)]
