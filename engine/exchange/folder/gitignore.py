"""Which paths of a folder patterns name, as `.gitignore` has them."""

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
_MOST_STARS: Final = 3  # each more multiplies what a hostile name can cost
_MOST_FOLDERS_ABOVE: Final = 64


def pattern_fault(pattern: str) -> str | None:
    """Why a pattern cannot be used, to stand behind it; None where it can."""
    parts = pattern.split("/")
    if parts.count("**") > _MOST_STARS or any(
        part.count("*") > _MOST_STARS for part in parts if part != "**"
    ):
        return f"has more than {_MOST_STARS} stars, which is too slow to look for; use several patterns"
    try:
        GitIgnoreSpec.from_lines([pattern])
    except ValueError as error:
        return f"is no pattern ({str(error).splitlines()[0]}); write one like *.md, docs/** or drafts/"
    return None


def compiled(patterns: Iterable[str], option: str) -> GitIgnoreSpec | None:
    """Patterns that somebody has given; None where there are none.

    Args:
        patterns: each as a line of `.gitignore`.
        option: how the message calls where they come from.

    Raises:
        ExchangeError: one of them is none.
    """
    lines = []
    for pattern in patterns:
        fault = pattern_fault(pattern)
        if pattern.startswith("!"):
            fault = "begins with !; give what to leave out with --exclude, what to take with --include"
        if fault is not None or not pattern.strip():
            raise ExchangeError(f"{option} {pattern!r} {fault or 'is empty; write one like *.md'}")
        lines.append(f"\\{pattern}" if pattern.startswith("#") else pattern)
    return GitIgnoreSpec.from_lines(lines) if lines else None


class Ignored:
    """The rules of the `.gitignore` files in a folder and in those round it, up to the repository's root.

    The rule that stands deepest decides, and in one file the last. Rules round the folder that would leave
    out all of it do not count, as somebody has named the folder.

    Args:
        folder: the folder, resolved.
        notes: told of rules that cannot be used.
    """

    def __init__(self, folder: Path, notes: Notes) -> None:
        self._folder, self._notes = folder, notes
        self._inside: dict[str, GitIgnoreSpec] = {}
        self._above = list(self._round())

    def enter(self, inner: str) -> None:
        """Reads the rules of a folder inside.

        Args:
            inner: its path, empty or ending in /.
        """
        path = f"{inner}{RULES}"
        try:
            spec = self._read(self._folder, path)
        except (OSError, TextFileError):
            self._notes.count("file", "of ignore rules not read", path)
            return
        if spec is not None:
            self._inside[inner] = spec

    def __contains__(self, path: str) -> bool:
        """Whether the rules leave out a path; that of a folder ends in /."""
        end = len(path) - 1 if path.endswith("/") else len(path)
        while True:
            end = path.rfind("/", 0, end)
            above = path[: end + 1]
            spec = self._inside.get(above)
            if spec is not None and (found := spec.check_file(path[len(above) :]).include) is not None:
                return found
            if end < 0:
                break
        for prefix, spec in self._above:
            if (found := spec.check_file(prefix + path).include) is not None:
                return found
        return False

    def _round(self) -> Iterable[tuple[str, GitIgnoreSpec]]:
        """The rules of the folders round this one, the nearest first, each with the path from there."""
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
        ended = [line.removesuffix("\r") for line in lines]  # as git ends lines
        rules = [line for line in ended if line.strip() and not line.startswith("#")]
        usable = [line for line in rules[:_MOST_RULES] if pattern_fault(line) is None]
        if len(usable) < len(rules):
            self._notes.count("file", "with ignore rules that are left out", path)
        return GitIgnoreSpec.from_lines(usable) if usable else None


def _leaves_out(check: Callable[[str], object], prefix: str) -> bool:
    """Whether rules leave out a folder, or one on the way to it."""
    parts = prefix.rstrip("/").split("/")
    paths = ("/".join(parts[: place + 1]) + "/" for place in range(len(parts)))
    return any(getattr(check(path), "include", None) for path in paths)
