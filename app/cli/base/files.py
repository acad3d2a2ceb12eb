"""Writing what a command made, without losing what is there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from app.base.safe_write import require_replaceable, write_text
from engine.base.errors import PathError, PromptCacheError
from engine.files.directory import NotPlainError


class FileWriteError(PromptCacheError):
    """A file cannot be written, or is there already."""


class NoPlaceError(FileWriteError, PathError):
    """No file can be written where a path leads."""


def save(path: Path, text: str, *, force: bool) -> None:
    """Writes a file whole.

    Args:
        path: the file.
        text: its content.
        force: replace a file that is there.

    Raises:
        FileWriteError: it is there already, or cannot be written; nothing is changed then.
    """
    with _in_words(path):
        write_text(path, text, overwrite=force)


def save_all(texts: Sequence[tuple[Path, str]], *, force: bool) -> None:
    """Writes several files; each place is looked at before the first is written.

    Args:
        texts: the files with their contents.
        force: replace files that are there.

    Raises:
        FileWriteError: one of them is there already, or cannot be written.
    """
    for path, _ in texts:
        require_place(path, force=force)
    for path, text in texts:
        save(path, text, force=force)


def require_place(path: Path, *, force: bool) -> None:
    """Refuses a place that `save` would refuse, before anything is computed for it.

    Raises:
        FileWriteError: as for `save`.
    """
    with _in_words(path):
        require_replaceable(path, overwrite=force)


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, over links too, whether it is there or not."""
    try:
        return one.resolve() == other.resolve() or one.samefile(other)
    except (OSError, RuntimeError):  # one of them is not there, or its links go round in a circle
        return False


@contextlib.contextmanager
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise FileWriteError(f"{path} is there already. Give --force to replace it.") from None
    except FileNotFoundError:
        raise NoPlaceError(f"{path} cannot be written: its folder does not exist. Create it.") from None
    except NotPlainError:
        if path.is_dir():
            raise NoPlaceError(f"{path} is a folder. Name a file in it.") from None
        message = f"{path} is no plain file (a device, a pipe or a socket), so it is not written"
        raise NoPlaceError(f"{message}. Name a file, or leave the option out to print.") from None
    except OSError as error:
        raise FileWriteError(f"{path} cannot be written: {error.strerror or error}.") from None
