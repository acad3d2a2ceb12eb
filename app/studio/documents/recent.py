"""Recently opened or written documents: their places, without their texts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from app.studio.database import UserDatabase, put_first
from engine.base.errors import PromptCacheError

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
    """The list of recent documents. Safe to use from several threads and several studios.

    Args:
        database: the user's database.
    """

    def __init__(self, database: UserDatabase) -> None:
        self._database = database

    def documents(self) -> list[RecentDocument]:
        """Returns at most `MOST` documents, latest first; none if they cannot be read."""
        try:
            with self._database.reading() as db:
                rows = db.table("recent_documents").rows_where(order_by="rowid desc", limit=MOST)
                return [RecentDocument(**row) for row in rows]
        except PromptCacheError:
            return []

    def note(self, origin: str, name: str, kind: str) -> None:
        """Puts a document first. A failed write is only logged."""
        used = datetime.now(UTC).isoformat(timespec="seconds")
        row = {"origin": origin, "name": name, "kind": kind, "used": used}
        self._database.change_or_log(lambda db: put_first(db.table("recent_documents"), row, MOST))

    def forget(self, origin: str) -> None:
        """Removes a document from the list. A failed write is only logged."""
        self._database.change_or_log(
            lambda db: db.table("recent_documents").delete_where("origin = ?", [origin])
        )
