"""The user's recent models, latest first, in the user's database."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from app.models.model_choice import BUNDLED, ModelChoice
from app.studio.database import UserDatabase, put_first
from engine.base.choices import DEVICES, QUANTIZATIONS, RANDOM, WEIGHTS
from engine.base.errors import PromptCacheError
from engine.checkpoint.checkpoint import local_folder
from engine.checkpoint.model_catalogue import CATALOGUE, here

KEPT = 12


class RecentModels:
    """Folders and ids of recent models.

    Args:
        database: the user's database.
    """

    def __init__(self, database: UserDatabase) -> None:
        self._database = database

    def kept(self) -> tuple[ModelChoice, ...]:
        """Returns the models, latest first, without those of the catalogue; none if they cannot be read."""
        try:
            with self._database.reading() as db:
                rows = list(db.table("recent_models").rows_where(order_by="rowid desc"))
        except PromptCacheError:
            return ()
        choices = (_read(json.loads(row["choice"])) for row in rows)
        return tuple(choice for choice in choices if choice is not None and not _is_of_catalogue(choice))

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
        row = {"name": added.name, "choice": json.dumps(asdict(added))}
        self._database.change_or_log(lambda db: put_first(db.table("recent_models"), row, KEPT))

    def remove(self, name: str) -> None:
        """Removes a model."""
        self._database.change_or_log(lambda db: db.table("recent_models").delete_where("name = ?", [name]))


def _is_of_catalogue(choice: ModelChoice) -> bool:
    """Whether the studio offers this model under its own name."""
    files = [file.parent.resolve() / file.name for name in CATALOGUE if (file := here(name)) is not None]
    known = choice.name in CATALOGUE or Path(choice.name) in files
    return known and choice == ModelChoice(choice.name)


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
