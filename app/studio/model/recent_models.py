"""The user's recent models, latest first, in one file of the data folder."""

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
LARGEST = 256 << 10  # maximum bytes of the file
_FORMAT = 1


class RecentModels:
    """Folders and ids of recent models. A damaged file counts as empty.

    Args:
        folder: the file's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._name = folder, "models.json"
        self._lock = threading.Lock()

    def kept(self) -> tuple[ModelChoice, ...]:
        """Returns the models, latest first."""
        try:
            with (self._folder / self._name).open("rb") as file:
                content: Any = json.loads(file.read(LARGEST))
            rows = content["models"] if content["format"] == _FORMAT else []
            return tuple(choice for row in rows if (choice := _read(row)) is not None)[:KEPT]
        except (OSError, ValueError, LookupError, TypeError, RecursionError):
            return ()

    def add(self, choice: ModelChoice) -> None:
        """Puts a model first, unless the studio always offers it."""
        if choice.name == BUNDLED or choice.name.startswith(RANDOM):
            return
        folder = local_folder(choice.name)
        if folder is not None and folder.is_file():  # the hub's cache links to files without suffix
            folder = folder.parent.resolve() / folder.name
        added = (
            choice
            if folder is None
            else replace(choice, name=str(folder.resolve() if folder.is_dir() else folder))
        )
        with self._lock:
            self._write([added, *(recent for recent in self.kept() if recent.name != added.name)])

    def remove(self, name: str) -> None:
        """Removes a model."""
        with self._lock:
            self._write([recent for recent in self.kept() if recent.name != name])

    def _write(self, choices: list[ModelChoice]) -> None:
        content = {"format": _FORMAT, "models": [asdict(choice) for choice in choices[:KEPT]]}
        try:
            with atomic.writing(self._folder, self._name) as file:
                file.write(json.dumps(content, ensure_ascii=True).encode())
        except OSError as error:  # the model works without it
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
