"""The user's database: one SQLite file for runs, batches, drafts, chats, sweeps and recent files."""

from __future__ import annotations

from app.studio.database.database import FILE, UserDatabase, plain, put_first

__all__ = ["FILE", "UserDatabase", "plain", "put_first"]
