"""Matches paths of a folder against patterns, as in `.gitignore`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from pathspec import GitIgnoreSpec

from engine.exchange.base.errors import ExchangeError
from engine.exchange.base.notes import Notes
from engine.files.safe_open import open_beneath
from engine.files.text_files import TextFileError, decode, read_stream

RULES: Final = ".gitignore"
_MOST_BYTES: Final = 1 << 18
_MOST_RULES: Final = 1000
_MOST_STARS: Final = 3  # each more star multiplies the cost of a hostile name
_MOST_FOLDERS_ABOVE: Final = 64


def pattern_fault(pattern: str) -> str | None:
    """Returns why a pattern is unusable, as a predicate for messages; None if it is valid."""
    parts = pattern.split("/")
    if parts.count("**") > _MOST_STARS or any(
        part.count("*") > _MOST_STARS for part in parts if part != "**"
    ):
        return f"has more than {_MOST_STARS} stars, which is too slow to match; use several patterns"
    try:
        GitIgnoreSpec.from_lines([pattern])
    except ValueError as error:
        return f"is not a pattern ({str(error).splitlines()[0]}); write one like *.md, docs/** or drafts/"
    return None


def compiled(patterns: Iterable[str], option: str) -> GitIgnoreSpec | None:
    """Compiles a user's patterns, lines as in `.gitignore`; returns None without patterns.

    Raises:
        ExchangeError: a pattern is invalid; the message names `option` as its source.
    """
    lines = []
    for pattern in patterns:
        fault = pattern_fault(pattern)
        if pattern.startswith("!"):
            fault = "begins with !; use --exclude or --include instead"
        if fault is not None or not pattern.strip():
            raise ExchangeError(f"{option} {pattern!r} {fault or 'is empty; write one like *.md'}")
        lines.append(f"\\{pattern}" if pattern.startswith("#") else pattern)
    return GitIgnoreSpec.from_lines(lines) if lines else None


class Ignored:
    """The `.gitignore` rules in a resolved folder and in its parents, up to the repository's root.

    The deepest rule decides, and within one file the last. Rules of parents that exclude the whole folder are
    ignored, because the user named the folder.
    """

    def __init__(self, folder: Path, notes: Notes) -> None:
        self._folder, self._notes = folder, notes
        self._inside: dict[str, GitIgnoreSpec] = {}
        self._above = list(self._round())

    def enter(self, inner: str) -> None:
        """Reads the rules of an inner folder; its path is empty or ends in /."""
        path = f"{inner}{RULES}"
        try:
            spec = self._read(self._folder, path)
        except (OSError, TextFileError):
            self._notes.count("file", "of ignore rules not read", path)
            return
        if spec is not None:
            self._inside[inner] = spec

    def __contains__(self, path: str) -> bool:
        """Returns whether the rules exclude a path; that of a folder ends in /."""
        end = len(path) - 1 if path.endswith("/") else len(path)
        while True:
            end = path.rfind("/", 0, end)
            above = path[: end + 1]
            spec = self._inside.get(above)
            if spec is not None and (verdict := spec.check_file(path[len(above) :]).include) is not None:
                return verdict
            if end < 0:
                break
        for prefix, spec in self._above:
            if (verdict := spec.check_file(prefix + path).include) is not None:
                return verdict
        return False

    def _round(self) -> Iterable[tuple[str, GitIgnoreSpec]]:
        """The rules of parent folders, nearest first, each with the relative path."""
        above: list[tuple[str, GitIgnoreSpec]] = []
        folder, prefix = self._folder, ""
        for _ in range(_MOST_FOLDERS_ABOVE):
            if os.path.lexists(folder / ".git"):
                return above
            if folder == folder.parent:
                break
            prefix = f"{folder.name}/{prefix}"
            folder = folder.parent
            try:
                spec = self._read(folder, RULES)
            except (OSError, TextFileError):
                continue
            if spec is not None and not _leaves_out(spec.check_file, prefix):
                above.append((prefix, spec))
        return ()

    def _read(self, base: Path, path: str) -> GitIgnoreSpec | None:
        try:
            descriptor = open_beneath(base, path)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            lines = decode(read_stream(file, path, limit=_MOST_BYTES), path).split("\n")
        ended = [line.removesuffix("\r") for line in lines]  # git's line ends
        rules = [line for line in ended if line.strip() and not line.startswith("#")]
        usable = [line for line in rules[:_MOST_RULES] if pattern_fault(line) is None]
        if len(usable) < len(rules):
            self._notes.count("file", "with ignore rules that are left out", path)
        return GitIgnoreSpec.from_lines(usable) if usable else None


def _leaves_out(check: Callable[[str], object], prefix: str) -> bool:
    """Whether rules exclude a folder or one of its parents."""
    parts = prefix.rstrip("/").split("/")
    paths = ("/".join(parts[: place + 1]) + "/" for place in range(len(parts)))
    return any(getattr(check(path), "include", None) for path in paths)
