"""Two commits of a checkout side by side, as worktrees of git in a folder that goes away."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.base.signals import as_interrupts
from engine.base.errors import PromptCacheError

PROJECT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Commit:
    """A commit as it was asked for.

    Attributes:
        name: what was written.
        digest: the whole digest of it.
    """

    name: str
    digest: str


def commit(root: Path, name: str) -> Commit:
    """Finds a commit.

    Args:
        root: the top folder of a checkout.
        name: anything that git takes for one.

    Raises:
        PromptCacheError: the folder is no checkout, or has no such commit.
    """
    top = _git(root, "rev-parse", "--show-toplevel")
    if top.returncode or Path(top.stdout.strip()).resolve() != root.resolve():
        raise PromptCacheError(
            f"commits are compared in a checkout, and {str(root)!r} is none (git: "
            f"{_last_line(top.stderr) or 'it belongs to another'}). Clone the project, and run this there."
        )
    found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if found.returncode:
        raise PromptCacheError(f"this checkout has no commit {name!r}; `git log` lists what it has.")
    return Commit(name, found.stdout.strip())


@contextlib.contextmanager
def checked_out(root: Path, commits: dict[str, Commit]) -> Iterator[dict[str, Path]]:
    """Lays commits out by their keys; nothing of them is left however this ends, short of a kill -9.

    Args:
        root: the top folder of a checkout.
        commits: what to lay out.

    Yields:
        The folder of each, by the same keys.

    Raises:
        PromptCacheError: git cannot lay one out.
    """
    with as_interrupts(), tempfile.TemporaryDirectory(prefix="pml-commits-") as place:
        folders = {key: Path(place).resolve() / key for key in commits}
        try:
            for key, one in commits.items():
                done = _git(root, "worktree", "add", "--detach", str(folders[key]), one.digest)
                if done.returncode:
                    raise PromptCacheError(
                        f"git cannot lay out {one.name!r}: {_last_line(done.stderr)}. See that the disk has "
                        "room, or name another commit."
                    )
            yield folders
        finally:
            for folder in folders.values():
                # twice: a worktree that git was about to make is locked
                _git(root, "worktree", "remove", "--force", "--force", str(folder), alone=True)


def _git(root: Path, *words: str, alone: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs git; alone, so that a Ctrl-C meant for us does not end it."""
    quiet = {**os.environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):  # as a hook of git has them set
        quiet.pop(name, None)
    try:
        return subprocess.run(
            ["git", "-C", str(root), "-c", f"core.hooksPath={os.devnull}", *words],
            capture_output=True,
            text=True,
            errors="replace",
            env=quiet,
            stdin=subprocess.DEVNULL,
            check=False,
            start_new_session=alone,
        )
    except FileNotFoundError as error:
        raise PromptCacheError("git is not installed, and commits are laid out by it.") from error


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1].removeprefix("fatal: ")
