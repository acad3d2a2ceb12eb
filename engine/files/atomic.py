"""A file that is written whole or not at all: the one way in which anything here puts a file in its place."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from engine.files.directory import PRIVATE_FILE, Directory, set_mode

_NEW = os.O_CREAT | os.O_EXCL


@contextmanager
def writing(
    folder: Directory | Path, name: str, *, mode: int | None = PRIVATE_FILE, replace: bool = True
) -> Iterator[BinaryIO]:
    """Gives an open file that gets its name when all of it is on the disk; else nothing of it stays.

    It is written beside its place under a temporary name, flushed to the disk, renamed, and its folder is
    flushed, where the platform can. So at any instant the name stands for the old content or for the new.

    Args:
        folder: the folder it comes into.
        name: the file's name, without any path.
        mode: the file's permissions; None for those of any new file.
        replace: whether what has the name already goes.

    Raises:
        FileExistsError: the name is taken, and is not to be replaced.
        OSError: as the system reports it; what was there stays, unless only the last flush has failed.
    """
    temporary = f".{uuid.uuid4().hex}.tmp"
    with _opened(folder) as place:
        descriptor = place.open(temporary, os.O_RDWR | _NEW, PRIVATE_FILE if mode is not None else 0o666)
        try:
            with os.fdopen(descriptor, "w+b") as file:
                yield file
                file.flush()
                os.fsync(descriptor)
                if mode is not None:
                    set_mode(descriptor, mode)
            if replace:
                place.move(temporary, place, name)
            else:
                _name_new(place, temporary, name)
            place.sync()
        except BaseException:
            with contextlib.suppress(OSError):
                place.unlink(temporary)
            raise


def _name_new(place: Directory, old: str, new: str) -> None:
    """Gives a file a name that is free: a link, unlike a renaming, fails where one has come to be."""
    try:
        place.link(old, new)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: the name is taken first
        os.close(place.open(new, os.O_WRONLY | _NEW))
        place.move(old, place, new)
    else:
        place.unlink(old)


@contextmanager
def _opened(folder: Directory | Path) -> Iterator[Directory]:
    if isinstance(folder, Directory):
        yield folder
        return
    with contextlib.closing(Directory.at(folder)) as place:
        yield place
