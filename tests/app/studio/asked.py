"""A studio without a server, asked as its page asks."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, cast

from app.studio.database import UserDatabase
from app.studio.documents.folder import Folder
from app.studio.documents.samples import Library
from app.studio.model.engine_loader import Opening
from app.studio.pages import PAGES
from app.studio.web.endpoints import by_name
from app.studio.workspace.all_pages import SHARED
from app.studio.workspace.page_state import Parts
from engine import Engine


class Asked:
    """A studio over one data folder."""

    def __init__(self, folder: Path, documents: Path | None = None, engine: Engine | None = None) -> None:
        library = Library(Folder(documents))
        self.parts = Parts.of(Opening(engine, patience=0), UserDatabase(folder / "data"), library)
        self.endpoints = by_name(one(self.parts) for one in (*SHARED, *PAGES))

    def ask(self, question: str, request: Any = None) -> Any:
        """The answer to a question of the page."""
        body = self.endpoints[question].function()({} if request is None else request).body
        return json.loads(bytes(body))

    def ended(self, key: str) -> dict[str, Any]:
        """The last state of a piece of long work."""
        until = time.monotonic() + 120
        while not (state := self.ask("job_state", {"key": key}))["over"]:
            assert time.monotonic() < until
            time.sleep(0.01)
        return cast(dict[str, Any], state)
