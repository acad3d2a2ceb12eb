"""The page is there before the model: what needs none is answered, the rest waits or is refused in words."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from app.studio.database import UserDatabase
from app.studio.documents.folder import Folder
from app.studio.documents.samples import Library
from app.studio.model.engine_loader import Opening
from app.studio.pages import PAGES
from app.studio.web.endpoints import by_name
from app.studio.workspace.all_pages import SHARED
from app.studio.workspace.page_state import Parts
from engine import Engine
from engine.base.errors import PromptCacheError

SCHEMA = '<schema name="s"><module name="m">Text.</module></schema>'
COMING = {"model": None, "number": 0, "switching": ""}
MEASURE = {"schema": SCHEMA, "prompt": '<prompt schema="s"><m/>?</prompt>', "settings": {}}


def ask(opening: Opening, folder: Path, question: str, request: Any) -> Any:
    parts = Parts.of(opening, UserDatabase(folder), Library(Folder(None)))
    endpoints = by_name(one(parts) for one in (*SHARED, *PAGES))
    return json.loads(bytes(endpoints[question].function()(request).body))


def test_documents_are_opened_and_checked_without_a_model(tmp_path: Path) -> None:
    opening = Opening(patience=0)
    start = ask(opening, tmp_path, "open_workspace", {})
    assert "schema" in start["workspace"]
    assert "model" not in start
    checked = ask(opening, tmp_path, "check", {name: MEASURE[name] for name in ("schema", "prompt")})
    assert checked["schema"]["ok"]


def test_the_page_is_told_how_far_the_model_is(tmp_path: Path) -> None:
    opening = Opening(patience=0)
    assert ask(opening, tmp_path, "model", {}) == {**COMING, "loading": "loading"}
    opening.progress(1, 4, "reading model.safetensors")
    assert ask(opening, tmp_path, "model", {}) == {**COMING, "loading": "reading the model's files, 25 %"}
    with Engine.open("demo", cache_dir=tmp_path / "cache") as engine:
        opening.finish(engine)
        told = ask(opening, tmp_path, "model", {})
    assert told["loading"] == ""
    assert told["model"]["name"] == "demo"


def test_what_needs_the_model_is_refused_in_words_or_waits(tmp_path: Path) -> None:
    refused = ask(Opening(patience=0), tmp_path, "measure", MEASURE)
    assert refused == {"error": "The model is still loading. Try again in a moment."}
    opening = Opening(patience=60)
    with Engine.open("demo", cache_dir=tmp_path / "cache") as engine:
        timer = threading.Timer(0.05, opening.finish, [engine])
        timer.start()
        assert ask(opening, tmp_path, "measure", MEASURE)["sizes"]["m"]["tokens"] > 0
        timer.join()


def test_an_engine_that_is_there_is_given_at_once() -> None:
    with pytest.raises(PromptCacheError, match="still loading"):
        _ = Opening(patience=0).engine
