"""Writes a file as a whole or not at all. All files of this project are written this way."""

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
    """Yields an open file that gets its name once it is complete on the disk; an error leaves nothing.

    The file is written under a temporary name in the same folder, flushed to the disk and renamed. Then the
    folder is flushed, if the platform supports it. The name always refers to the old or the new content.

    Args:
        folder: the target folder.
        name: the file's name, without any path.
        mode: the file's permissions; None for the default.
        replace: whether to replace an existing file.

    Raises:
        FileExistsError: the name exists and must not be replaced.
        OSError: from the system; the old content stays, unless only the last flush has failed.
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
    """Gives a file a free name: unlike renaming, a link fails if the name exists."""
    try:
        place.link(old, new)
    except FileExistsError:
        raise
    except OSError:  # a file system without links: reserve the name first
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
