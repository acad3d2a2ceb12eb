"""Ratings of answers: stored, exported, imported, and written into files of other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlite_utils import Database

from app.studio.database import FILE, UserDatabase
from app.studio.database.tables import add_ratings
from app.studio.history import RunStore
from app.studio.history.ratings import read_ratings, unrated
from app.studio.history.sharing import from_text, to_html, to_json
from engine.base.errors import PromptCacheError
from tests.app.studio.asked import Asked
from tests.app.studio.history.test_kept_runs import record

GOOD = {"cached": {"thumb": "up", "note": "Short."}, "uncached": {"thumb": "", "note": ""}}


def test_a_rating_is_stored_for_its_side_and_survives_later_changes(tmp_path: Path) -> None:
    store, kept = RunStore(UserDatabase(tmp_path)), record()
    store.keep(kept)
    assert store.summaries()[0]["ratings"] == unrated()
    store.rate(kept.id, "cached", thumb="up")
    store.rate(kept.id, "cached", note="Short.")
    store.label(kept.id, name="first")
    again = RunStore(UserDatabase(tmp_path))
    assert again.find([kept.id])[0].ratings == again.summaries()[0]["ratings"] == GOOD
    store.rate(kept.id, "uncached", thumb="down")
    store.rate(kept.id, "cached", thumb="", note="")
    ratings = store.summaries()[0]["ratings"]
    assert (ratings["cached"]["thumb"], ratings["uncached"]["thumb"]) == ("", "down")
    imported = record(9, ratings=read_ratings(GOOD), linked=kept.id)
    store.import_runs([imported])
    assert [run["linked"] for run in store.summaries() if run["ratings"] == GOOD] == [kept.id]
    with pytest.raises(PromptCacheError, match="no longer exists"):
        store.rate("gone", "cached", thumb="up")
    with pytest.raises(PromptCacheError, match="at most 4000 characters"):
        store.rate(kept.id, "cached", note="x" * 4001)


def test_a_rated_run_makes_room_last(tmp_path: Path) -> None:
    store = RunStore(UserDatabase(tmp_path), most_runs=2)
    first = record(1)
    store.keep(first)
    store.rate(first.id, "uncached", thumb="down")
    for number in (2, 3):
        store.keep(record(number))
    assert len(store.summaries()) == 2
    assert store.find([first.id])


@pytest.mark.parametrize("write", [to_json, to_html])
def test_a_shared_run_has_its_ratings_and_its_link(write: Any) -> None:
    ours = record(ratings=read_ratings(GOOD), linked="0" * 32)
    (read,) = from_text(write([ours]), "shared")
    assert (read.ratings, read.linked) == (GOOD, "0" * 32)
    if write is to_html:
        assert "rated good" in write([ours])
        assert "Note: Short." in write([ours])


@pytest.mark.parametrize(
    "sent", [None, [], {"cached": 1}, {"cached": {"thumb": "sideways", "note": 2}}, {"x": {}}]
)
def test_ratings_of_any_file_have_every_field(sent: Any) -> None:
    assert read_ratings(sent) == unrated()


def test_a_database_of_the_first_version_gets_ratings(tmp_path: Path) -> None:
    database, kept = UserDatabase(tmp_path), record()
    RunStore(database).keep(kept)
    database.close()
    with Database(tmp_path / FILE).conn as connection:
        for column in ("ratings", "linked"):
            connection.execute(f"alter table runs drop column {column}")
        connection.execute("delete from _sqlite_migrations where name = ?", [add_ratings.__name__])
    store = RunStore(UserDatabase(tmp_path))
    store.rate(kept.id, "cached", thumb="up")
    assert store.summaries()[0]["ratings"]["cached"]["thumb"] == "up"


def test_the_page_rates_and_exports_to_other_programs(tmp_path: Path) -> None:
    asked, kept = Asked(tmp_path), record()
    asked.parts.kept.keep(kept)
    rated = asked.ask("rate_answer", {"id": kept.id, "side": "cached", "thumb": "up", "note": "Short."})
    assert rated["run"]["ratings"] == GOOD
    assert asked.ask("rate_answer", {"id": kept.id, "side": "cached"}) == rated
    assert "error" in asked.ask("rate_answer", {"id": kept.id, "side": "left", "thumb": "up"})
    shared = {
        form: asked.ask("share_runs", {"ids": [kept.id], "form": form, "base_url": "http://127.0.0.1:9/v1"})
        for form in ("promptfoo", "promptfoo results", "langfuse dataset", "langfuse traces")
    }
    assert shared["promptfoo"]["filename"] == "promptfooconfig.json"
    tests = json.loads(shared["promptfoo"]["text"])["tests"]
    assert [("assert" in test) for test in tests] == [True, False]
    assert json.loads(shared["promptfoo results"]["text"])["results"]["stats"]["successes"] == 2
    items = [json.loads(line) for line in shared["langfuse dataset"]["text"].splitlines()]
    assert [item["expectedOutput"] for item in items] == ["an answer"]
    events = json.loads(shared["langfuse traces"]["text"])["batch"]
    assert events[2]["body"]["comment"] == "Short."
    assert {form: one["media_type"] for form, one in shared.items()}[
        "langfuse dataset"
    ] == "application/jsonl"
