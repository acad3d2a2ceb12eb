"""The file that a batch's answers go into, a line each: written as they come, known again by a later run."""

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

_BEGINS = b'{"id": '  # every line
_NOT_OURS = "Name another file, or give --force to replace it."


class OtherResultsError(PromptCacheError):
    """A file holds something else than what this batch would put there."""


@dataclass
class Kept:
    """What a file holds of an earlier run.

    Attributes:
        answered: by id the digest of the row that was answered, and where its line stands: offset and length.
        whole: the bytes up to which its lines are whole.
    """

    answered: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    whole: int = 0


class Results:
    """Lines of answers, each on the disk's way as soon as it is there.

    The file is not put in its place at the end, as other files are: what is done by then would be lost with
    the process.

    Args:
        path: the file.
        run: digest of what all answers have in common: schema, model, settings.
    """

    def __init__(self, path: Path, run: str) -> None:
        self.path, self._run = path, run
        self._places: dict[int, tuple[int, int]] = {}  # by line of the batch: offset and length here
        self.kept = Kept()
        self._descriptor: int | None = None
        self._end = 0

    def open(self, *, force: bool) -> None:
        """Reads what an earlier run has left, and gets ready to write behind it.

        Args:
            force: begin anew, whatever is there.

        Raises:
            FileWriteError: it cannot be written, or another run writes to it.
            OtherResultsError: what is there is no batch's output, or that of other settings.
        """
        try:
            self._descriptor = _taken(self.path)
            if not force:  # read once nobody else writes to it
                self.kept = _read(self.path, self._run)
            os.truncate(self._descriptor, self.kept.whole)
        except OSError as error:
            raise self._in_words(error) from None
        self._end = self.kept.whole

    def require_same(self, rows: Mapping[str, str]) -> None:
        """Refuses a file with answers to other rows.

        Args:
            rows: the digest of each row of this batch by its id.

        Raises:
            OtherResultsError: it has some.
        """
        answered = self.kept.answered
        gone = [name for name in answered if name not in rows]
        changed = [name for name, (digest, _, _) in answered.items() if rows.get(name, digest) != digest]
        kinds = ((changed, "has changed since", "have changed since"), (gone, "is gone", "are gone"))
        what = " and to ".join(_some(*one) for one in kinds if one[0])
        if what:
            raise OtherResultsError(f"{self.path} has answers to {what}. {_NOT_OURS}")

    def keeps(self, row: Row) -> bool:
        """Whether a row was answered by an earlier run."""
        found = self.kept.answered.get(str(row.id))
        if found is None or found[0] != row.digest:
            return False
        self._places[row.line] = found[1:]
        return True

    def write(self, row: Row, outcome: Mapping[str, Any]) -> None:
        """Adds the line of a row.

        Raises:
            FileWriteError: it cannot be written; what is there stays.
        """
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
        """Puts lines into the order of the rows, and drops failures that were mended.

        Args:
            in_order: keep the order of the rows; else that in which they ended.

        Raises:
            FileWriteError: it cannot be written; what is there stays.
        """
        try:
            self._put_in_order(in_order=in_order)
        finally:
            self.close()  # only now may others write to it

    def _put_in_order(self, *, in_order: bool) -> None:
        by_line = [self._places[line] for line in sorted(self._places)]
        places = by_line if in_order else sorted(by_line)
        if places == sorted(by_line) and sum(length for _, length in places) == self._end:
            return
        if os.name == "nt":  # where no open file is replaced
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
    """Opens a file, made where there is none, and keeps other runs from writing to it."""
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
        os.close(descriptor)  # another run has put a file in its place meanwhile


def _take(descriptor: int, path: Path) -> None:
    """Keeps other runs from writing to an open file, where the system knows how; closing it ends that."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileWriteError(
            f"Another run writes to {path}. Wait for its end, or name another file."
        ) from None
    except OSError:  # a file system without locks
        return


def _some(names: list[str], did: str, all_did: str) -> str:
    """How many rows something is true of, and the name of the first."""
    first = inline(repr(names[0]))
    if len(names) == 1:
        return f"1 row that {did} ({first})"
    return f"{len(names)} rows that {all_did} (the first is {first})"


def line_of(row: Row, run: str, outcome: Mapping[str, Any]) -> str:
    """Returns the line of a row, without its end."""
    return json_line({"id": row.id, "key": f"{run}-{row.digest}", **outcome})


def _is_begun(line: bytes) -> bool:
    """Whether a line that was cut off is one of ours; a power cut may leave zeros in place of its end."""
    line = line.rstrip(b"\0")
    return line.startswith(_BEGINS) or _BEGINS.startswith(line)


def _read(path: Path, run: str) -> Kept:
    """Reads an earlier run's lines; a last one that is not whole was cut off by the end of that run."""
    kept = Kept()
    with open_file(path) as file:
        for number, line in enumerate(file, 1):
            whole = line.endswith(b"\n")
            try:
                found = json.loads(line)
                key = found["key"]
                name = str(found["id"])
                own, _, digest = key.partition("-")
                failed = "error" in found
            except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
                if not whole and isinstance(error, ValueError) and _is_begun(line):
                    break
                what = f"is no output of a batch: its line {number} has no id and key"
                raise OtherResultsError(f"{path} {what}. {_NOT_OURS}") from None
            if own != run:
                what = "holds answers of another model or schema, or under other settings"
                raise OtherResultsError(f"{path} {what}. {_NOT_OURS}")
            if not whole:
                break
            if not failed:
                kept.answered[name] = digest, kept.whole, len(line)
            kept.whole += len(line)
    return kept
