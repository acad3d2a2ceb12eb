"""A text during scanning: counts its items, and caches failed searches.

Both keep the time linear in the length of any text.
"""

from __future__ import annotations

import re
from typing import Final

from engine.pml.diagnostics.diagnostic import Reporter, Span

# elements, attributes, comments and CDATA sections of a document; the scan then stops
MAX_ITEMS: Final = 40_000

NAME_PATTERN: Final = r"[A-Za-z_:\x80-\U0010FFFF][A-Za-z0-9_:.\-\x80-\U0010FFFF]*"
_START: Final = re.compile(r"\ufeff?[ \t\r\n]*")


class EnoughError(Exception):
    """The document exceeds the limits, so scanning stops."""


class ScannedText:
    """One text and the reporter of its errors.

    Attributes:
        text: the text.
        report: receives the errors.
        start: the first place after the byte order mark and white space.
        swallows: whether text appended at the end would belong to unfinished markup.
        broken: the end of the last unfinished tag, or -1.
    """

    def __init__(self, text: str, report: Reporter) -> None:
        self.text, self.report = text, report
        begin = _START.match(text)
        self.start = begin.end() if begin else 0
        self.swallows = False
        self.broken = -1
        self._items = 0
        self._missing: set[str] = set()

    def count(self, place: int) -> None:
        """Counts one more item at `place`.

        Raises:
            EnoughError: there are too many items or errors.
        """
        self._items += 1
        if self._items > MAX_ITEMS:
            message = (
                f"the document has more than {MAX_ITEMS} elements, attributes and comments; the rest is "
                "not read: split the document"
            )
            self.report.add("E120", message, Span(place, min(place + 1, len(self.text))))
            raise EnoughError
        self.stop_if_hopeless()

    def stop_if_hopeless(self) -> None:
        """Stops the scan if there are too many errors.

        Raises:
            EnoughError: there are too many errors.
        """
        if self.report.hopeless:
            raise EnoughError

    def find(self, needle: str, start: int) -> int:
        """Works like `str.find`, but caches failures, so that repeated errors stay linear."""
        if needle in self._missing:
            return -1
        place = self.text.find(needle, start)
        if place < 0:
            self._missing.add(needle)
        return place

    def lacks(self, needle: str) -> bool:
        """Whether an earlier search for `needle` failed."""
        return needle in self._missing

    def give_up(self, needle: str) -> None:
        """Makes later searches for `needle` fail."""
        self._missing.add(needle)

    def rest_of_line(self, start: int, limit: int | None = None) -> int:
        """Returns the end of the line of `start`, without trailing white space, at most `limit`."""
        line_end = self.report.lines.next_line(start)
        end = line_end if limit is None else min(line_end, limit)
        self.swallows = self.swallows or end == len(self.text)
        return start + len(self.text[start:end].rstrip(" \t\r\n"))
