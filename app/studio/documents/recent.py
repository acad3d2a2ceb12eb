"""Which documents were opened or written last, kept on disk: where they are, and nothing of what they say."""

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
        origin: its source, as `Workspace` spells it.
        name: what it is called.
        kind: ``schema``, ``prompt``, or ``both`` of a sample.
        used: when, as ISO 8601 in UTC.
    """

    origin: str
    name: str
    kind: str
    used: str


class Recent:
    """The documents that were used last. Safe to use from several threads.

    Args:
        path: the file that they are kept in; what cannot be read there counts as nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def documents(self) -> list[RecentDocument]:
        """At most `MOST` of them, the latest first."""
        with self._lock:
            return self._read()

    def note(self, origin: str, name: str, kind: str) -> None:
        """Puts a document in front. That it cannot be kept is logged: no document is lost by that."""
        used = datetime.now(UTC).isoformat(timespec="seconds")
        self._change([RecentDocument(origin, name, kind, used)], {origin})

    def forget(self, origin: str) -> None:
        """Takes a document out, which has another name now, or is not wanted in the list."""
        self._change([], {origin})

    def _change(self, first: list[RecentDocument], gone: set[str]) -> None:
        with self._lock:
            kept = [*first, *(one for one in self._read() if one.origin not in gone)][:MOST]
            try:
                write_text(self._path, json.dumps([asdict(one) for one in kept], indent=1))
            except (OSError, UnicodeEncodeError) as error:
                logger.warning("The list of recent documents cannot be written: %s", error)

    def _read(self) -> list[RecentDocument]:
        with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
            found = [RecentDocument(**one) for one in json.loads(self._path.read_text(encoding="utf-8"))]
            if all(isinstance(value, str) for one in found for value in asdict(one).values()):
                return found[:MOST]
        return []
