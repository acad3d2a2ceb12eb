"""Reads `src` files without leaving the document's folder."""

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
MAX_TOTAL: Final = 8 * MAX_BYTES  # bytes of all `src` files of one schema


class SourceError(PromptCacheError):
    """A `src` file is not readable.

    Attributes:
        code: a code of the catalogue of diagnostics.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Sources:
    """Reads the `src` files of one schema: each path once, up to `MAX_TOTAL` bytes.

    A file counts once for each use, because each module stores its text.
    """

    def __init__(self) -> None:
        self._left = MAX_TOTAL
        self._known: dict[tuple[Path | None, str], tuple[str, int]] = {}

    def read(self, src: str, base: Path | None) -> str:
        """Reads a file like `read_source`; raises an error for each file beyond the limit."""
        if self._left >= 0:
            known = self._known.get((base, src))
            if known is None:
                content = read_source(src, base)
                known = self._known[base, src] = content, len(content.encode("utf-8"))
            text, size = known
            self._left -= size
            if self._left >= 0:
                return text
        message = (
            f"src {quote(src)} exceeds the limit: the src files of a document have at most 40 MB in total, "
            "counted once per use; split the schema into several"
        )
        raise SourceError("E209", message)


def read_source(src: str, base: Path | None) -> str:
    """Reads the text of a `src` file, verbatim; `base` is the document's folder, if any.

    Raises:
        SourceError: the path leaves the folder, or the file is not readable text.
    """
    require_inside(src)
    if base is None:
        message = (
            f"src {quote(src)} cannot be read: the document has no folder; save it next to the file first"
        )
        raise SourceError("E209", message)
    try:
        return _read(open_beneath(base, src), src)
    except OutsideError:
        message = f"src {quote(src)} links outside the document's folder; copy the file into it"
        raise SourceError("E208", message) from None
    except TextFileError as error:
        raise SourceError("E209", f"src {quote(src)} {error.what}; {error.remedy}") from None
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        message = f"src {quote(src)} cannot be read: {reason}; check its name, or copy the file into {base}"
        raise SourceError("E209", message) from None


def require_inside(src: str) -> None:
    """Rejects a path that leaves the document's folder.

    Raises:
        SourceError: the path is absolute, goes up, or is not a file path.
    """
    fault = _path_fault(src)
    if fault is not None:
        raise SourceError("E208", f"src {quote(src)} {fault}; name a file inside the document's folder")


def _path_fault(src: str) -> str | None:
    if not src.strip():
        return "is empty"
    if any(ord(char) < 0x20 or 0xD800 <= ord(char) <= 0xDFFF for char in src):
        return "has a character that file names cannot have"
    if _ADDRESS.match(src):
        return "is a URL, but src names only files"
    if "\\" in src:
        return "has a backslash (write / between folders)"
    if src.startswith(("/", "~")) or src[1:2] == ":":
        return "is an absolute path"
    if ".." in src.split("/"):
        return "contains '..'"
    return None


def _read(descriptor: int, src: str) -> str:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise TextFileError(src, "is not a regular file", "name a text file")
    with os.fdopen(descriptor, "rb") as file:
        return decode(read_stream(file, src), src)
