"""Sentences of the engine as clients are told them: without the places of files on the server's machine."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

log = logging.getLogger(__name__)

PLACE = "'…'"
"""What clients are told in place of a path."""
_PATH = re.compile(
    r"""(?P<quote>['"])(?:/|~|[A-Za-z]:[\\/]|\\\\)(?:\\.|(?!(?P=quote)).)*(?P=quote)""", re.DOTALL
)


def without_paths(sentence: str) -> str:
    """Returns a sentence, in which nothing is left of absolute paths but their quotes."""
    return _PATH.sub(PLACE, sentence)


def for_clients(sentences: Iterable[str]) -> list[str]:
    """Returns sentences without paths; the log keeps those whole that had some."""
    found = []
    for sentence in sentences:
        told = without_paths(sentence)
        if told != sentence:
            log.warning("%s", sentence)
        found.append(told)
    return found
