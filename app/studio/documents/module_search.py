"""The search field of the picker: the index of the schema that was searched last is held."""

from __future__ import annotations

import threading

from engine.pml import Schema
from engine.prompt.conversation.search import SearchIndex

MOST = 50


class Finder:
    """Finds modules of whatever schema the page has; of several tabs one at a time."""

    def __init__(self) -> None:
        self._index: SearchIndex | None = None
        self._lock = threading.Lock()

    def find(self, schema: Schema, words: str) -> tuple[str, ...]:
        """Returns the paths of modules that have some of the words, the last of them begun, the best first.

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
