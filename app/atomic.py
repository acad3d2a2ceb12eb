"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path


def write_text(path: Path, text: str, *, overwrite: bool = True) -> None:
    """Write a file so that at any instant either the old or the new text is there, whole.

    A link is followed, and the permissions of a file that is there already stay as they are.

    Args:
        path: The file.
        text: Its new content.
        overwrite: Whether a file that is there may be replaced.

    Raises:
        FileExistsError: There is a file already, and it may not be replaced.
        OSError: as the system reports it; the old file is untouched.
    """
    target = path.resolve()
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".new")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        else:
            temporary.chmod(0o666 & ~_umask())
        if overwrite:
            temporary.replace(target)
        else:
            _place(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _place(temporary: Path, target: Path) -> None:
    """Give a file its name if no other has it: a link, unlike a renaming, fails where one has come to be."""
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists():
            raise FileExistsError(target) from None
        temporary.replace(target)
    else:
        temporary.unlink()


def _umask() -> int:
    """What new files of this process may not have; asking for it means setting it for an instant."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
