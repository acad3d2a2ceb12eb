"""Removes file paths of the server from messages to clients."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

log = logging.getLogger(__name__)

PLACE = "'…'"  # replaces a path
_PATH = re.compile(
    r"""(?P<quote>['"])(?:/|~|[A-Za-z]:[\\/]|\\\\)(?:\\.|(?!(?P=quote)).)*(?P=quote)""", re.DOTALL
)


def without_paths(sentence: str) -> str:
    """Returns a message with each absolute path replaced by `PLACE`."""
    return _PATH.sub(PLACE, sentence)


def for_clients(sentences: Iterable[str]) -> list[str]:
    """Returns messages without paths, and logs the originals of changed ones."""
    cleaned = []
    for sentence in sentences:
        without = without_paths(sentence)
        if without != sentence:
            log.warning("%s", sentence)
        cleaned.append(without)
    return cleaned
