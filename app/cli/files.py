"""Writing what a command made, without losing what is there."""

from __future__ import annotations

from pathlib import Path

from app.atomic import write_text
from engine.errors import StudioError


class FileWriteError(StudioError):
    """A file cannot be written, or is there already."""


def save(path: Path, text: str, *, force: bool) -> None:
    """Write a file whole.

    Args:
        path: The file.
        text: Its content.
        force: Replace a file that is there.

    Raises:
        FileWriteError: It is there already, or cannot be written; nothing is changed then.
    """
    if path.is_dir():
        raise FileWriteError(f"{path} is a folder. Name a file in it.")
    try:
        write_text(path, text, overwrite=force)
    except FileExistsError:
        raise FileWriteError(f"{path} is there already. Give --force to replace it.") from None
    except FileNotFoundError:
        raise FileWriteError(f"{path} cannot be written: its folder does not exist. Create it.") from None
    except OSError as error:
        raise FileWriteError(f"{path} cannot be written: {error.strerror or error}.") from None
