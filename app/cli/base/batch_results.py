"""The output file of a batch: one line an answer, written immediately, and read again to resume."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.cli.base.files import FileWriteError
from app.cli.base.output import inline, json_line
from engine.base.errors import PromptCacheError
from engine.files import atomic
from engine.files.text_files import open_file
from engine.rows.rows import Row

_BEGINS = b'{"id": '  # start of every line
_NOT_OURS = "Name another file, or use --force to replace it."


class OtherResultsError(PromptCacheError):
    """The output file belongs to another batch or to other settings."""


@dataclass
class Kept:
    """Results of an earlier run in a file."""

    answered: dict[str, tuple[str, int, int]] = field(default_factory=dict)  # by id: digest, offset, length
    whole: int = 0  # length in bytes of the complete lines


class Results:
    """Answer lines, each written as soon as it is ready.

    Other files are replaced at the end; that would lose the answers of an interrupted run.

    Args:
        path: the file.
        run: digest of the common inputs: schema, model, settings.
    """

    def __init__(self, path: Path, run: str) -> None:
        self.path, self._run = path, run
        self._places: dict[int, tuple[int, int]] = {}  # offset and length here, by line of the batch
        self.kept = Kept()
        self._descriptor: int | None = None
        self._end = 0

    def open(self, *, force: bool) -> None:
        """Opens the file and reads results of an earlier run, or discards them with `force`.

        Raises:
            FileWriteError: the file is not writable, or another run writes to it.
            OtherResultsError: the file is not the output of a batch with the same settings.
        """
        try:
            self._descriptor = _taken(self.path)
            if not force:  # read after locking
                self.kept = _read(self.path, self._run)
            os.truncate(self._descriptor, self.kept.whole)
        except OSError as error:
            raise self._in_words(error) from None
        self._end = self.kept.whole

    def require_same(self, rows: Mapping[str, str]) -> None:
        """Rejects a file with answers to other rows than `rows`, digests by id, with an OtherResultsError."""
        answered = self.kept.answered
        missing = [name for name in answered if name not in rows]
        changed = [name for name, (digest, _, _) in answered.items() if rows.get(name, digest) != digest]
        kinds = ((changed, "has changed since", "have changed since"), (missing, "is gone", "are gone"))
        changes = " and to ".join(_some(*kind) for kind in kinds if kind[0])
        if changes:
            raise OtherResultsError(f"{self.path} has answers to {changes}. {_NOT_OURS}")

    def keeps(self, row: Row) -> bool:
        """Returns whether an earlier run answered a row."""
        answered = self.kept.answered.get(str(row.id))
        if answered is None or answered[0] != row.digest:
            return False
        self._places[row.line] = answered[1:]
        return True

    def write(self, row: Row, outcome: Mapping[str, Any]) -> None:
        """Appends the line of a row; raises FileWriteError if the write fails."""
        data = f"{line_of(row, self._run, outcome)}\n".encode()
        assert self._descriptor is not None
        try:
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except OSError as error:
            raise self._in_words(error) from None
        self._places[row.line] = self._end, len(data)
        self._end += len(data)

    def finish(self, *, in_order: bool) -> None:
        """Sorts the lines and drops failures of rows answered later; raises FileWriteError if it fails."""
        try:
            self._put_in_order(in_order=in_order)
        finally:
            self.close()  # unlock after the last write

    def _put_in_order(self, *, in_order: bool) -> None:
        by_line = [self._places[line] for line in sorted(self._places)]
        places = by_line if in_order else sorted(by_line)
        if places == sorted(by_line) and sum(length for _, length in places) == self._end:
            return
        if os.name == "nt":  # Windows cannot replace an open file
            self.close()
        target = self.path.resolve()
        try:
            mode = target.stat().st_mode & 0o777
            with target.open("rb") as old, atomic.writing(target.parent, target.name, mode=mode) as new:
                for offset, length in places:
                    old.seek(offset)
                    new.write(old.read(length))
        except OSError as error:
            raise self._in_words(error) from None

    def close(self) -> None:
        """Closes the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _in_words(self, error: OSError) -> FileWriteError:
        return FileWriteError(f"{self.path} cannot be written: {error.strerror or error}.")


def _taken(path: Path) -> int:
    """Opens or creates a file and locks it against other runs."""
    while True:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        descriptor = os.open(path, flags, 0o666)
        try:
            _take(descriptor, path)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # another run replaced the file meanwhile


def _take(descriptor: int, path: Path) -> None:
    """Locks an open file, if the system supports locks; closing it unlocks."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileWriteError(
            f"Another run is writing to {path}. Wait until it ends, or name another file."
        ) from None
    except OSError:  # no locks on this file system
        return


def _some(names: list[str], did: str, all_did: str) -> str:
    """The number of affected rows and the name of the first."""
    first = inline(repr(names[0]))
    if len(names) == 1:
        return f"1 row that {did} ({first})"
    return f"{len(names)} rows that {all_did} (the first is {first})"


def line_of(row: Row, run: str, outcome: Mapping[str, Any]) -> str:
    """Returns the line of a row, without line end."""
    return json_line({"id": row.id, "key": f"{run}-{row.digest}", **outcome})


def _is_begun(line: bytes) -> bool:
    """Whether an incomplete line is one of ours; a power cut may leave zeros at its end."""
    line = line.rstrip(b"\0")
    return line.startswith(_BEGINS) or _BEGINS.startswith(line)


def _read(path: Path, run: str) -> Kept:
    """Reads an earlier run's lines, except an incomplete last one."""
    results = Kept()
    with open_file(path) as file:
        for number, line in enumerate(file, 1):
            complete = line.endswith(b"\n")
            try:
                fields = json.loads(line)
                key = fields["key"]
                name = str(fields["id"])
                run_part, _, digest = key.partition("-")
                failed = "error" in fields
            except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
                if not complete and isinstance(error, ValueError) and _is_begun(line):
                    break
                problem = f"is not the output of a batch: line {number} has no id and key"
                raise OtherResultsError(f"{path} {problem}. {_NOT_OURS}") from None
            if run_part != run:
                problem = "has answers of another model, another schema or other settings"
                raise OtherResultsError(f"{path} {problem}. {_NOT_OURS}")
            if not complete:
                break
            if not failed:
                results.answered[name] = digest, results.whole, len(line)
            results.whole += len(line)
    return results
