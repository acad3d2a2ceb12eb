"""Files of text, read in one way: plain files, within one limit, as UTF-8; what is wrong is said in words."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

from engine.errors import PromptCacheError

MAX_BYTES: Final = 5 * 1024 * 1024
"""The largest document, and the largest file with text for one, in bytes."""

BOM: Final = b"\xef\xbb\xbf"
_WIDE: Final = (b"\xff\xfe", b"\xfe\xff")
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


class MissingFileError(TextFileError):
    """There is no file at a path."""


class EncodingError(TextFileError):
    """Bytes are not UTF-8.

    Attributes:
        at: index of the first byte that is not, behind a byte order mark; 0 of a text in UTF-16.
        wide: whether they begin with the mark of UTF-16.
        why: what is wrong, in a few words.
    """

    def __init__(self, name: str, why: str, at: int, *, wide: bool = False) -> None:
        super().__init__(name, f"is not UTF-8: {why}", "save it as UTF-8")
        self.at, self.wide, self.why = at, wide, why


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
    try:
        with os.fdopen(_opened(str(path), name), "rb") as file:
            return read_stream(file, name, limit=limit)
    except FileNotFoundError:
        raise MissingFileError(name, "does not exist: there is no such file", "check the path") from None
    except PermissionError:
        if Path(path).is_dir():  # Windows opens no folder
            raise _folder_error(name) from None
        raise TextFileError(name, "may not be read", "check its permissions") from None
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "strerror", None) or error)
        raise TextFileError(name, f"cannot be read: {reason}", "check the path") from None


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
        raise EncodingError(name, "it begins with the mark of UTF-16", 0, wide=True)
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        why = f"byte 0x{body[error.start]:02X} in line {line}"
        raise EncodingError(name, why, error.start) from None


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
    raise TextFileError(name, "is no plain file (a pipe, a device or a socket)", "name a file")


def _folder_error(name: str) -> TextFileError:
    return TextFileError(name, "is a folder", "name a file in it")
