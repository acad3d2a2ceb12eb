"""Where this user's files are kept, unless a command names another place."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

NAME = "prompt-cache-studio"


def user_cache() -> Path:
    """Returns the folder of what can be made again: segments, and what is remembered of models."""
    return Path(platformdirs.user_cache_dir(NAME))


def user_data() -> Path:
    """Returns the folder of what cannot: drafts."""
    return Path(platformdirs.user_data_dir(NAME))


def broken_link(path: Path) -> str:
    """Says which link of a path leads nowhere, as to a disk that is not connected; "" for none."""
    for one in (path, *path.parents):
        if one.is_symlink() and not one.exists():
            return f"{str(one)!r} is a link to {str(one.readlink())!r}, which does not exist"
    return ""


def from_home(path: str | Path) -> Path:
    """Returns a path with the home folder in place of a `~` at its beginning.

    A shell leaves it in `--option=~/folder`, in quotes, and in variables of services and containers. The
    name of a user who does not exist stays as it is.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111 (the method of Path raises where there is no such user)
