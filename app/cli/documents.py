"""Reading schemas and prompts from files, and saying what is wrong with them."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from app.cli.output import counted, printable
from engine.errors import PromptCacheError
from engine.pml import Diagnostic, Parsed, Prompt, Schema, parse_prompt, parse_schema

Tree = TypeVar("Tree", Schema, Prompt)

MAX_BYTES = 5_000_000
STDIN = "-"


class DocumentError(PromptCacheError):
    """A file that cannot be read as a document."""


class _NotPlainError(Exception):
    """What a path leads to is neither a file nor a folder."""


class FaultyDocumentError(PromptCacheError):
    """A document with errors.

    Attributes:
        name: How messages call the file.
        kind: `schema` or `prompt`.
        source: Its text.
        errors: The diagnostics that stand in the way, at least one.
    """

    def __init__(self, name: str, kind: str, source: str, errors: Sequence[Diagnostic]) -> None:
        super().__init__(f"{name} has {counted(len(errors), 'error')}, so nothing was computed.")
        self.name = name
        self.kind = kind
        self.source = source
        self.errors = tuple(errors)


@dataclass(frozen=True)
class Document(Generic[Tree]):
    """A parsed file.

    Attributes:
        name: How messages call it.
        source: Its text.
        tree: What it says.
    """

    name: str
    source: str
    tree: Tree


def read_text(path: str) -> str:
    """Returns the text of the file at `path`, or of standard input for `-`.

    Raises:
        DocumentError: It is missing, no plain file, unreadable, over 5 MB, or not UTF-8.
    """
    name = "standard input" if path == STDIN else path
    try:
        if path == STDIN:
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with os.fdopen(_opened(path), "rb") as file:
                data = file.read(MAX_BYTES + 1)
    except _NotPlainError:
        raise DocumentError(
            f"{name} is no plain file (a pipe, a device or a socket). Name a file, or - for standard input."
        ) from None
    except FileNotFoundError:
        raise DocumentError(f"{name}: there is no such file. Check the path.") from None
    except IsADirectoryError:
        raise DocumentError(f"{name} is a folder. Name a .pml file in it.") from None
    except PermissionError:
        raise DocumentError(f"{name} may not be read. Check its permissions.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DocumentError(f"{name} cannot be read: {reason}.") from None
    if len(data) > MAX_BYTES:
        raise DocumentError(
            f"{name} is larger than 5 MB, the most a document may have. Split it into several."
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(
            f"{name} is not UTF-8: byte 0x{data[error.start]:02x} in line {line}. Save it as UTF-8."
        ) from None


def folder_of(path: str) -> Path:
    """Returns the folder that `src` attributes of the document at `path` are looked up in."""
    return Path.cwd() if path == STDIN else Path(path).resolve().parent


def read_schema(path: str) -> Document[Schema]:
    """Reads a schema that must be free of errors.

    Raises:
        DocumentError: The file cannot be read.
        FaultyDocumentError: It has errors.
    """
    parsed = parse_schema(read_text(path), base=folder_of(path))
    return Document(path, parsed.source, _sound(path, "schema", parsed))


def read_prompt(path: str) -> Document[Prompt]:
    """Reads a prompt that must be free of errors.

    Raises:
        DocumentError: The file cannot be read.
        FaultyDocumentError: It has errors.
    """
    parsed = parse_prompt(read_text(path))
    return Document(path, parsed.source, _sound(path, "prompt", parsed))


def require_sound(name: str, kind: str, source: str, diagnostics: Iterable[Diagnostic]) -> None:
    """Refuses a document with an error among its diagnostics.

    Raises:
        FaultyDocumentError: There is one.
    """
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"]
    if errors:
        raise FaultyDocumentError(name, kind, source, errors)


def file_report(
    name: str, kind: str | None, diagnostics: Sequence[Diagnostic], **more: object
) -> dict[str, object]:
    """Returns what `--json` says of one file."""
    return {
        "path": name,
        "kind": kind,
        "ok": not any(diagnostic.severity == "error" for diagnostic in diagnostics),
        "diagnostics": [diagnostic.to_json() for diagnostic in diagnostics],
        **more,
    }


def rendered(diagnostics: Iterable[Diagnostic], source: str, name: str) -> str:
    """Returns the diagnostics as a person reads them, each with its line and a caret."""
    return "\n".join(printable(diagnostic.render(source, name)) for diagnostic in diagnostics)


def _opened(path: str) -> int:
    """Opens a plain file, or what the shell holds open already, as in `pml check <(make-schema)`.

    Any other pipe would be waited for until somebody writes into it.
    """
    if path == "/dev/stdin" or path.startswith(("/dev/fd/", "/proc/self/fd/")):
        return os.open(path, os.O_RDONLY)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise IsADirectoryError if stat.S_ISDIR(mode) else _NotPlainError


def _sound(name: str, kind: str, parsed: Parsed[Tree]) -> Tree:
    require_sound(name, kind, parsed.source, parsed.diagnostics)
    if parsed.tree is None:
        raise DocumentError(f"{name} holds no {kind}.")
    return parsed.tree
