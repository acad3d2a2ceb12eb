"""Two studios with one data folder: whose batch is being answered, and what the other one may do to it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.studio.batches import BatchStore
from app.studio.batches.batch_history import BatchBook
from app.studio.batches.batch_locks import FOLDER, Answering
from app.studio.database import UserDatabase
from app.studio.web.jobs import Jobs
from engine.base.errors import PromptCacheError
from engine.engine import Engine
from engine.store import Store
from tests.app.studio.asked import Asked
from tests.app.studio.batches.test_batch import TABLE, run, table
from tests.app.studio.batches.test_store import batch, result
from tests.app.studio.studio_server import ROOT
from tests.engine.cases import model_of

HOLD = """
import sys
from pathlib import Path
from app.studio.batches.batch_locks import Answering
with Answering(Path(sys.argv[1])).held("k"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path_factory.mktemp("cache"))) as made:
        yield made


def shown(studio: Asked, key: str) -> Any:
    return studio.ask("batch_state", {"key": key, "known": -1, "only": True})


@contextmanager
def long(studio: Asked, key: str) -> Iterator[None]:
    """A batch that is being answered."""
    rows = "id,text\n" + "".join(f"{n},Word {n}.\n" for n in range(100))
    begun = studio.ask("batch_start", {**table(rows, settings={"max_new_tokens": 40}), "key": key})
    assert "error" not in begun, begun
    until = time.monotonic() + 60
    while shown(studio, key)["batch"]["ended"] < 2:
        assert time.monotonic() < until
        time.sleep(0.01)
    try:
        with studio.parts.engine.computing.step():  # it does not end meanwhile
            yield
            studio.ask("stop_job", {"key": key})
    finally:
        studio.ask("stop_job", {"key": key})
        studio.ended(key)


def test_a_batch_that_another_studio_answers_is_told_so_and_not_deleted(
    tmp_path: Path, engine: Engine
) -> None:
    first, other = Asked(tmp_path, engine=engine), Asked(tmp_path, engine=engine)
    with long(first, "long"):
        assert shown(first, "long")["batch"]["state"] == "working"
        assert first.ask("list_batches")["batches"][0]["state"] == "working"
        assert shown(other, "long")["batch"]["state"] == "elsewhere"
        assert other.ask("list_batches")["batches"][0]["state"] == "elsewhere"
        refused = other.ask("delete_batches", {"keys": ["none", "long"]})["error"]
        assert refused.startswith("Another studio is running one of these batches.")
        taken = other.ask("batch_start", {**table(TABLE), "key": "long"})["error"]
        assert taken.startswith("A batch with this key already exists.")
    after = shown(first, "long")["batch"]
    assert (after["state"], after["unkept"]) == ("stopped", "")
    assert shown(other, "long")["batch"]["ended"] == after["ended"]
    assert other.ask("delete_batches", {"keys": ["long"]}) == {"deleted": 1}


def test_another_studios_batch_does_not_go_to_make_room(tmp_path: Path) -> None:
    store, other = (BatchStore(UserDatabase(tmp_path), most_batches=2) for _ in range(2))
    store.begin(batch("left"))
    store.begin(batch("going"))
    with store.answering.held("going"):
        other.begin(batch("new"))
        assert [one["key"] for one in other.listed()] == ["new", "going"]
        other.mark("new", "done")
        other.begin(batch("newer"))
        assert [one["key"] for one in other.listed()] == ["newer", "going"]
        store.add("going", [(0, 0, result())])
    other.begin(batch("newest"))
    assert [one["key"] for one in other.listed()] == ["newest", "newer"]


def test_a_studio_that_is_killed_answers_no_batch_any_more(tmp_path: Path) -> None:
    store = BatchStore(UserDatabase(tmp_path))
    store.begin(batch())
    book = BatchBook(Jobs(), store)
    words = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as studio:
        assert studio.stdout is not None
        assert studio.stdout.readline() == "held\n"
        assert book.find("k").state == "elsewhere"
        with pytest.raises(PromptCacheError, match="Another studio"):
            book.delete(["k"])
        studio.kill()
    assert book.find("k").state == "left"
    assert book.delete(["k"]) == 1
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_where_nothing_can_be_locked_nothing_is_known_to_be_answered(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("no folder")
    answering = Answering(tmp_path)
    with answering.held("k"):
        assert "k" not in answering


def test_a_batch_has_the_name_that_another_studio_gave_it_and_goes_with_it(
    tmp_path: Path, engine: Engine
) -> None:
    first, other = Asked(tmp_path, engine=engine), Asked(tmp_path, engine=engine)
    run(other, "opened")
    run(first, "begun")
    for key in ("opened", "begun"):
        assert shown(first, key)["batch"]["name"] == ""
        assert other.ask("name_batch", {"key": key, "name": "new"}) == {}
        assert shown(first, key)["batch"]["name"] == "new"
    assert other.ask("delete_batches", {"keys": ["opened", "begun"]}) == {"deleted": 2}
    for key in ("opened", "begun"):
        assert "no longer exists" in shown(first, key)["error"]
    assert first.ask("batch_state") == {}


def test_a_file_that_was_damaged_takes_no_batch_from_the_studio_that_answered_it(
    tmp_path: Path, engine: Engine
) -> None:
    studio = Asked(tmp_path, engine=engine)
    run(studio, "begun")
    (file,) = (tmp_path / "data").glob("studio.sqlite")
    for path in (tmp_path / "data").glob("studio.sqlite-*"):
        path.unlink()
    file.unlink()
    file.write_bytes(b"no database" * 1000)
    assert studio.ask("list_batches")["held"]["warnings"]
    assert shown(studio, "begun")["batch"]["ended"] == 3


def test_a_key_that_is_taken_or_no_text_is_refused_before_anything_is_answered(
    tmp_path: Path, engine: Engine
) -> None:
    run(Asked(tmp_path, engine=engine), "one")
    studio = Asked(tmp_path, engine=engine)
    assert "already exists" in studio.ask("batch_start", {**table(TABLE), "key": "one"})["error"]
    assert shown(studio, "one")["batch"]["state"] == "done"
    store = BatchStore(UserDatabase(tmp_path / "data"))
    with pytest.raises(PromptCacheError, match="already exists"):
        store.begin(batch("one"))
    half = "half \ud83d"
    assert "valid Unicode" in studio.ask("batch_start", {**table(TABLE), "key": half})["error"]
    for question in ({"key": half, "name": "x"}, {"key": "none", "name": "x"}):
        assert "no longer exists" in studio.ask("name_batch", question)["error"]
    assert "no longer exists" in shown(studio, half)["error"]
    assert studio.ask("delete_batches", {"keys": [half]}) == {"deleted": 0}
