"""The user's drafts: the open workspace, and earlier versions."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from sqlite_utils import Database

from app.studio.database import UserDatabase
from app.studio.runs.text_diff import common_ends
from engine.base.errors import PromptCacheError

logger = logging.getLogger(__name__)

SHELF_SIZE = 50
_OPEN = 0  # the number of the open workspace in its table; versions count from 1


@dataclass(frozen=True)
class Workspace:
    """One schema and one prompt in the editors.

    Attributes:
        name: the workspace's name on the page.
        origin: the schema's source: ``sample:NAME``, ``file:PATH``, ``browser:NAME``, or "".
        settings: the run settings as the page sent them.
        prompt_origin: the prompt's source in the same form.
        files: the stamps of the files that ``schema`` and ``prompt`` were read from or written to.
        revision: the number of saves; a save must name the revision that it started from.
        saved: the time of the last save, as ISO 8601 in UTC.
    """

    name: str
    schema: str
    prompt: str
    origin: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    revision: int = 0
    saved: str = ""
    prompt_origin: str = ""
    files: Mapping[str, Any] = field(default_factory=dict)

    def same_text(self, other: Workspace) -> bool:
        """Whether both have the same documents."""
        return (self.schema, self.prompt) == (other.schema, other.prompt)


class StaleDraftError(PromptCacheError):
    """Another tab replaced the revision that a save started from."""

    def __init__(self, current: Workspace) -> None:
        super().__init__(
            "This workspace was changed in another tab or window. Load that text, or keep the text "
            "of this one."
        )
        self.current = current


class Drafts:
    """The drafts in the user's database. Safe to use from several threads and several studios.

    Args:
        database: the user's database.

    Raises:
        PromptCacheError: the database cannot be used.
    """

    def __init__(self, database: UserDatabase) -> None:
        self._database = database
        with database.reading():  # a studio that cannot store drafts does not start
            pass

    def load(self) -> Workspace | None:
        """Returns the open workspace, or None on the first start.

        Raises:
            PromptCacheError: the database cannot be read.
        """
        with self._database.reading() as db:
            return _open(db)

    def save(self, workspace: Workspace, *, base: int, force: bool = False) -> Workspace:
        """Saves `workspace` as the open one; a schema that one edit replaces becomes a version.

        Args:
            workspace: the texts and settings on the page.
            base: the revision that the edit started from.
            force: also replace a newer revision, which becomes a version.

        Returns:
            The workspace with its new revision.

        Raises:
            StaleDraftError: there is a newer revision with another text.
            PromptCacheError: the database cannot be written.
        """
        with self._changing() as db:
            current = _open(db)
            if current is not None and current.revision != base and not current.same_text(workspace):
                if not force:
                    raise StaleDraftError(current)
                _shelve(db, current)
            elif current is not None and _rewritten(current.schema, workspace.schema):
                _shelve(db, current)
            return _write_open(db, workspace, current)

    def replace(self, workspace: Workspace) -> Workspace:
        """Opens `workspace`; the previous one becomes a version."""
        with self._changing() as db:
            current = _open(db)
            if current is not None and not current.same_text(workspace):
                _shelve(db, current)
            return _write_open(db, workspace, current)

    def shelve(self, workspace: Workspace) -> str | None:
        """Saves `workspace` as a version without opening it; returns its key, or None if it is the open one.

        Raises:
            PromptCacheError: the database cannot be written.
        """
        with self._changing() as db:
            current = _open(db)
            if current is not None and current.same_text(workspace):
                return None
            return _shelve(db, replace(workspace, saved=_now()))

    def keep_version(self) -> None:
        """Saves the open workspace as a version, unless it is the latest version.

        Raises:
            PromptCacheError: the database cannot be written.
        """
        with self._changing() as db:
            current = _open(db)
            if current is not None:
                _shelve(db, current)

    def shelf(self) -> tuple[tuple[str, Workspace], ...]:
        """Returns the versions, latest first, each with its key for `shelved`."""
        with self._database.reading() as db:
            return tuple(_versions(db))

    def shelved(self, key: str) -> Workspace:
        """Returns one version.

        Raises:
            PromptCacheError: there is no version with this key.
        """
        version = dict(self.shelf()).get(key)
        if version is None:
            raise PromptCacheError(f"There is no version {key!r}. Choose another from the list.")
        return version

    def form(self, name: str) -> dict[str, Any]:
        """Returns a page's form values; empty if they cannot be read."""
        with contextlib.suppress(PromptCacheError), self._database.reading() as db:
            for row in db.table("forms").rows_where("page = ?", [name]):
                return dict(json.loads(row["form"]))
        return {}

    def keep_form(self, name: str, form: Mapping[str, Any]) -> None:
        """Saves a page's form values.

        Raises:
            PromptCacheError: the database cannot be written.
        """
        with self._changing() as db:
            db.table("forms").upsert({"page": name, "form": json.dumps(form)}, pk="page")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Database]:
        try:
            with self._database.changing() as db:
                yield db
        except StaleDraftError:
            raise
        except PromptCacheError as error:
            raise PromptCacheError(f"{error} The page still has your text.") from error


def _rewritten(old: str, new: str) -> bool:
    """Whether the edit replaced more than half of a text."""
    return 2 * sum(common_ends(old, new)) < len(old)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _open(db: Database) -> Workspace | None:
    row = next(db.table("workspaces").rows_where("number = ?", [_OPEN]), None)
    return None if row is None else _read(row["workspace"])


def _versions(db: Database) -> Iterator[tuple[str, Workspace]]:
    for row in db.table("workspaces").rows_where("number > ?", [_OPEN], order_by="number desc"):
        workspace = _read(row["workspace"])
        if workspace is not None:
            yield str(row["number"]), workspace


def _write_open(db: Database, workspace: Workspace, current: Workspace | None) -> Workspace:
    revision = max(workspace.revision, current.revision if current else 0) + 1
    draft = replace(workspace, revision=revision, saved=_now())
    if current is None:  # an unreadable one is not overwritten
        db.execute("insert into workspaces (workspace) select workspace from workspaces where number = 0")
    row = {"number": _OPEN, "workspace": json.dumps(asdict(draft))}
    db.table("workspaces").upsert(row, pk="number")
    return draft


def _shelve(db: Database, workspace: Workspace) -> str:
    """Adds a version and deletes the oldest ones; returns its key, or the key of an equal latest version."""
    key, latest = next(_versions(db), ("", None))
    if latest is not None and latest.same_text(workspace):
        return key
    versions = db.table("workspaces")
    number = versions.insert({"workspace": json.dumps(asdict(workspace))}).last_rowid
    assert number is not None
    versions.delete_where("number between 1 and ?", [number - SHELF_SIZE])
    return str(number)


def _read(text: str) -> Workspace | None:
    """Returns a stored workspace; None if it is none of this version."""
    try:
        workspace = Workspace(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        logger.warning("A stored workspace cannot be read")
        return None
    texts = (workspace.name, workspace.schema, workspace.prompt, workspace.saved)
    origins = (workspace.origin, workspace.prompt_origin)
    whole = all(isinstance(text, str) for text in texts + origins) and isinstance(workspace.revision, int)
    return (
        workspace
        if whole and isinstance(workspace.settings, dict) and isinstance(workspace.files, dict)
        else None
    )
