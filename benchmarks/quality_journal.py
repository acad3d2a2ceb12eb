"""The journal of `pml bench quality`: every sample as soon as it is measured, to resume from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.base.errors import PromptCacheError

NAME = "samples.jsonl"
VERSION = 1


class Journal:
    """Samples by file, task and way to answer; with a folder they are appended to a file in it at once.

    Args:
        folder: takes the file `samples.jsonl`, and is made where it is missing; None keeps samples in memory.
        setup: what all samples have in common, by name.

    Raises:
        PromptCacheError: the folder holds samples of another setup, or no journal can be read or written.
    """

    def __init__(self, folder: Path | None, setup: dict[str, Any]) -> None:
        self._entries: dict[tuple[str, int], dict[str, Any]] = {}
        self._files: dict[str, dict[str, Any]] = {}
        self._path = None if folder is None else folder / NAME
        if self._path is None:
            return
        setup = {"version": VERSION, **setup}
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lines = _whole_lines(self._path)
        except OSError as error:
            raise PromptCacheError(
                f"{self._path} cannot be used: {error.strerror}. Name another --out."
            ) from error
        for number, line in enumerate(lines, 1):
            try:
                self._take(json.loads(line), setup)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                message = f"{self._path}, line {number} is no sample. Name another folder with --out."
                raise PromptCacheError(message) from error
        if not lines:
            self._append({"setup": setup})

    def require_file(self, name: str, identity: dict[str, Any]) -> None:
        """Notes which file samples are of.

        Raises:
            PromptCacheError: there are samples of another version of it.
        """
        held = self._files.get(name)
        if held is None:
            self._files[name] = identity
            self._append({"file": name, "identity": identity})
        elif held != identity:
            raise PromptCacheError(
                f"{self._path} holds samples of another version of {name}, or by another metric. "
                "Name another folder with --out."
            )

    def entry(self, file: str, task: int) -> dict[str, Any]:
        """Returns `samples` by way and `left_out` (why, or None) of a task, by its place in its file."""
        return self._entries.setdefault((file, task), {"samples": {}, "left_out": None})

    def add(self, file: str, task: int, way: str, sample: dict[str, Any]) -> None:
        """Keeps a sample."""
        self._keep({"file": file, "task": task, "way": way, "sample": sample})

    def leave_out(self, file: str, task: int, why: str) -> None:
        """Keeps why a task has no samples."""
        self._keep({"file": file, "task": task, "left_out": why})

    def _keep(self, line: dict[str, Any]) -> None:
        self._note(line)
        self._append(line)

    def _note(self, line: dict[str, Any]) -> None:
        entry = self.entry(line["file"], line["task"])
        if "left_out" in line:
            entry["left_out"] = line["left_out"]
        else:
            entry["samples"][line["way"]] = line["sample"]

    def _take(self, line: dict[str, Any], setup: dict[str, Any]) -> None:
        if "setup" in line:
            held = line["setup"]
            apart = [name for name in setup if held.get(name) != setup[name]]
            if apart:
                was = ", ".join(f"{name} {held.get(name)}" for name in apart)
                now = ", ".join(f"{name} {setup[name]}" for name in apart)
                raise PromptCacheError(
                    f"{self._path} holds samples of another setup: {was}; now {now}. "
                    "Name another folder with --out."
                )
        elif "identity" in line:
            self._files[line["file"]] = line["identity"]
        else:
            self._note(line)

    def _append(self, line: dict[str, Any]) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise PromptCacheError(f"{self._path} cannot be written: {error.strerror}.") from error


def _whole_lines(path: Path) -> list[str]:
    """The lines of the journal; one that was cut off in the middle is taken away."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return whole.decode("utf-8", errors="replace").split("\n")[:-1]
