"""Kept runs of schemas that take parts from other files, which may say something else by now."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from app.studio.database import FILE, UserDatabase
from app.studio.history import Record, RunStore
from app.studio.history.compare import beside
from app.studio.history.record import contained
from app.studio.history.sharing import from_text, to_html, to_json
from engine.base.errors import PromptCacheError
from engine.pml import parse_schema
from tests.app.studio.asked import Asked
from tests.app.studio.history.test_kept_runs import frame
from tests.app.studio.history.test_kept_runs import record as inline

SCHEMA = '<schema name="i"><module name="a" src="inc.txt"/></schema>'
PROMPT = '<prompt schema="i"><a/>hi</prompt>'
BLUE, GREEN = "The sky is blue.", "The sky is green."
PAGE = {"name": "open", "schema": "<schema/>", "prompt": "<prompt/>"}


def record(folder: Path, says: str, **given: Any) -> Record:
    """A run of the schema while its file says this."""
    folder.mkdir(exist_ok=True)
    (folder / "inc.txt").write_text(says)
    tree = parse_schema(SCHEMA, base=folder).tree
    assert tree is not None
    origin = f"file:{(folder / 'inc.pml').as_posix()}"
    of = {"schema": given.pop("of", "")}
    return Record(SCHEMA, PROMPT, frame(of=of), origin=origin, contained=contained(tree), **given)


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    (tmp_path / "docs").mkdir()
    return Asked(tmp_path, tmp_path / "docs")


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return tmp_path / "docs"


def texts(asked: Asked, opened: Any) -> Any:
    """The digests of a workspace's texts as the page has them."""
    wanted = {name: opened["workspace"][name] for name in ("schema", "prompt", "origin")}
    checked = asked.ask("check", wanted)
    assert checked["schema"]["diagnostics"] == []
    return checked["texts"]


def test_what_the_files_said_is_compared_found_and_kept_once(tmp_path: Path) -> None:
    store, blue = RunStore(UserDatabase(tmp_path / "data")), record(tmp_path, BLUE)
    green = record(tmp_path, GREEN)
    for one in (blue, green, record(tmp_path, GREEN)):
        store.keep(one)
    found = store.find([blue.id, green.id])
    assert [one.contained for one in found] == [blue.contained, green.contained]
    left, right = (one["schema"] for one in beside(found))
    marked = ["".join(text for text, differs in pieces if differs) for pieces in (left, right)]
    assert marked == [" blue.</module>", " green.</module>"]
    assert store.search(["sky", "BLUE"]) == [blue.id]
    assert store.search(["inc.txt", "blue"]) == [blue.id], "the schema as it was written is found as before"
    with sqlite3.connect(tmp_path / "data" / FILE) as file:
        assert file.execute("select count(*) from texts").fetchone() == (5,)  # with the empty text


def test_what_the_files_said_goes_with_the_last_run_that_holds_it(tmp_path: Path) -> None:
    store = RunStore(UserDatabase(tmp_path / "data"))
    ours = [record(tmp_path, "swordfish") for _ in range(2)]
    for one in ours:
        store.keep(one)
    store.delete([ours[0].id])
    assert "swordfish" in store.find([ours[1].id])[0].contained
    store.delete([ours[1].id])
    assert all(b"swordfish" not in path.read_bytes() for path in (tmp_path / "data").iterdir())


def test_what_the_files_said_counts_against_the_bound(tmp_path: Path) -> None:
    store = RunStore(UserDatabase(tmp_path / "data"), most_bytes=400_000)
    for letter in "abcdef":
        store.keep(record(tmp_path, letter * 100_000))
    held = store.held()
    assert 2 <= held["runs"] <= 4
    assert held["bytes"] <= 400_000


@pytest.mark.parametrize("write", [to_json, to_html])
def test_a_shared_run_has_what_the_files_said(tmp_path: Path, write: Any) -> None:
    ours = record(tmp_path, BLUE)
    (found,) = from_text(write([ours]), "x")
    assert (found.schema, found.contained, found.origin) == (SCHEMA, ours.contained, "")


def test_a_shared_page_shows_what_the_files_said(tmp_path: Path) -> None:
    shown, _, _ = to_html([record(tmp_path, BLUE)]).partition("<script")
    assert BLUE in shown
    assert "Schema with the text of its files" in shown
    assert "schema_with_files" not in to_json([inline()])


@pytest.mark.parametrize(
    ("schema", "whole", "kept"), [(SCHEMA, "<schema/>", "<schema/>"), ("<schema/>", "x", "")]
)
def test_an_imported_run_has_another_schema_only_where_its_own_reads_files(
    schema: str, whole: str, kept: str
) -> None:
    run = {"schema": schema, "prompt": PROMPT, "frame": {}, "schema_with_files": whole}
    text = json.dumps({"prompt_cache_studio": "runs", "version": 1, "runs": [run]})
    assert from_text(text, "x")[0].contained == kept
    with pytest.raises(PromptCacheError, match="no schema_with_files that is text"):
        from_text(text.replace(f'"{whole}"}}', "7}"), "x")


def test_a_run_whose_files_say_the_same_opens_as_it_was_written(asked: Asked, docs: Path) -> None:
    ours = record(docs, BLUE)
    asked.parts.kept.keep(ours)
    opened = asked.ask("restore_run", {"id": ours.id, "page": PAGE})
    assert (opened["workspace"]["schema"], opened["workspace"]["origin"]) == (SCHEMA, ours.origin)
    assert "told" not in opened


@pytest.mark.parametrize(("now", "why"), [(GREEN, "have changed since this run."), (None, "unreadable")])
def test_a_run_whose_files_say_something_else_opens_with_their_text(
    asked: Asked, docs: Path, now: str | None, why: str
) -> None:
    ours = record(docs, BLUE, of="a digest")
    asked.parts.kept.keep(ours)
    (docs / "inc.txt").unlink()
    if now is not None:
        (docs / "inc.txt").write_text(now)
    opened = asked.ask("restore_run", {"id": ours.id, "page": PAGE})
    assert (opened["workspace"]["schema"], opened["workspace"]["origin"]) == (ours.contained, "")
    assert why in opened["told"]
    assert "The schema opens with the text that the files had then" in opened["told"]
    run = asked.ask("show_kept_run", {"id": ours.id, "schema": opened["workspace"]["schema"]})["run"]
    assert run["of"]["schema"] == texts(asked, opened)["schema"], "its result belongs to what is open"
    assert asked.ask("show_kept_run", {"id": ours.id})["run"]["of"]["schema"] == "a digest"


def test_a_run_of_another_studio_opens_with_the_text_of_its_files(asked: Asked, tmp_path: Path) -> None:
    ours = record(tmp_path / "elsewhere", BLUE)
    asked.ask("import_runs", {"name": "x", "text": to_json([ours])})
    opened = asked.ask("restore_run", {"id": ours.id, "page": PAGE})
    assert opened["workspace"]["schema"] == ours.contained
    assert "missing or unreadable" in opened["told"]
    assert texts(asked, opened)["schema"]


def test_a_run_from_before_says_where_its_files_are_others(asked: Asked, docs: Path) -> None:
    record(docs, BLUE)
    origin = f"file:{(docs / 'inc.pml').as_posix()}"
    then = asked.ask("check", {"schema": SCHEMA, "prompt": PROMPT, "origin": origin})["texts"]["schema"]
    known = Record(SCHEMA, PROMPT, frame(of={"schema": then}), origin=origin)
    unknown = Record(SCHEMA, PROMPT, frame(), origin=origin)
    for one in (known, unknown):
        asked.parts.kept.keep(one)
    assert "told" not in asked.ask("restore_run", {"id": known.id, "page": PAGE})
    (docs / "inc.txt").write_text(GREEN)
    opened = asked.ask("restore_run", {"id": known.id, "page": PAGE})
    assert "have changed since this run, and their earlier text was not stored." in opened["told"]
    assert opened["workspace"]["schema"] == SCHEMA
    assert "told" not in asked.ask("restore_run", {"id": unknown.id, "page": PAGE})
