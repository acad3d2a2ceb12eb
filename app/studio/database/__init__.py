"""The user's database: one SQLite file for runs, batches, drafts, versions and recent documents."""

from __future__ import annotations

from app.studio.database.database import FILE, UserDatabase, plain

__all__ = ["FILE", "UserDatabase", "plain"]
