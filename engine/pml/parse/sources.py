"""Reading the files that `src` names, without leaving the schema's folder."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from engine.base.errors import PromptCacheError
from engine.files.safe_open import OutsideError, open_beneath
from engine.files.text_files import MAX_BYTES, TextFileError, decode, read_stream
from engine.pml.diagnostics.diagnostic import quote

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
MAX_TOTAL: Final = 8 * MAX_BYTES
"""The most that all `src` files of one schema may have together, in bytes."""


class SourceError(PromptCacheError):
    """A `src` file cannot be read.

    Attributes:
        code: a code of the catalogue of diagnostics.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Sources:
    """Reads the `src` files of one schema: each path once, and nothing any more beyond `MAX_TOTAL` bytes.

    A file counts as often as it is asked for: each module holds its text.
    """

    def __init__(self) -> None:
        self._left = MAX_TOTAL
        self._known: dict[tuple[Path | None, str], tuple[str, int]] = {}

    def read(self, src: str, base: Path | None) -> str:
        """As `read_source`; a text that goes beyond the bound is a fault, and so is each one after it."""
        if self._left >= 0:
            known = self._known.get((base, src))
            if known is None:
                found = read_source(src, base)
                known = self._known[base, src] = found, len(found.encode("utf-8"))
            text, size = known
            self._left -= size
            if self._left >= 0:
                return text
        message = (
            f"src {quote(src)} is too much: the src files of a schema have at most 40 MB together, each "
            "counted as often as it is named; split the schema into several"
        )
        raise SourceError("E209", message)


def read_source(src: str, base: Path | None) -> str:
    """The text of a `src` file, verbatim.

    Args:
        src: the path as the schema writes it.
        base: the schema's folder, or None where the schema is not in a file.

    Raises:
        SourceError: it leads out of the folder, or cannot be read as text.
    """
    require_inside(src)
    if base is None:
        message = (
            f"src {quote(src)} cannot be read: the schema lies in no folder; save it beside the file first"
        )
        raise SourceError("E209", message)
    try:
        return _read(open_beneath(base, src), src)
    except OutsideError:
        message = f"src {quote(src)} is a link out of the schema's folder; copy the file into it"
        raise SourceError("E208", message) from None
    except TextFileError as error:
        raise SourceError("E209", f"src {quote(src)} {error.what}; {error.remedy}") from None
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        raise SourceError("E209", f"src {quote(src)} cannot be read: {reason}; check its name") from None


def require_inside(src: str) -> None:
    """Refuses a path that says of itself that it leads out of the folder.

    Raises:
        SourceError: it is absolute, goes up, or is no path of a file.
    """
    fault = _path_fault(src)
    if fault is not None:
        raise SourceError("E208", f"src {quote(src)} {fault}; name a file inside the schema's folder")


def _path_fault(src: str) -> str | None:
    if not src.strip():
        return "is empty"
    if any(ord(char) < 0x20 or 0xD800 <= ord(char) <= 0xDFFF for char in src):
        return "holds a character that no file name has"
    if _ADDRESS.match(src):
        return "is an address, and schemas read files only"
    if "\\" in src:
        return "has a backslash (write / between folders)"
    if src.startswith(("/", "~")) or src[1:2] == ":":
        return "is an absolute path"
    if ".." in src.split("/"):
        return "goes up with '..'"
    return None


def _read(descriptor: int, src: str) -> str:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise TextFileError(src, "is not a regular file", "name a text file")
    with os.fdopen(descriptor, "rb") as file:
        return decode(read_stream(file, src), src)
