"""Files of text, read in one way: plain files, within one limit, as UTF-8; what is wrong is said in words."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import BinaryIO, Final

from engine.base.errors import PathError, PromptCacheError

MAX_BYTES: Final = 5 * 1024 * 1024
"""The largest document, and the largest file with text for one, in bytes."""

BOM: Final = b"\xef\xbb\xbf"
_WIDE: Final = (b"\xff\xfe", b"\xfe\xff")
_WIDE_UNMARKED: Final = re.compile(rb"(?:[\t\n\r -~]\0){4}|(?:\0[\t\n\r -~]){4}")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_HELD: Final = ("/dev/fd/", "/proc/self/fd/")


class TextFileError(PromptCacheError):
    """A file cannot be read as text.

    Attributes:
        what: is wrong with it, to stand behind its name.
        remedy: what to do about it.
    """

    def __init__(self, name: str, what: str, remedy: str) -> None:
        super().__init__(f"{name} {what}. {remedy[:1].upper()}{remedy[1:]}.")
        self.what, self.remedy = what, remedy


class NoFileError(TextFileError, PathError):
    """A path leads to no plain file that may be read, or to no folder where one was named."""


class MissingFileError(NoFileError):
    """There is nothing at a path."""


class EncodingError(TextFileError):
    """Bytes are not UTF-8.

    Attributes:
        at: index of the first byte that is not, behind a byte order mark; 0 of a text in UTF-16.
        wide: whether they begin as UTF-16 does.
        why: what is wrong, in a few words.
        data: the bytes, where all of them are known.
    """

    def __init__(self, name: str, why: str, at: int, *, wide: bool = False, data: bytes = b"") -> None:
        super().__init__(name, f"is not UTF-8: {why}", "save it as UTF-8")
        self.at, self.wide, self.why, self.data = at, wide, why, data


def read_text_file(path: Path | str, name: str | None = None, *, limit: int = MAX_BYTES) -> str:
    """Reads a file of text, without a byte order mark.

    Args:
        path: of a plain file, or of what the shell holds open already, as in `pml check <(make-schema)`.
        name: how messages call it; the path by default.
        limit: the most bytes that it may have.

    Raises:
        TextFileError: it is missing, no plain file, unreadable, too large, or not UTF-8.
    """
    return decode(read_file(path, name, limit=limit), name or str(path))


def read_file(path: Path | str, name: str | None = None, *, limit: int = MAX_BYTES) -> bytes:
    """Reads the bytes of a file.

    Raises:
        TextFileError: it is missing, no plain file, unreadable, or too large.
    """
    name = name or str(path)
    with open_file(path, name) as file:
        try:
            return read_stream(file, name, limit=limit)
        except OSError as error:
            raise _in_words(path, name, error) from None


def open_file(path: Path | str, name: str | None = None) -> BinaryIO:
    """Opens a plain file for reading, or what the shell holds open already.

    Raises:
        NoFileError: it is missing, no plain file, or unreadable.
    """
    name = name or str(path)
    try:
        return os.fdopen(_opened(str(path), name), "rb")
    except (OSError, ValueError) as error:
        raise _in_words(path, name, error) from None


def is_folder(path: Path | str) -> bool:
    """Whether a path leads to a folder, and not to anything else that is there.

    Raises:
        NoFileError: it leads to nothing, or may not be looked at.
    """
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116 - it takes texts as well
    except (OSError, ValueError) as error:
        raise _in_words(path, str(path), error, "file or folder") from None


def require_folder(path: Path | str) -> None:
    """Refuses a path that leads to no folder.

    Raises:
        NoFileError: as for `is_folder`, or there is something else.
    """
    if not is_folder(path):
        raise NoFileError(str(path), "is no folder", "name the folder that it lies in")


def read_stream(stream: BinaryIO, name: str, *, limit: int = MAX_BYTES) -> bytes:
    """Reads what is left of an open file.

    Raises:
        TextFileError: it is too large.
        OSError: it cannot be read.
    """
    data = stream.read(limit + 1)
    if len(data) > limit:
        what = f"is larger than {limit >> 20} MB, the most it may have"
        raise TextFileError(name, what, "split it into several")
    return data


def decode(data: bytes, name: str = "the document") -> str:
    """Returns the text of UTF-8 bytes, without a byte order mark.

    Raises:
        EncodingError: the bytes are not UTF-8.
    """
    body = data.removeprefix(BOM)
    if body[:2] in _WIDE:
        raise EncodingError(name, "it begins with the mark of UTF-16", 0, wide=True, data=data)
    if _WIDE_UNMARKED.match(body):
        raise EncodingError(name, "it looks like UTF-16", 0, wide=True, data=data)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = len(_LINE_END.findall(body, 0, error.start)) + 1
        why = f"byte 0x{body[error.start]:02X} in line {line}"
        raise EncodingError(name, why, error.start, data=data) from None


class Lines:
    """The lines of an open file, each decoded by itself: behind a faulty one the next can be asked for.

    LF, CR LF and CR end a line, also mixed. A byte order mark is left out, line ends are not.

    Args:
        file: the file, open at its beginning.
        name: how messages call it.
        limit: the most bytes that a line may have, so the most that is held at once.

    Attributes:
        number: number of the line that was read last, from 1.
    """

    def __init__(self, file: BinaryIO, name: str, *, limit: int = MAX_BYTES) -> None:
        self._file, self._name, self._limit = file, name, limit
        self._held, self._at = b"", 0  # what was read, and where in it the next line begins
        self.number = 0

    def __iter__(self) -> Lines:
        """These lines themselves."""
        return self

    def __next__(self) -> str:
        """Reads the next line.

        Raises:
            EncodingError: it is not UTF-8.
            NoFileError: the file cannot be read.
            TextFileError: it is too long.
        """
        line = self._read()
        if not line:
            raise StopIteration
        self.number += 1
        if self.number == 1:
            line = line.removeprefix(BOM)
            if line[:2] in _WIDE:
                raise EncodingError(self._name, "it begins with the mark of UTF-16", 0, wide=True)
            if _WIDE_UNMARKED.match(line):
                raise EncodingError(self._name, "it looks like UTF-16", 0, wide=True)
        if len(line.rstrip(b"\r\n")) > self._limit:
            while line and not line.endswith((b"\n", b"\r")):
                line = self._read()
            what = f"has more than {self._limit >> 20} MB in line {self.number}, the most a line may have"
            raise TextFileError(self._name, what, "split it into several")
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            why = f"byte 0x{line[error.start]:02X} in line {self.number}"
            raise EncodingError(self._name, why, error.start) from None

    def _read(self) -> bytes:
        """Returns the next line with its end, or as much of a longer one as may be held; none at the end."""
        try:
            while (found := _LINE_END.search(self._held, self._at)) is None:
                room = self._limit + 2 - (len(self._held) - self._at)
                if not (more := self._file.readline(room)):
                    break
                self._held, self._at = self._held[self._at :] + more, 0
            start, self._at = self._at, len(self._held) if found is None else found.end()
            line = self._held[start : self._at]
            if line.endswith(b"\r") and self._at == len(self._held):
                self._held, self._at = self._file.readline(1), 0
                if self._held == b"\n":  # it belongs to the line
                    line, self._at = line + b"\n", 1
            return line
        except OSError as error:
            raise _in_words(self._name, self._name, error) from None


def _opened(path: str, name: str) -> int:
    """Opens a plain file, or what is open already; any other pipe would be waited for until it is written."""
    if path == "/dev/stdin" or path.startswith(_HELD):
        return os.open(path, os.O_RDONLY)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise _folder_error(name)
    raise NoFileError(name, "is no plain file (a pipe, a device or a socket)", "name a file")


def _folder_error(name: str) -> NoFileError:
    return NoFileError(name, "is a folder", "name a file in it")


def _in_words(path: Path | str, name: str, error: OSError | ValueError, kind: str = "file") -> NoFileError:
    """What the system says of a path, as everything here says it."""
    if isinstance(error, FileNotFoundError):
        return MissingFileError(name, f"does not exist: there is no such {kind}", "check the path")
    if isinstance(error, PermissionError):
        if os.path.isdir(path):  # noqa: PTH112 - Windows opens no folder
            return _folder_error(name)
        return NoFileError(name, "may not be read", "check its permissions")
    reason = str(getattr(error, "strerror", None) or error)
    return NoFileError(name, f"cannot be read: {reason}", "check the path")
