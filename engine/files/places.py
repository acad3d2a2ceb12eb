"""The default places of the user's files."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

NAME = "prompt-cache-studio"


def user_cache() -> Path:
    """Returns the folder of reproducible data: segments and model measurements."""
    return Path(platformdirs.user_cache_dir(NAME))


def user_data() -> Path:
    """Returns the folder of irreplaceable data: drafts."""
    return Path(platformdirs.user_data_dir(NAME))


def broken_link(path: Path) -> str:
    """Describes a broken link in a path, as to a disconnected disk; "" for none."""
    for place in (path, *path.parents):
        if place.is_symlink() and not place.exists():
            return f"{str(place)!r} is a link to {str(place.readlink())!r}, which does not exist"
    return ""


def from_home(path: str | Path) -> Path:
    """Returns a path with the home folder in place of a leading `~`.

    A shell leaves `~` in `--option=~/folder`, in quotes, and in variables of services and containers. The
    name of an unknown user stays unchanged.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111 (Path's method raises for an unknown user)
