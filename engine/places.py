"""Where this user's files are kept, unless a command names another place."""

from __future__ import annotations

from pathlib import Path

import platformdirs

NAME = "prompt-cache-studio"


def user_cache() -> Path:
    """Returns the folder of what can be made again: segments, and what is remembered of models."""
    return Path(platformdirs.user_cache_dir(NAME))


def user_data() -> Path:
    """Returns the folder of what cannot: drafts."""
    return Path(platformdirs.user_data_dir(NAME))
