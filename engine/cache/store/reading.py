"""Reading segments: what is found, checked, mapped; and what is damaged, taken out of the way."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from array import array
from collections.abc import Callable, Iterable, Sequence

from engine.cache.store import eviction, files
from engine.cache.store.audit import Fault
from engine.cache.store.eviction import Victim
from engine.cache.store.files import Entry, Opened, Verify
from engine.cache.store.folder import Folder, NotPlainError
from engine.cache.store.index import FailedIndexError, Index
from engine.cache.store.ledger import Ledger
from engine.segment import Form, Segment
from engine.tiers import Reason

log = logging.getLogger(__name__)

_BATCH = 500  # keys in one query
_AHEAD = 64  # files that are announced to the operating system at once, each with a descriptor
_ENTRY = ", ".join(files.COLUMNS)
Chosen = list[tuple[list[Victim], Reason]]  # victims, and the reason why they go


class Reader(Ledger):
    """A store as who reads from it sees it.

    Args:
        disk: the folder, held open.
        index: the open index.
        verify: when a file's digest is checked: at every load, at the first one of this process, or never.
    """

    def __init__(self, disk: Folder, index: Index, verify: Verify) -> None:
        super().__init__(disk.path, index)
        self.disk, self.files, self.verify_policy = disk, disk.path / "files", verify
        self._verified: dict[str, tuple[int, ...]] = {}
        self._owed: Chosen = []  # files that are gone while their rows could not be deleted yet

    def contains(self, keys: Iterable[str]) -> set[str]:
        """Returns those of the keys that the index lists; none where it cannot be read."""
        wanted = list(keys)
        found: set[str] = set()
        try:
            with self._index.reading() as connection:
                for batch in (wanted[i : i + _BATCH] for i in range(0, len(wanted), _BATCH)):
                    marks = ",".join("?" * len(batch))
                    rows = connection.execute(f"select key from segments where key in ({marks})", batch)
                    found.update(row[0] for row in rows.fetchall())
        except FailedIndexError as error:
            log.warning("%s", error)
        return found - {victim.key for victims, _ in self._owed for victim in victims}

    def load(self, key: str, token_ids: Sequence[int], form: Form | None = None) -> Segment | None:
        """Returns a segment, or None where it must be computed.

        A file that is missing, cut short, changed, of other tokens or of another form is set aside and
        counted as corrupt. One that cannot be read just now stays as it is.

        Args:
            key: names the segment.
            token_ids: the tokens it must have.
            form: the form its keys and values must have; None takes any.
        """
        try:
            return self._load(key, token_ids, form)
        except (OSError, MemoryError, FailedIndexError) as error:
            log.warning(
                "segment %s could not be read: %s; its file stays, and the segment is computed again",
                key,
                error,
            )
            return None

    def _load(self, key: str, token_ids: Sequence[int], form: Form | None) -> Segment | None:
        found = self._entry(key)
        if found is None:
            return None
        entry, blob = found
        try:
            with self.disk.opened(entry.file) as descriptor:
                opened = Opened(descriptor, entry, copied=self.verify_policy == "always")
                same = blob == pack_ids(token_ids)
                wrong = self._fault(opened) if same else "its tokens are not those of its key"
                if wrong is None:
                    segment = Segment(key, tuple(token_ids), *opened.tensors())
                    wrong = form.misfit(segment) if form is not None else None
                    if wrong is None:
                        return segment
        except FileNotFoundError:
            again = self._entry(key)
            if again is None:  # another process has evicted it since
                return None
            if again[0].file != entry.file:
                return self._load(key, token_ids, form)
            wrong = "its file is gone"
        except (NotPlainError, files.DamagedError) as error:
            wrong = str(error)
        self.set_aside(key, entry.file, wrong)
        return None

    def expect_soon(self, keys: Iterable[str]) -> None:
        """Has the operating system read files ahead, layer by layer, while something else goes on."""
        with contextlib.suppress(OSError, FailedIndexError):
            rows = [row for key in keys if (row := self._entry(key)) is not None]
            for batch in (rows[i : i + _AHEAD] for i in range(0, len(rows), _AHEAD)):
                with contextlib.ExitStack() as stack:
                    opened = []
                    for entry, _ in batch:
                        with contextlib.suppress(FileNotFoundError, NotPlainError):
                            opened.append((stack.enter_context(self.disk.opened(entry.file)), entry))
                    files.expect_soon(opened)

    def entries(self) -> tuple[list[tuple[str, Entry]], list[Fault]]:
        """What the index says of every file, and the rows by which nothing may be done."""
        with self._index.reading() as connection:
            rows = connection.execute(f"select key, {_ENTRY} from segments").fetchall()
        entries, faults = [], []
        for key, *row in rows:
            try:
                entries.append((key, files.entry_of(key, row)))
            except ValueError as error:
                faults.append(Fault(str(key), str(row[0]), str(error)))
        return entries, faults

    def listed(self) -> set[str]:
        """The files that have a row."""
        with self._index.reading() as connection:
            return {row[0] for row in connection.execute("select file from segments").fetchall()}

    def _entry(self, key: str) -> tuple[Entry, bytes] | None:
        """What the index says of a segment's file, and its tokens; a row that cannot be right is dropped."""
        with self._index.reading() as connection:
            row = connection.execute(
                f"select {_ENTRY}, token_ids from segments where key = ?", [key]
            ).fetchone()
        if row is None:
            return None
        try:
            return files.entry_of(key, row[:-1]), row[-1]
        except ValueError as error:
            self.set_aside(key, str(row[0]), str(error))
            return None

    def _fault(self, opened: Opened) -> str | None:
        """Checks a file; under `first` its digest where this process has not, or it was written to since."""
        policy, file, state = self.verify_policy, opened.entry.file, opened.state
        content = policy == "always" or (policy == "first" and self._verified.get(file) != state)
        wrong = opened.fault(content=content)
        if wrong is None and content and opened.settled and opened.state == state:
            self._verified[file] = state
        return wrong

    def set_aside(self, key: str, file: str, what: str) -> None:
        """Takes a segment out of the index, and its file, if it is the store's, into quarantine."""
        log.warning("segment %s is not used (%s); it is computed again", key, what)
        self._verified.pop(file, None)
        try:
            self.strike(lambda connection: _damaged(connection, key, file), "corrupt")
        except FailedIndexError as error:
            log.info("segment %s stays in the index: %s", key, error)
        try:
            if eviction.is_own(key, file):
                self.disk.set_aside(file)
        except FileNotFoundError:
            return
        except OSError as error:
            log.info("segment %s could not be set aside: %s", key, error)

    def strike(self, choose: Callable[[sqlite3.Connection], Chosen], counter: str) -> Chosen:
        """Takes out of the index what is chosen, in one transaction; the files are left to the caller."""
        with self._index.writing() as connection:
            self._settle(connection)
            chosen = choose(connection)
            for victims, reason in chosen:
                eviction.take_out(connection, victims, reason)
                if counter:
                    self.count(connection, counter, len(victims))
        self._owed = []
        return chosen

    def _settle(self, connection: sqlite3.Connection) -> None:
        """Deletes rows whose files went before, unless somebody has stored them again."""
        for victims, reason in self._owed:
            rows = dict(connection.execute("select key, file from segments").fetchall())
            gone = [victim for victim in victims if rows.get(victim.key) == victim.file]
            eviction.take_out(connection, gone, reason)

    def discard(self, names: Iterable[str]) -> int:
        """Removes files that have no row any more; returns the bytes that they took."""
        gone = list(names)
        for name in gone:
            self._verified.pop(name, None)
        return self.disk.remove(gone)


def _damaged(connection: sqlite3.Connection, key: str, file: str) -> Chosen:
    rows = connection.execute("select key, file, bytes from segments where key = ?", [key]).fetchall()
    return [([Victim(*row) for row in rows if str(row[1]) == file], Reason.DAMAGED)]


def pack_ids(token_ids: Sequence[int]) -> bytes:
    """Tokens as the index keeps them."""
    return array("i", token_ids).tobytes()
