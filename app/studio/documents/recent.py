"""Recently opened or written documents: their places, without their texts."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from app.base.safe_write import write_text

logger = logging.getLogger(__name__)

MOST = 30


@dataclass(frozen=True)
class RecentDocument:
    """A document that was opened or written.

    Attributes:
        origin: its source in the form of `Workspace.origin`.
        name: its display name.
        kind: ``schema``, ``prompt``, or ``both`` for a sample.
        used: the time, as ISO 8601 in UTC.
    """

    origin: str
    name: str
    kind: str
    used: str


class Recent:
    """The list of recent documents. Safe to use from several threads.

    Args:
        path: the list's file; an unreadable file counts as empty.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def documents(self) -> list[RecentDocument]:
        """Returns at most `MOST` documents, latest first."""
        with self._lock:
            return self._read()

    def note(self, origin: str, name: str, kind: str) -> None:
        """Puts a document first. A failed write is only logged."""
        used = datetime.now(UTC).isoformat(timespec="seconds")
        self._change([RecentDocument(origin, name, kind, used)], {origin})

    def forget(self, origin: str) -> None:
        """Removes a document from the list."""
        self._change([], {origin})

    def _change(self, first: list[RecentDocument], gone: set[str]) -> None:
        with self._lock:
            documents = [*first, *(doc for doc in self._read() if doc.origin not in gone)][:MOST]
            try:
                write_text(self._path, json.dumps([asdict(doc) for doc in documents], indent=1))
            except (OSError, UnicodeEncodeError) as error:
                logger.warning("The list of recent documents cannot be written: %s", error)

    def _read(self) -> list[RecentDocument]:
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            documents = [RecentDocument(**doc) for doc in json.loads(self._path.read_text(encoding="utf-8"))]
            if all(isinstance(value, str) for doc in documents for value in asdict(doc).values()):
                return documents[:MOST]
        return []
