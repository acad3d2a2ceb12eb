"""Decides whether a folder may be used as a store: if it is empty, or is one. Changes nothing in it."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, Literal

from engine.base.errors import PathError, StoreError
from engine.files.directory import open_plain
from engine.files.places import broken_link, user_cache
from engine.prompt.conversation.search import FOLDER as SEARCH

INDEX = "index.sqlite"
FILES, QUARANTINE, LOCKS = "files", "quarantine", "locks"
SCHEMAS = "schemas"  # of clients of a server
WRITING = "writing.lock"
TAG = "CACHEDIR.TAG"  # the standard name that backup programs skip: bford.info/cachedir
APPLICATION_ID = 0x504D4C53  # in the header of our index: "PMLS"
TAG_TEXT = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"
    b"# This folder is a segment store of Prompt Cache Studio. `pml cache` shows and removes what is in it.\n"
)

KEPT_MODE = (
    b"# It lies in a folder that was there before it, so the mode of the folder stays as its owner set it.\n"
)

SEGMENT = re.compile(r"[0-9A-Za-z._-]{1,120}-[0-9a-f]{16}\.safetensors")
TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")
LOCK = re.compile(r"[0-9A-Za-z._-]{1,120}\.lock")
WRITERS = re.compile(r"writing-[0-9a-f]{32}\.lock")
SET_ASIDE = re.compile(r"index\.sqlite\.damaged-\d{8}T\d{6}-[0-9a-f]{8}(-wal|-shm|-journal)?")
_OF_INDEX = re.compile(r"index\.sqlite(-wal|-shm|-journal)?")
_PROBE = re.compile(r"\.write-[0-9a-f]{32}")  # earlier versions left these behind when they were killed
IN_PART = {FILES: (SEGMENT, TEMPORARY), QUARANTINE: (SEGMENT,), LOCKS: (LOCK,)}

_COLUMNS = {"key", "file", "bytes", "digest", "tokens", "token_ids"}  # in every version's segments
Standing = Literal["none", "empty", "store"]
_Index = Literal["none", "empty", "ours", "foreign", "broken"]


def default_folder() -> Path:
    """Returns the user's cache folder for segments."""
    return user_cache() / "segments"


def matches(name: str, patterns: tuple[re.Pattern[str], ...]) -> bool:
    """Whether a name matches one of these patterns."""
    return any(pattern.fullmatch(name) for pattern in patterns)


def in_root(name: str) -> bool:
    """Whether a name in the root folder belongs to the store."""
    return name in {*IN_PART, WRITING, TAG, SEARCH, SCHEMAS} or matches(name, (_OF_INDEX, SET_ASIDE, _PROBE))


class NoFolderError(StoreError, PathError):
    """The path of the cache folder is something else."""


def require_ours(path: Path) -> Standing:
    """Returns whether a folder is a store, empty or absent.

    Only the tag or the index proves that a folder is a store, since others may use the same names.

    Raises:
        NoFolderError: it is no folder.
        StoreError: it is neither empty nor a store, or it cannot be read.
    """
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except FileNotFoundError:
        if link := broken_link(path):
            raise NoFolderError(
                f"the cache folder {str(path)!r} does not exist: {link}. Connect that disk, make that "
                "folder, or choose another one (--cache-dir, cache_dir)."
            ) from None
        return "none"
    except NotADirectoryError:
        raise NoFolderError(
            f"the cache folder {str(path)!r} is not a folder. Choose another one (--cache-dir, cache_dir)."
        ) from None
    except (OSError, ValueError) as error:  # some texts are not valid paths
        raise StoreError(
            f"the cache folder {str(path)!r} cannot be used: {error}. "
            "Choose another one (--cache-dir, cache_dir)."
        ) from error
    if not names:
        return "empty"
    index = _index(path / INDEX)
    if index == "foreign":
        raise _refusal(path, f"its {INDEX} was written by another program")
    if index == "ours" or _tagged(path / TAG):
        return "store"
    for name in names:
        if not (in_root(name) and (_is_empty(path / name) or (name == INDEX and index == "empty"))):
            if _tagged(path / TAG):  # another process has just made it a store
                return "store"
            raise _refusal(path, f"it contains {name!r} and has no tag of a store")
    return "empty"


def keeps_mode(path: Path) -> bool:
    """Whether the tag says that the store must not change the folder's mode."""
    try:
        with _plain(path / TAG) as file:
            return file.read(len(TAG_TEXT) + len(KEPT_MODE)) == TAG_TEXT + KEPT_MODE
    except OSError:
        return False


def _refusal(path: Path, why: str) -> StoreError:
    return StoreError(
        f"the cache folder {str(path)!r} is neither empty nor a segment store ({why}). Nothing in it was "
        "changed. Choose an empty or a new folder (--cache-dir, cache_dir)."
    )


def _is_empty(path: Path) -> bool:
    """Whether it is an empty folder or an empty file, so that nothing can be lost."""
    try:
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            return next(path.iterdir(), None) is None
        return stat.S_ISREG(status.st_mode) and not status.st_size
    except OSError:
        return False


def _tagged(path: Path) -> bool:
    try:
        with _plain(path) as file:
            return file.read(len(TAG_TEXT)) == TAG_TEXT
    except OSError:
        return False


def _index(path: Path) -> _Index:
    """Classifies an index by its application id and tables, without locking, creating or changing anything.

    Only SQLite opens it: closing a descriptor of our own would release every lock of this process on the
    file.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return "none"
    except OSError:
        return "broken"
    if not stat.S_ISREG(status.st_mode):
        return "foreign"
    if not status.st_size:
        return "empty"
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            (application,) = connection.execute("pragma application_id").fetchone()
            if application:
                return "ours" if application == APPLICATION_ID else "foreign"
            tables = {row[0] for row in connection.execute("select name from sqlite_master")}
            columns = {row[1] for row in connection.execute("pragma table_info(segments)")}
    except sqlite3.Error:
        return "broken"
    if not tables:
        return "empty"
    return "ours" if columns >= _COLUMNS and {"labels", "counters"} <= tables else "foreign"


def _plain(path: Path) -> BinaryIO:
    return os.fdopen(open_plain(path), "rb")


def is_own(key: object, file: object) -> bool:
    """Whether a file has the name of this segment's file."""
    return isinstance(file, str) and SEGMENT.fullmatch(file) is not None and file.rpartition("-")[0] == key
