"""Batches on disk: written row by row, found by another studio, bounded, named and deleted."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.studio.batches import BatchStore
from app.studio.batches.batch import Batch, BatchPlan, RowResult, SideResult
from app.studio.batches.batch_history import BatchBook
from app.studio.database import FILE, UserDatabase
from app.studio.documents.drafts import Workspace
from app.studio.web.jobs import Jobs
from engine.base.errors import PromptCacheError
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.pml import parse_schema
from engine.rows.expectations import Judged, expected
from engine.rows.rows import Row
from engine.store import Store
from tests.app.conftest import PROMPT, SCHEMA
from tests.app.studio.asked import Asked
from tests.app.studio.batches.test_batch import run, state, table
from tests.engine.cases import model_of

TREE = parse_schema(SCHEMA).tree
ROWS = (
    Row(2, "a", picks=("tokyo",), arguments={"plan": {"duration": "3 days"}}, text="Wo?\n \ud83d!"),
    Row(3, 7, prompt=PROMPT, settings={"stop": ["x"]}, expect=(expected("contains", "y"),)),
    Row(4, 4, fault="It has no id.", column="id", named=False),
)


def batch(key: str = "k", rows: tuple[Row, ...] = ROWS, **given: Any) -> Batch:
    assert TREE is not None
    checks = (expected("json", "{}"),)
    plan = BatchPlan(rows, TREE, PROMPT, RunSettings(temperature=0.5, stop=("a", "b")), "both", checks, "any")
    workspace = Workspace("", SCHEMA, "", "sample:x", {"seed": 4, "repeats": 2})
    return Batch(key, plan, ("s", "p"), "demo", "2026-03-01T10:00:00+01:00", workspace=workspace, **given)


def result(text: str = "an answer", passed: bool = True) -> RowResult:
    judged = Judged(passed, ("", "" if passed else "It is no JSON."))
    side = SideResult(text, 12.5, {"prefill": 12.5}, {"computed": 3}, "eos", ("a warning",), judged)
    told = {
        "ttft_speedup": float("inf"),
        "kl_first_token": 0.5,
        "first_token_agrees": True,
        "same_text": True,
    }
    return RowResult({"cached": side, "uncached": replace(side, judged=Judged(True, ("", "")))}, told)


FAILED = RowResult(fault={"message": "No.", "line": 4, "column": "id"})


def test_a_batch_is_found_again_as_it_was_by_another_studio(tmp_path: Path) -> None:
    store, kept = BatchStore(UserDatabase(tmp_path)), batch(name="first")
    store.begin(kept)
    store.add("k", [(1, 0, result())])
    store.add("k", [(2, 1, FAILED), (0, 2, result("zwei \ud83d", passed=False))])
    store.mark("k", "stopped")
    found, how, fault = BatchStore(UserDatabase(tmp_path)).load("")
    assert (how, fault) == ("stopped", "")
    assert found.plan.rows == kept.plan.rows
    assert found.plan == replace(kept.plan, schema=found.plan.schema)
    assert found.plan.source(ROWS[1]) == kept.plan.source(ROWS[1])
    assert list(found.results) == [1, 2, 0], "in the order of the ends"
    assert found.results == {1: result(), 2: FAILED, 0: result("zwei \ud83d", passed=False)}
    assert (found.key, found.name, found.texts, found.model) == ("k", "first", ("s", "p"), "demo")
    assert found.workspace == kept.workspace
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    (listed,) = store.listed()
    assert {name: listed[name] for name in ("rows", "answered", "failed", "judged", "passed")} == {
        "rows": 3,
        "answered": 2,
        "failed": 1,
        "judged": 2,
        "passed": 1,
    }
    assert (listed["schema"], listed["mode"], listed["state"]) == ("trip", "both", "stopped")


def test_the_oldest_go_first_those_without_a_name(tmp_path: Path) -> None:
    store = BatchStore(UserDatabase(tmp_path), most_batches=3)
    for number in range(3):
        store.begin(batch(str(number)))
    store.rename("0", "keep me")
    for number in range(3, 6):
        store.begin(batch(str(number)))
        assert len(store.listed()) == 3
    assert [one["key"] for one in store.listed()] == ["5", "4", "0"]
    with sqlite3.connect(tmp_path / FILE) as connection:
        assert connection.execute("select count(*) from batch_rows").fetchone() == (9,)
        assert connection.execute("select count(*) from texts").fetchone() == (3,)  # shared, and ""
    with pytest.raises(PromptCacheError, match="no longer exists"):
        store.load("1")


def test_bytes_are_bounded_and_the_batch_that_grows_is_not_the_one_that_goes(tmp_path: Path) -> None:
    store = BatchStore(UserDatabase(tmp_path), most_bytes=600_000)
    store.begin(batch("old"))
    store.add("old", [(0, 0, result("x" * 200_000))])
    store.begin(batch("new"))
    store.add("new", [(0, 0, result("y" * 200_000))])
    assert [one["key"] for one in store.listed()] == ["new"]
    with pytest.raises(PromptCacheError, match="larger than"):
        store.add("new", [(1, 1, result("z" * 600_000))])
    assert list(store.load("new")[0].results) == [0], "what was there stays"
    assert store.held()["bytes"] <= 600_000


def test_what_is_deleted_is_overwritten(tmp_path: Path) -> None:
    store = BatchStore(UserDatabase(tmp_path))
    store.begin(batch())
    store.add("k", [(0, 0, result("a secret of mine"))])
    assert store.delete(["k", "none"]) == 1
    assert b"secret of mine" not in (tmp_path / FILE).read_bytes()
    assert store.listed() == []
    with pytest.raises(PromptCacheError, match="no longer exists"):
        store.add("k", [(1, 1, result())])


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("cache")
    with Engine(model_of("llama-gqa"), Store.open(folder)) as made:
        yield made


def test_a_studio_that_comes_after_shows_lists_names_and_exports_it(tmp_path: Path, engine: Engine) -> None:
    first = Asked(tmp_path, engine=engine)
    before = run(first, "one", checks=[{"kind": "min words", "value": "0"}])
    run(first, "two", mode="cached")
    studio = Asked(tmp_path, engine=engine)
    listed = studio.ask("list_batches")
    assert [(one["key"], one["answered"], one["failed"]) for one in listed["batches"]] == [
        ("two", 2, 1),
        ("one", 2, 1),
    ]
    assert listed["working"] is None
    assert state(studio)["key"] == "two", "the newest is shown first"
    after = studio.ask("batch_state", {"key": "one", "known": -1, "only": True})["batch"]
    assert after == before
    for question in ({"key": "one", "form": "csv"}, {"key": "one", "form": "json"}):
        assert studio.ask("batch_files", question) == first.ask("batch_files", question)
    row = {"key": "one", "number": 1}
    assert studio.ask("batch_row", row) == first.ask("batch_row", row)
    page = {"name": "mine", "schema": SCHEMA, "prompt": PROMPT}
    assert "<rome/>" in studio.ask("batch_open", {**row, "page": page})["workspace"]["prompt"]
    assert studio.ask("name_batch", {"key": "one", "name": "before the change"}) == {}
    assert studio.ask("list_batches")["batches"][1]["name"] == "before the change"
    assert "at most 200 characters" in studio.ask("name_batch", {"key": "one", "name": "x" * 300})["error"]
    assert studio.ask("delete_batches", {"keys": ["two"]}) == {"deleted": 1}
    assert state(studio)["key"] == "one"


def test_a_studio_that_dies_has_lost_no_row_that_had_ended(tmp_path: Path) -> None:
    store = BatchStore(UserDatabase(tmp_path))
    store.begin(batch())
    store.add("k", [(1, 0, result())])
    found = BatchBook(Jobs(), BatchStore(UserDatabase(tmp_path))).latest()
    assert found is not None
    assert (found.state, list(found.batch.results)) == ("left", [1])


def test_a_batch_goes_on_where_nothing_can_be_written_and_is_written_once_it_can(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(tmp_path, engine=engine)
    add, tried = BatchStore.add, []

    def full(store: BatchStore, key: str, results: Any) -> None:
        tried.append(len(results))
        if len(tried) < 2:
            raise PromptCacheError("The disk is full.")
        add(store, key, results)

    monkeypatch.setattr(BatchStore, "add", full)
    found = run(asked, "full")
    assert (found["state"], found["ended"], found["unkept"]) == ("done", 3, "")
    assert tried == [1, 2, 1]
    assert Asked(tmp_path).ask("list_batches")["batches"][0]["answered"] == 2
    monkeypatch.setattr(BatchStore, "add", _refuse)
    found = run(asked, "never")
    assert (found["state"], found["ended"]) == ("done", 3)
    assert found["unkept"] == "The disk is full."


def _refuse(*_: Any) -> None:
    raise PromptCacheError("The disk is full.")


def test_one_that_is_being_answered_is_not_deleted(tmp_path: Path, engine: Engine) -> None:
    asked = Asked(tmp_path, engine=engine)
    rows = "id,text\n" + "".join(f"{n},Word {n}.\n" for n in range(300))
    asked.ask("batch_start", {**table(rows, settings={"max_new_tokens": 40}), "key": "long"})
    assert asked.ask("list_batches")["working"] == "long"
    assert "Stop it" in asked.ask("delete_batches", {"keys": ["long"]})["error"]
    asked.ask("stop_job", {"key": "long"})
    asked.ended("long")
    assert asked.ask("delete_batches", {"keys": ["long"]}) == {"deleted": 1}
    assert asked.ask("batch_state") == {}


def test_rows_of_a_schema_with_files_have_their_prompts_without_them(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Words of a file.")
    source = '<schema name="f"><module name="m" src="text.txt"/></schema>'
    tree = parse_schema(source, base=tmp_path).tree
    assert tree is not None
    made = batch(rows=(Row(1, 1, picks=("m",), text="Go."),))
    made.plan = replace(made.plan, schema=tree, over=None)
    BatchStore(UserDatabase(tmp_path)).begin(made)
    (tmp_path / "text.txt").unlink()
    found = BatchStore(UserDatabase(tmp_path)).load("k")[0]
    assert found.plan.source(found.plan.rows[0]) == made.plan.source(made.plan.rows[0])
