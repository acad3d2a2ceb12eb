"""Which modules of a schema answer a question: full-text search over their texts, kept as a file.

The index is SQLite's FTS5, ranked by BM25. It is built in memory and kept whole, under the digest of what it
was built of and with its own digest in it: what is damaged or of another text is not used, and built anew.
Processes that keep the same index at once each put the same file in its place.
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

FOLDER: Final = "search"
"""The folder of kept indexes, in that of a store."""

_ENDING: Final = ".index"
_FORM: Final = b"pml search 1\n"  # a new number where what is indexed, or how, changes
_DIGEST_BYTES: Final = 32
_MOST_BYTES: Final = 1 << 28
_MOST_KEPT: Final = 16
_MOST_WORDS: Final = 64
_NAME_WEIGHT, _TEXT_WEIGHT = 3.0, 1.0
_TOKENIZER: Final = "porter unicode61 remove_diacritics 2"

# Scripts without spaces between words: each character is indexed as a word, and asked for in pairs.
_UNSPACED: Final = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
)
_APART: Final = re.compile(f"([{_UNSPACED}])")
_RUNS: Final = re.compile(f"[{_UNSPACED}]+")
_COMPOUND: Final = re.compile(r"[^\W_]+(?:[._\-/:]+[^\W_]+)+")
_WORD: Final = re.compile(r"[^\W_]+")
_BEGUN: Final = re.compile(rf"[^\W_{_UNSPACED}]+\Z")
_ENDINGS: Final = 5  # the most letters that a stem may be shorter than its word while that is typed
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
    """Nothing can be searched here."""


@dataclass(frozen=True)
class Hit:
    """A module that a search has found.

    Attributes:
        path: its path.
        score: how well it fits, the more the better; of use only beside others of one search.
    """

    path: str
    score: float


class SearchIndex:
    """The texts of a schema's modules, ready to be searched. To be closed.

    Args:
        digest: of what it was built of.
        connection: the database, in memory.
    """

    def __init__(self, digest: str, connection: sqlite3.Connection) -> None:
        self.digest, self._connection = digest, connection

    @classmethod
    def of(cls, schema: Schema, store: Path | None = None) -> SearchIndex:
        """Opens the index of a schema: the kept one where it is whole, else a new one.

        Args:
            schema: the schema, without errors.
            store: the folder of the store beside which indexes are kept.

        Raises:
            SearchError: this SQLite cannot search.
        """
        entries = list(_entries(schema))
        digest = _digest(entries)
        kept = None if store is None else _read(store / FOLDER / f"{digest}{_ENDING}")
        if kept is not None:
            connection = _connected()
            try:
                connection.deserialize(kept)
                (count,) = connection.execute("SELECT count(*) FROM paths").fetchone()
                if count == len(entries):
                    return cls(digest, connection)
            except sqlite3.Error as error:
                log.info("the kept index %s is not used: %s", digest, error)
            connection.close()
        return cls(digest, _built(entries))

    def is_of(self, schema: Schema) -> bool:
        """Whether it was built of the texts of a schema."""
        return self.digest == _digest(list(_entries(schema)))

    def close(self) -> None:
        """Lets go of the index."""
        self._connection.close()

    def __enter__(self) -> SearchIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep(self, store: Path) -> bool:
        """Keeps the index beside a store, for the next process; the oldest of many go.

        Args:
            store: the folder of the store.

        Returns:
            Whether it is kept. A folder that cannot be written to is no fault.
        """
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
            log.info("the index of the schema is not kept: %s", error)
            return False
        return True

    def search(self, question: str, most: int = 50, *, typing: bool = False) -> tuple[Hit, ...]:
        """Finds modules that have words of a question, the best first.

        Args:
            question: plain words; nothing in it is a command to the search.
            most: how many at most.
            typing: whether the last word may be the beginning of one.
        """
        wanted = query(question)
        if typing and (begun := self._begun(question)):
            wanted = f"{wanted} OR {begun}" if wanted else begun
        if not wanted:
            return ()
        found = self._connection.execute(
            f"SELECT paths.path, -bm25(texts, {_NAME_WEIGHT}, {_TEXT_WEIGHT}) AS score FROM texts "
            "JOIN paths ON paths.id = texts.rowid WHERE texts MATCH ? ORDER BY score DESC, paths.id LIMIT ?",
            (wanted, most),
        )
        return tuple(Hit(str(path), float(score)) for path, score in found)

    def _begun(self, question: str) -> str:
        """The last word as the beginning of one that is there; of what is indexed, only stems are."""
        letters = unicodedata.normalize("NFD", question.lower())
        last = _BEGUN.search("".join(one for one in letters if not unicodedata.combining(one)))
        word = last[0] if last else ""
        for end in range(len(word), max(len(word) - _ENDINGS, min(len(word), _STEM) - 1), -1):
            asked = f'"{word[:end]}" *'
            if self._connection.execute(
                "SELECT 1 FROM texts WHERE texts MATCH ? LIMIT 1", (asked,)
            ).fetchone():
                return asked
        return ""


def query(question: str) -> str:
    """A question as FTS5 reads it: any of its words, each between quotes; empty where it has none."""
    words = unicodedata.normalize("NFC", question).lower()
    found: dict[str, None] = {}
    for compound in _COMPOUND.findall(words):
        found[" ".join(_WORD.findall(_APART.sub(r" \1 ", compound)))] = None
    for run in _RUNS.findall(words):
        pairs = [f"{left} {right}" for left, right in pairwise(run)] or [run]
        found.update(dict.fromkeys(pairs))
    plain = dict.fromkeys(_WORD.findall(_RUNS.sub(" ", words)))
    telling = [word for word in plain if word not in _COMMON]
    found.update(dict.fromkeys(telling or ([] if found else plain)))
    return " OR ".join(f'"{one}"' for one in list(found)[:_MOST_WORDS])


def forget(store: Path) -> int:
    """Deletes every index that is kept beside a store.

    Returns:
        How many there were.
    """
    gone = 0
    for path in _kept(store / FOLDER):
        with contextlib.suppress(OSError):
            path.unlink()
            gone += 1
    return gone


def _entries(schema: Schema) -> Iterator[tuple[str, str]]:
    """The path and the own text of each module that has one."""
    for module in schema.modules():
        own = _own_text(module)
        if own.strip():
            yield module.path, own


def _own_text(module: Module) -> str:
    """Its own text; what stands in different turns, or beside something else, is not joined."""
    texts = (one.children for one in module.turns() or (module,))
    return " ".join("".join(one.text if isinstance(one, Text) else " " for one in text) for text in texts)


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
    """What an index file holds, if it is whole."""
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
    """The kept indexes, the oldest first."""
    try:
        found = [path for path in folder.iterdir() if re.fullmatch(rf"[0-9a-f]{{64}}\{_ENDING}", path.name)]
        return sorted(found, key=lambda path: path.lstat().st_mtime_ns)
    except OSError:  # it is not there, or another process has deleted one
        return []


def _forget_oldest(folder: Path) -> None:
    for path in _kept(folder)[:-_MOST_KEPT]:
        with contextlib.suppress(OSError):
            path.unlink()
