"""Module search for the picker, with the index of the last schema in memory."""

from __future__ import annotations

import threading

from engine.pml import Schema
from engine.prompt.conversation.search import SearchIndex

MOST = 50


class Finder:
    """Searches the modules of the page's schema, one tab at a time."""

    def __init__(self) -> None:
        self._index: SearchIndex | None = None
        self._lock = threading.Lock()

    def find(self, schema: Schema, words: str) -> tuple[str, ...]:
        """Returns the paths of modules that match, best first; the last word matches as a prefix.

        Raises:
            SearchError: this SQLite cannot search.
        """
        with self._lock:
            if self._index is None or not self._index.is_of(schema):
                if self._index is not None:
                    self._index.close()
                    self._index = None
                self._index = SearchIndex.of(schema)
            return tuple(hit.path for hit in self._index.search(words, MOST, typing=True))
