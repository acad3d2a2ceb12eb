"""The models that this user had before, latest first, in one file of the data folder."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from app.models.model_choice import BUNDLED, ModelChoice
from engine.base.choices import DEVICES, QUANTIZATIONS, RANDOM, WEIGHTS
from engine.checkpoint.checkpoint import local_folder
from engine.files import atomic

logger = logging.getLogger(__name__)

KEPT = 12
LARGEST = 256 << 10  # bytes of the file
_FORMAT = 1


class RecentModels:
    """Folders and ids that were loaded before. A damaged file is an empty list.

    Args:
        folder: where the file is.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._name = folder, "models.json"
        self._lock = threading.Lock()

    def kept(self) -> tuple[ModelChoice, ...]:
        """Returns them, latest first."""
        try:
            with (self._folder / self._name).open("rb") as file:
                held: Any = json.loads(file.read(LARGEST))
            rows = held["models"] if held["format"] == _FORMAT else []
            return tuple(one for row in rows if (one := _read(row)) is not None)[:KEPT]
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return ()

    def add(self, choice: ModelChoice) -> None:
        """Puts one first; those that are always offered are left out."""
        if choice.name == BUNDLED or choice.name.startswith(RANDOM):
            return
        folder = local_folder(choice.name)
        if folder is not None and folder.is_file():  # the hub's cache has links to files without a name
            folder = folder.parent.resolve() / folder.name
        found = (
            choice
            if folder is None
            else replace(choice, name=str(folder.resolve() if folder.is_dir() else folder))
        )
        with self._lock:
            self._write([found, *(one for one in self.kept() if one.name != found.name)])

    def remove(self, name: str) -> None:
        """Takes one away."""
        with self._lock:
            self._write([one for one in self.kept() if one.name != name])

    def _write(self, choices: list[ModelChoice]) -> None:
        kept = {"format": _FORMAT, "models": [asdict(one) for one in choices[:KEPT]]}
        try:
            with atomic.writing(self._folder, self._name) as file:
                file.write(json.dumps(kept, ensure_ascii=True).encode())
        except OSError as error:  # the model is there all the same
            logger.warning("the model was not remembered in %s: %s", self._folder, error)


def _read(row: Any) -> ModelChoice | None:
    if not isinstance(row, dict) or set(row) != set(asdict(ModelChoice())):
        return None
    choice = ModelChoice(**row)
    known = (
        isinstance(row["name"], str)
        and choice.device in DEVICES
        and choice.dtype in ("auto", "fp32", "bf16", "fp16")
        and choice.weights in WEIGHTS
        and choice.quantize in QUANTIZATIONS
    )
    return choice if known else None
