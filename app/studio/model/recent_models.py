"""The user's recent models, latest first, in the user's database."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from app.models.model_choice import BUNDLED, ModelChoice
from app.studio.database import UserDatabase, put_first
from engine.base.choices import DEVICES, QUANTIZATIONS, RANDOM, WEIGHTS
from engine.base.errors import PromptCacheError
from engine.checkpoint.checkpoint import local_folder

KEPT = 12


class RecentModels:
    """Folders and ids of recent models.

    Args:
        database: the user's database.
    """

    def __init__(self, database: UserDatabase) -> None:
        self._database = database

    def kept(self) -> tuple[ModelChoice, ...]:
        """Returns the models, latest first; none if they cannot be read."""
        try:
            with self._database.reading() as db:
                rows = list(db.table("recent_models").rows_where(order_by="rowid desc"))
        except PromptCacheError:
            return ()
        return tuple(choice for row in rows if (choice := _read(json.loads(row["choice"]))) is not None)

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
