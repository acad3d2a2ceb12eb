"""Reading the files that `src` names, without leaving the schema's folder."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.pml.beneath import OutsideError, open_beneath
from engine.pml.diagnostics import quote
from engine.pml.reader import MAX_BYTES

MAX_TOTAL: Final = 8 * MAX_BYTES
"""The most that all `src` files of one schema may have together, in bytes."""


@dataclass(frozen=True)
class SourceFault:
    """Why a `src` file could not be read: a code of the catalogue and a sentence."""

    code: str
    message: str


class Sources:
    """Reads the `src` files of one schema: each path once, and nothing any more beyond `MAX_TOTAL` bytes.

    A file counts as often as it is asked for: each module holds its text.
    """

    def __init__(self) -> None:
        self._left = MAX_TOTAL
        self._known: dict[tuple[Path | None, str], tuple[str, int]] = {}

    def read(self, src: str, base: Path | None) -> str | SourceFault:
        """As `read_source`; a text that goes beyond the bound is a fault, and so is each one after it."""
        if self._left >= 0:
            known = self._known.get((base, src))
            if known is None:
                found = read_source(src, base)
                if isinstance(found, SourceFault):
                    return found
                known = self._known[base, src] = found, len(found.encode("utf-8"))
            text, size = known
            self._left -= size
            if self._left >= 0:
                return text
        message = (
            f"src {quote(src)} is too much: the src files of a schema have at most 40 MB together, each "
            "counted as often as it is named; split the schema into several"
        )
        return SourceFault("E209", message)


def read_source(src: str, base: Path | None) -> str | SourceFault:
    """The text of a `src` file, verbatim, or why it cannot be had.

    Args:
        src: The path as the schema writes it.
        base: The schema's folder, or None where the schema is not in a file.
    """
    fault = _path_fault(src)
    if fault is not None:
        return SourceFault("E208", f"src {quote(src)} {fault}; name a file inside the schema's folder")
    if base is None:
        message = (
            f"src {quote(src)} cannot be read: the schema lies in no folder; save it beside the file first"
        )
        return SourceFault("E209", message)
    try:
        return _read(open_beneath(base, src), src)
    except OutsideError:
        message = f"src {quote(src)} is a link out of the schema's folder; copy the file into it"
        return SourceFault("E208", message)
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
    return SourceFault("E209", f"src {quote(src)} cannot be read: {reason}; check its name")


def _path_fault(src: str) -> str | None:
    if not src.strip():
        return "is empty"
    if any(ord(char) < 0x20 or 0xD800 <= ord(char) <= 0xDFFF for char in src):
        return "holds a character that no file name has"
    if "\\" in src:
        return "has a backslash (write / between folders)"
    if src.startswith(("/", "~")) or src[1:2] == ":":
        return "is an absolute path"
    if ".." in src.split("/"):
        return "goes up with '..'"
    return None


def _read(descriptor: int, src: str) -> str | SourceFault:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return SourceFault("E209", f"src {quote(src)} is not a regular file; name a text file")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        return SourceFault("E209", f"src {quote(src)} is larger than 5 MB; split it over several modules")
    try:
        return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        byte = data.removeprefix(b"\xef\xbb\xbf")[error.start]
        message = f"src {quote(src)} is not UTF-8 text (byte 0x{byte:02X}); save it as UTF-8"
        return SourceFault("E209", message)
