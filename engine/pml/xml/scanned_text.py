"""A text while it is scanned: what of it was counted, and what is not in it any more.

Both keep the time linear in the text, whatever it says.
"""

from __future__ import annotations

import re
from typing import Final

from engine.pml.diagnostics.diagnostic import Reporter, Span

MAX_ITEMS: Final = 40_000
"""Elements, attributes, comments and CDATA sections of a document; at the next one, reading ends."""

NAME_PATTERN: Final = r"[A-Za-z_:\x80-\U0010FFFF][A-Za-z0-9_:.\-\x80-\U0010FFFF]*"
"""What a scanner takes for the name of an element or attribute; which names there are is said later."""

_START: Final = re.compile(r"\ufeff?[ \t\r\n]*")


class EnoughError(Exception):
    """Reading on would take more time or memory than a document may."""


class ScannedText:
    """One text and the reporter of its faults.

    Attributes:
        text: the text.
        report: takes the faults.
        start: where the first thing that is neither a byte order mark nor white space stands.
        swallows: what is written after the text would belong to something unfinished.
        broken: where the last unfinished tag was broken off, -1 where none was.
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
        """Counts one more item that begins at `place`.

        Raises:
            EnoughError: there are too many items, or too many errors.
        """
        self._items += 1
        if self._items > MAX_ITEMS:
            message = (
                f"the document has more than {MAX_ITEMS} elements, attributes and comments; what follows is "
                "not read: split the document"
            )
            self.report.add("E120", message, Span(place, min(place + 1, len(self.text))))
            raise EnoughError
        self.stop_if_hopeless()

    def stop_if_hopeless(self) -> None:
        """Ends the reading where there are too many errors.

        Raises:
            EnoughError: there are.
        """
        if self.report.hopeless:
            raise EnoughError

    def find(self, needle: str, start: int) -> int:
        """`str.find`, remembering what is not there any more, so that repeated faults stay linear."""
        if needle in self._missing:
            return -1
        found = self.text.find(needle, start)
        if found < 0:
            self._missing.add(needle)
        return found

    def lacks(self, needle: str) -> bool:
        """Whether it is known that a piece of text does not come any more."""
        return needle in self._missing

    def give_up(self, needle: str) -> None:
        """Remembers that a piece of text is not to be looked for any more."""
        self._missing.add(needle)

    def rest_of_line(self, start: int, limit: int | None = None) -> int:
        """Where the line of `start` ends, without white space, at the latest at `limit`."""
        line_end = self.report.lines.next_line(start)
        end = line_end if limit is None else min(line_end, limit)
        self.swallows = self.swallows or end == len(self.text)
        return start + len(self.text[start:end].rstrip(" \t\r\n"))
