"""Reads text files: regular files within a size limit, as UTF-8, with errors in words."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import BinaryIO, Final

from engine.base.errors import PathError, PromptCacheError

MAX_BYTES: Final = 5 * 1024 * 1024
"""The largest document, and the largest text file for one, in bytes."""

BOM: Final = b"\xef\xbb\xbf"
_WIDE: Final = (b"\xff\xfe", b"\xfe\xff")
_WIDE_UNMARKED: Final = re.compile(rb"(?:[\t\n\r -~]\0){4}|(?:\0[\t\n\r -~]){4}")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_HELD: Final = ("/dev/fd/", "/proc/self/fd/")


class TextFileError(PromptCacheError):
    """A file cannot be read as text.

    Attributes:
        what: the problem, as a continuation of the file's name.
        remedy: the fix.
    """

    def __init__(self, name: str, what: str, remedy: str) -> None:
        super().__init__(f"{name} {what}. {remedy[:1].upper()}{remedy[1:]}.")
        self.what, self.remedy = what, remedy


class NoFileError(TextFileError, PathError):
    """A path is not a readable regular file, or not a folder if one is expected."""


class MissingFileError(NoFileError):
    """A path does not exist."""


class EncodingError(TextFileError):
    """Bytes are not UTF-8.

    Attributes:
        at: index of the first invalid byte after a byte order mark; 0 for a text in UTF-16.
        wide: whether they look like UTF-16.
        why: the problem, in a few words.
        data: the bytes, if all of them are known.
    """

    def __init__(self, name: str, why: str, at: int, *, wide: bool = False, data: bytes = b"") -> None:
        super().__init__(name, f"is not UTF-8: {why}", "save it as UTF-8")
        self.at, self.wide, self.why, self.data = at, wide, why, data


def read_text_file(path: Path | str, name: str | None = None, *, limit: int = MAX_BYTES) -> str:
    """Reads a text file, without a byte order mark.

    Args:
        path: of a regular file, or of a descriptor of the shell, as in `pml check <(make-schema)`.
        name: its name in messages; the path by default.
        limit: the most bytes.

    Raises:
        TextFileError: it is missing, not a regular file, unreadable, too large, or not UTF-8.
    """
    return decode(read_file(path, name, limit=limit), name or str(path))


def read_file(path: Path | str, name: str | None = None, *, limit: int = MAX_BYTES) -> bytes:
    """Reads the bytes of a file, with the errors of `read_text_file` except for UTF-8."""
    name = name or str(path)
    with open_file(path, name) as file:
        try:
            return read_stream(file, name, limit=limit)
        except OSError as error:
            raise _in_words(path, name, error) from None


def open_file(path: Path | str, name: str | None = None) -> BinaryIO:
    """Opens a regular file, or a descriptor of the shell, for reading; raises NoFileError if it cannot."""
    name = name or str(path)
    try:
        return os.fdopen(_opened(str(path), name), "rb")
    except (OSError, ValueError) as error:
        raise _in_words(path, name, error) from None


def is_folder(path: Path | str) -> bool:
    """Returns whether a path is a folder; raises NoFileError if it does not exist or is not accessible."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116 - accepts texts too
    except (OSError, ValueError) as error:
        raise _in_words(path, str(path), error, "file or folder") from None


def require_folder(path: Path | str) -> None:
    """Raises NoFileError for a path that is not a folder."""
    if not is_folder(path):
        raise NoFileError(str(path), "is not a folder", "name the folder that contains it")


def read_stream(stream: BinaryIO, name: str, *, limit: int = MAX_BYTES) -> bytes:
    """Reads the rest of an open file; raises TextFileError if it is too large."""
    data = stream.read(limit + 1)
    if len(data) > limit:
        what = f"is larger than {limit >> 20} MB, the limit for a file"
        raise TextFileError(name, what, "split it into several")
    return data


def decode(data: bytes, name: str = "the document") -> str:
    """Returns the text of UTF-8 bytes, without a byte order mark; raises EncodingError for other bytes."""
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
    """The lines of an open file, decoded one by one; reading can continue after an invalid line.

    LF, CR LF and CR end a line, also mixed. Line ends are included, a byte order mark is not. The buffer has
    at most `limit` bytes. `number` is the number of the last line, from 1.
    """

    def __init__(self, file: BinaryIO, name: str, *, limit: int = MAX_BYTES) -> None:
        self._file, self._name, self._limit = file, name, limit
        self._held, self._at = b"", 0  # the buffer, and the start of the next line in it
        self.number = 0

    def __iter__(self) -> Lines:
        """Returns itself."""
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
            what = f"has more than {self._limit >> 20} MB in line {self.number}, the limit for a line"
            raise TextFileError(self._name, what, "split it into several")
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            why = f"byte 0x{line[error.start]:02X} in line {self.number}"
            raise EncodingError(self._name, why, error.start) from None

    def _read(self) -> bytes:
        """Returns the next line with its end, or a part of an oversized one; empty at the end."""
        try:
            while (line_end := _LINE_END.search(self._held, self._at)) is None:
                room = self._limit + 2 - (len(self._held) - self._at)
                if not (more := self._file.readline(room)):
                    break
                self._held, self._at = self._held[self._at :] + more, 0
            start, self._at = self._at, len(self._held) if line_end is None else line_end.end()
            line = self._held[start : self._at]
            if line.endswith(b"\r") and self._at == len(self._held):
                self._held, self._at = self._file.readline(1), 0
                if self._held == b"\n":  # it belongs to the line
                    line, self._at = line + b"\n", 1
            return line
        except OSError as error:
            raise _in_words(self._name, self._name, error) from None


def _opened(path: str, name: str) -> int:
    """Opens a regular file or an open descriptor; opening another pipe would wait for its writer."""
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
    raise NoFileError(name, "is not a regular file but a pipe, a device or a socket", "name a file")


def _folder_error(name: str) -> NoFileError:
    return NoFileError(name, "is a folder", "name a file in it")


def _in_words(path: Path | str, name: str, error: OSError | ValueError, kind: str = "file") -> NoFileError:
    """Returns a system error as a NoFileError."""
    if isinstance(error, FileNotFoundError):
        return MissingFileError(name, f"does not exist: there is no such {kind}", "check the path")
    if isinstance(error, PermissionError):
        if os.path.isdir(path):  # noqa: PTH112 - Windows opens no folder
            return _folder_error(name)
        return NoFileError(name, "may not be read", "check its permissions")
    reason = str(getattr(error, "strerror", None) or error)
    return NoFileError(name, f"cannot be read: {reason}", "check the path")
