"""The stored chats. Beyond the limits the least recently used chats are deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import cast

from sqlite_utils import Database
from typing_extensions import TypedDict

from app.studio.chat.turns import Chat
from app.studio.database import UserDatabase, plain
from engine.base.errors import PromptCacheError

MOST_CHATS = 200
MOST_BYTES = 64 << 20
_GONE = "That chat no longer exists. It was deleted, or newer chats replaced it."


class ChatSummary(TypedDict):
    """A chat in the list: its questions, the name of its schema, its last change, and its turns."""

    id: str
    title: str
    schema: str
    changed: str
    turns: int


class ChatStore:
    """The stored chats. Safe to use from several threads and several studios.

    Args:
        database: the user's database.
        most: the maximum number of chats.
        most_bytes: the maximum bytes of all chats.
    """

    def __init__(self, database: UserDatabase, most: int = MOST_CHATS, most_bytes: int = MOST_BYTES) -> None:
        self._database, self.most, self._most_bytes = database, most, most_bytes

    def add(self, chat: Chat) -> None:
        """Adds a chat; deletes the oldest ones to make room.

        Raises:
            PromptCacheError: the chat cannot be written, or is too large.
        """
        with self._database.changing() as db:
            self._put(db, chat)

    @contextmanager
    def changing(self, key: str) -> Iterator[Chat]:
        """Yields a chat, and stores what the caller changed.

        Raises:
            PromptCacheError: there is no such chat, or it cannot be written.
        """
        with self._database.changing() as db:
            chat = _load(db, key)
            yield chat
            self._put(db, chat)

    def load(self, key: str) -> Chat:
        """Returns a chat.

        Raises:
            PromptCacheError: there is no such chat.
        """
        with self._database.reading() as db:
            return _load(db, key)

    def summaries(self) -> list[ChatSummary]:
        """Returns all chats, the latest first."""
        with self._database.reading() as db:
            rows = db.table("chats").rows_where(
                select="id, title, schema, changed, turns", order_by="rowid desc"
            )
            return cast(list[ChatSummary], list(rows))

    def delete(self, key: str) -> None:
        """Deletes a chat permanently."""
        with self._database.changing() as db:
            db.table("chats").delete_where("id = ?", [plain(key)])
        self._database.empty_log()

    def _put(self, db: Database, chat: Chat) -> None:
        text = json.dumps(asdict(chat))
        if len(text) > self._most_bytes:
            raise PromptCacheError(
                f"The chat is larger than the {self._most_bytes >> 20} MiB limit of all chats together."
            )
        row = {
            "id": plain(chat.id),
            "title": plain(chat.title),
            "schema": plain(chat.name),
            "changed": datetime.now().astimezone().isoformat(timespec="seconds"),
            "turns": len(chat.exchanges),
            "bytes": len(text),
            "chat": text,
        }
        chats = db.table("chats")
        chats.insert(row, replace=True)
        ids = [found["id"] for found in chats.rows_where(select="id", order_by="rowid")]
        while len(ids) > self.most or _bytes(db) > self._most_bytes:
            chats.delete(ids.pop(0))


def _bytes(db: Database) -> int:
    return int(db.execute("select coalesce(sum(bytes), 0) from chats").fetchone()[0])


def _load(db: Database, key: str) -> Chat:
    row = next(db.table("chats").rows_where("id = ?", [plain(key)]), None)
    if row is None:
        raise PromptCacheError(_GONE)
    try:
        return Chat(**json.loads(row["chat"]))
    except (ValueError, TypeError) as error:
        raise PromptCacheError("The chat was damaged on the disk and cannot be read. Delete it.") from error
