"""Full-text search for the modules of a schema that answer a question.

The index is SQLite's FTS5, ranked by BM25. It is built in memory and stored as one file, named by the digest
of its input. The file contains its own digest, so damaged or outdated files are ignored and rebuilt.
Concurrent processes store identical files.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from engine.base.errors import PromptCacheError
from engine.files import atomic
from engine.files.directory import PRIVATE_FOLDER, open_plain
from engine.pml import Module, Schema, Text

log = logging.getLogger(__name__)

FOLDER: Final = "search"  # the folder of indexes inside a store

_ENDING: Final = ".index"
_FORM: Final = b"pml search 1\n"  # increase it when the indexed data changes
_DIGEST_BYTES: Final = 32
_MOST_BYTES: Final = 1 << 28
_MOST_KEPT: Final = 16
_MOST_WORDS: Final = 64
_NAME_WEIGHT, _TEXT_WEIGHT = 3.0, 1.0
_TOKENIZER: Final = "porter unicode61 remove_diacritics 2"

# Scripts without spaces between words: each character is a word of the index, and queries use pairs.
_UNSPACED: Final = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
_APART: Final = re.compile(f"([{_UNSPACED}])")
_RUNS: Final = re.compile(f"[{_UNSPACED}]+")
_COMPOUND: Final = re.compile(r"[^\W_]+(?:[._\-/:]+[^\W_]+)+")
_WORD: Final = re.compile(r"[^\W_]+")
_BEGUN: Final = re.compile(rf"[^\W_{_UNSPACED}]+\Z")
_ENDINGS: Final = 5  # maximum number of letters by which a stem is shorter than its partly typed word
_STEM: Final = 3
_COMMON: Final = frozenset(
    _WORD.findall(
        "a about after all also an and any are as at be been but by can could did do does for from get has "
        "have how i if in into is it its may me might must my no not of on or our shall should so than that "
        "the their them then there these they this those to up us was we were what when where which who whom "
        "whose why will with would you your"
    )
)


class SearchError(PromptCacheError):
    """Search is unavailable."""


@dataclass(frozen=True)
class Hit:
    """A module that a search found; compare `score` (higher is better) only within one search."""

    path: str
    score: float


class SearchIndex:
    """A full-text index of a schema's modules, in memory; must be closed. `digest` identifies its input."""

    def __init__(self, digest: str, connection: sqlite3.Connection) -> None:
        self.digest, self._connection = digest, connection

    @classmethod
    def of(cls, schema: Schema, store: Path | None = None) -> SearchIndex:
        """Opens the index of a schema: the valid index from `store`, otherwise a new one.

        Raises:
            SearchError: this SQLite does not support full-text search.
        """
        entries = list(_entries(schema))
        digest = _digest(entries)
        stored = None if store is None else _read(store / FOLDER / f"{digest}{_ENDING}")
        if stored is not None:
            connection = _connected()
            try:
                connection.deserialize(stored)
                (count,) = connection.execute("SELECT count(*) FROM paths").fetchone()
                if count == len(entries):
                    return cls(digest, connection)
            except sqlite3.Error as error:
                log.info("the stored index %s is not used: %s", digest, error)
            connection.close()
        return cls(digest, _built(entries))

    def is_of(self, schema: Schema) -> bool:
        """Returns whether it was built from the texts of a schema."""
        return self.digest == _digest(list(_entries(schema)))

    def close(self) -> None:
        """Closes the index."""
        self._connection.close()

    def __enter__(self) -> SearchIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep(self, store: Path) -> bool:
        """Stores the index and deletes the oldest ones; returns False if the folder is unwritable."""
        place = store / FOLDER / f"{self.digest}{_ENDING}"
        try:
            if _read(place) is not None:
                return True
            data = self._connection.serialize()
            if len(data) > _MOST_BYTES or not store.is_dir():
                return False
            place.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
            with atomic.writing(place.parent, place.name) as file:
                file.write(_FORM + hashlib.sha256(data).digest() + data)
            _forget_oldest(place.parent)
        except (OSError, sqlite3.Error) as error:
            log.info("the index of the schema is not stored: %s", error)
            return False
        return True

    def search(self, question: str, most: int = 50, *, typing: bool = False) -> tuple[Hit, ...]:
        """Finds modules that contain words of a question, best first.

        Args:
            question: plain words, never query syntax.
            most: the maximum number of hits.
            typing: whether the last word may be incomplete.
        """
        wanted = query(question)
        if typing and (begun := self._begun(question)):
            wanted = f"{wanted} OR {begun}" if wanted else begun
        if not wanted:
            return ()
        rows = self._connection.execute(
            f"SELECT paths.path, -bm25(texts, {_NAME_WEIGHT}, {_TEXT_WEIGHT}) AS score FROM texts "
            "JOIN paths ON paths.id = texts.rowid WHERE texts MATCH ? ORDER BY score DESC, paths.id LIMIT ?",
            (wanted, most),
        )
        return tuple(Hit(str(path), float(score)) for path, score in rows)

    def _begun(self, question: str) -> str:
        """The last word as a prefix that matches; the index contains only stems."""
        letters = unicodedata.normalize("NFD", question.lower())
        last = _BEGUN.search("".join(letter for letter in letters if not unicodedata.combining(letter)))
        word = last[0] if last else ""
        for end in range(len(word), max(len(word) - _ENDINGS, min(len(word), _STEM) - 1), -1):
            prefix = f'"{word[:end]}" *'
            if self._connection.execute(
                "SELECT 1 FROM texts WHERE texts MATCH ? LIMIT 1", (prefix,)
            ).fetchone():
                return prefix
        return ""


def query(question: str) -> str:
    """Returns a question as an FTS5 query for any of its words, each quoted; "" without words."""
    words = unicodedata.normalize("NFC", question).lower()
    words_found: dict[str, None] = {}
    for compound in _COMPOUND.findall(words):
        words_found[" ".join(_WORD.findall(_APART.sub(r" \1 ", compound)))] = None
    for run in _RUNS.findall(words):
        pairs = [f"{left} {right}" for left, right in pairwise(run)] or [run]
        words_found.update(dict.fromkeys(pairs))
    plain = dict.fromkeys(_WORD.findall(_RUNS.sub(" ", words)))
    telling = [word for word in plain if word not in _COMMON]
    words_found.update(dict.fromkeys(telling or ([] if words_found else plain)))
    return " OR ".join(f'"{phrase}"' for phrase in list(words_found)[:_MOST_WORDS])


def forget(store: Path) -> int:
    """Deletes every stored index of a store and returns their number."""
    gone = 0
    for path in _kept(store / FOLDER):
        with contextlib.suppress(OSError):
            path.unlink()
            gone += 1
    return gone


def _entries(schema: Schema) -> Iterator[tuple[str, str]]:
    """The path and own text of each module with text."""
    for module in schema.modules():
        words = _own_text(module)
        if words.strip():
            yield module.path, words


def _own_text(module: Module) -> str:
    """The module's own text, with gaps between turns and around other elements."""
    texts = (node.children for node in module.turns() or (module,))
    return " ".join("".join(node.text if isinstance(node, Text) else " " for node in text) for text in texts)


def _digest(entries: Sequence[tuple[str, str]]) -> str:
    digest = hashlib.sha256(_FORM + sqlite3.sqlite_version.encode())
    for entry in entries:
        for part in entry:
            data = part.encode("utf-8")
            digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def _connected() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)


def _built(entries: Iterable[tuple[str, str]]) -> sqlite3.Connection:
    connection = _connected()
    try:
        connection.execute("CREATE TABLE paths (id INTEGER PRIMARY KEY, path TEXT NOT NULL)")
        connection.execute(
            f"CREATE VIRTUAL TABLE texts USING fts5(name, body, content='', tokenize='{_TOKENIZER}')"
        )
    except sqlite3.OperationalError as error:
        connection.close()
        raise SearchError(
            f"the SQLite of this Python cannot search texts ({error}); use a Python whose SQLite has FTS5"
        ) from error
    connection.execute("BEGIN")
    for number, (path, text) in enumerate(entries, 1):
        connection.execute("INSERT INTO paths VALUES (?, ?)", (number, path))
        connection.execute(
            "INSERT INTO texts (rowid, name, body) VALUES (?, ?, ?)", (number, _spaced(path), _spaced(text))
        )
    connection.execute("COMMIT")
    return connection


def _spaced(text: str) -> str:
    return _APART.sub(r" \1 ", unicodedata.normalize("NFC", text))


def _read(path: Path) -> bytes | None:
    """The valid content of an index file."""
    try:
        with os.fdopen(open_plain(path), "rb") as file:
            data = file.read(_MOST_BYTES + len(_FORM) + _DIGEST_BYTES + 1)
    except OSError:
        return None
    body = data[len(_FORM) + _DIGEST_BYTES :]
    if data != _FORM + hashlib.sha256(body).digest() + body or len(body) > _MOST_BYTES:
        return None
    return body


def _kept(folder: Path) -> list[Path]:
    """The stored indexes, oldest first."""
    try:
        paths = [path for path in folder.iterdir() if re.fullmatch(rf"[0-9a-f]{{64}}\{_ENDING}", path.name)]
        return sorted(paths, key=lambda path: path.lstat().st_mtime_ns)
    except OSError:  # missing, or another process deleted a file
        return []


def _forget_oldest(folder: Path) -> None:
    for path in _kept(folder)[:-_MOST_KEPT]:
        with contextlib.suppress(OSError):
            path.unlink()
