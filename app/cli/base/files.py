"""Writes output files without overwriting existing ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.base.safe_write import require_replaceable, write_bytes
from engine.base.errors import PathError, PromptCacheError
from engine.files.directory import NotPlainError


class FileWriteError(PromptCacheError):
    """A file exists or is not writable."""


class NoPlaceError(FileWriteError, PathError):
    """The path of a file is invalid."""


def save(path: Path, content: str | bytes, *, force: bool) -> None:
    """Writes a file atomically; raises FileWriteError if it exists, unless `force`, or is not writable."""
    data = content.encode() if isinstance(content, str) else content
    with _in_words(path):
        write_bytes(path, data, overwrite=force)


def save_all(texts: Sequence[tuple[Path, str]], *, force: bool) -> None:
    """Writes several files after checking all paths; raises FileWriteError as `save` does."""
    for path, _ in texts:
        require_place(path, force=force)
    for path, text in texts:
        save(path, text, force=force)


def require_place(path: Path, *, force: bool) -> None:
    """Raises the FileWriteError of `save` before the computation of a file's content."""
    with _in_words(path):
        require_replaceable(path, overwrite=force)


def same_file(one: Path, other: Path) -> bool:
    """Returns whether two paths lead to the same file, through links too, even if it is missing."""
    try:
        return one.resolve() == other.resolve() or one.samefile(other)
    except (OSError, RuntimeError):  # a missing file, or circular links
        return False


@contextlib.contextmanager
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise FileWriteError(f"{path} already exists. Use --force to replace it.") from None
    except FileNotFoundError:
        raise NoPlaceError(f"{path} cannot be written: its folder does not exist. Create it.") from None
    except NotPlainError:
        if path.is_dir():
            raise NoPlaceError(f"{path} is a folder. Name a file in it.") from None
        message = f"{path} is not a plain file (but a device, pipe or socket)"
        raise NoPlaceError(f"{message}. Name a file, or leave the option out to print.") from None
    except OSError as error:
        raise FileWriteError(f"{path} cannot be written: {error.strerror or error}.") from None
