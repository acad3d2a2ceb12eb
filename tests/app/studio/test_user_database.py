"""The user's database: private, shared by studios, damaged, full, read-only, and begun with older files."""

from __future__ import annotations

import json
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from app.models.model_choice import ModelChoice
from app.studio.batches import BatchStore
from app.studio.batches.record import result_json
from app.studio.database import FILE, UserDatabase
from app.studio.documents.drafts import Drafts, Workspace
from app.studio.documents.recent import Recent
from app.studio.history import Record, RunStore
from app.studio.model.recent_models import RecentModels
from app.studio.pages.sweep_history import Measurements
from engine.base.errors import PromptCacheError
from tests.app.studio.batches.test_store import batch, result
from tests.app.studio.history.test_kept_runs import record

MINE = Workspace("mine", "<schema>\ud83d</schema>", "<prompt/>", revision=3, settings={"seed": 1})


def damage(path: Path, start: int = 0) -> None:
    """Overwrites the file, or the start of each page from `start` on."""
    if not start:
        path.write_bytes(b"this is no database, and long enough to be read as one" * 100)
        return
    data = bytearray(path.read_bytes())
    for page in range(start, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(data)


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    RunStore(UserDatabase(folder)).keep(record())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name


def test_two_studios_write_at_once(tmp_path: Path) -> None:
    stores = [RunStore(UserDatabase(tmp_path)), RunStore(UserDatabase(tmp_path))]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: stores[number % 2].keep(record(number)), range(40)))
    assert stores[0].held()["runs"] == stores[1].held()["runs"] == 40


def test_a_damaged_file_is_set_aside_with_a_sentence(tmp_path: Path) -> None:
    damage(tmp_path / FILE)
    database = UserDatabase(tmp_path)
    Drafts(database)
    store = RunStore(database)
    held = store.held()
    assert held["runs"] == 0
    assert f"was damaged. It was renamed to {FILE}.damaged-" in held["warnings"][0]
    assert BatchStore(database).held()["warnings"] == held["warnings"]
    store.keep(record())
    assert store.held()["runs"] == 1
    (aside,) = tmp_path.glob(f"{FILE}.damaged-*")
    assert aside.read_bytes().startswith(b"this is no database")


def test_damaged_runs_cost_no_draft_and_one_question(tmp_path: Path) -> None:
    first, second = UserDatabase(tmp_path), UserDatabase(tmp_path)
    drafts, runs = Drafts(first), RunStore(first)
    drafts.save(MINE, base=0)
    drafts.shelve(Workspace("earlier", "<schema/>", "<prompt/>"))
    Recent(first).note("sample:travel", "Travel", "both")
    first.close()
    pages = (tmp_path / FILE).stat().st_size // 4096
    for number in range(50):
        runs.keep(record(number))
    RunStore(second).keep(record(50))
    for one in (first, second):
        one.close()
    damage(tmp_path / FILE, pages)
    assert "It was renamed to" in runs.held()["warnings"][0]
    runs.keep(record(60))
    RunStore(second).keep(record(61))
    assert (runs.held()["runs"], RunStore(second).held()["warnings"]) == (2, [])
    assert len(list(tmp_path.glob(f"{FILE}.damaged-*"))) == 1
    kept = Drafts(second).load()
    assert kept is not None
    assert (kept.schema, kept.settings) == (MINE.schema, MINE.settings)
    assert [version.name for _, version in Drafts(second).shelf()] == ["earlier"]
    assert [document.name for document in Recent(second).documents()] == ["Travel"]


def test_a_file_that_goes_while_it_is_open_is_begun_again(tmp_path: Path) -> None:
    store = RunStore(UserDatabase(tmp_path))
    store.keep(record())
    for path in tmp_path.iterdir():
        path.unlink()
    store.keep(record(1))
    assert RunStore(UserDatabase(tmp_path)).held()["runs"] == 1


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    with UserDatabase(tmp_path).changing() as db:
        row = {"migration_set": "studio", "name": "of_tomorrow", "applied_at": ""}
        db.table("_sqlite_migrations").insert(row)
    database = UserDatabase(tmp_path)
    assert "newer version of the studio wrote" in RunStore(database).held()["warnings"][0]
    for use in (lambda: RunStore(database).keep(record()), lambda: Drafts(database)):
        with pytest.raises(PromptCacheError, match="The file is unchanged"):
            use()
    assert list(tmp_path.glob("*damaged*")) == []


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    (tmp_path / "share").symlink_to(tmp_path / "disk")
    database = UserDatabase(tmp_path / "data")
    assert "cannot be used" in RunStore(database).held()["warnings"][0]
    for use in (lambda: RunStore(database).keep(record()), lambda: Drafts(database)):
        with pytest.raises(PromptCacheError, match="Make the folder and the file writable"):
            use()
    with pytest.raises(PromptCacheError, match=r"share' is a link to .*disk', which does not exist"):
        Drafts(UserDatabase(tmp_path / "share" / "drafts"))


LIMITED = """
import resource, sys
from pathlib import Path
from app.studio.database import UserDatabase
from app.studio.documents.drafts import Drafts, Workspace
from app.studio.history import RunStore
from engine.base.errors import PromptCacheError
from tests.app.studio.history.test_kept_runs import record
database = UserDatabase(Path(sys.argv[1]))
drafts, store = Drafts(database), RunStore(database)
store.keep(record())
drafts.save(Workspace("mine", "s", "p"), base=0)
database.close()
resource.setrlimit(resource.RLIMIT_FSIZE, (0, -1))
print(drafts.load().name, store.held()["runs"])
for write in (
    lambda: store.keep(record(1, prompt="x" * 1_000_000)),
    lambda: drafts.save(Workspace("mine", "another", "p"), base=1),
):
    try:
        write()
    except PromptCacheError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on files")
def test_nothing_can_be_written_but_everything_is_read(tmp_path: Path) -> None:
    asked = [sys.executable, "-c", LIMITED, str(tmp_path)]
    read, *told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    assert read == "mine 1"
    assert all("ulimit -f" in sentence and "writable" not in sentence for sentence in told)
    assert told[1].endswith("The page still has your text.")
    kept = Drafts(UserDatabase(tmp_path)).load()
    assert kept is not None
    assert kept.schema == "s"


OLD = {
    "runs.sqlite": """
        create table texts as select * from made.texts;
        create table runs as select 4 as number, id, name, note, origin, schema_digest, prompt_digest, frame,
            summary, '' as contained_digest, belongs, measured from made.runs;
        pragma user_version = 3;
    """,
    "batches.sqlite": """
        create table texts as select * from made.texts;
        create table batches as select 7 as number, id, name, started, state, fault, about, schema_digest,
            whole_digest, prompt_digest, rows, answered, failed, judged, passed from made.batches;
        create table rows as select 7 as batch, number, row, result, ended from made.batch_rows;
        pragma user_version = 1;
    """,
}
REPORT = {
    "started": "2026-03-01T10:00:00",
    "ended": "",
    "units": 4.0,
    "seconds": 2.0,
    "results": [],
    "sweep": {"axis": "cached"},
    "model": {"name": "demo", "device": "cpu"},
}


def write_old_files(folder: Path, run: Record) -> None:
    """Writes what the version with a file for each kind of data stored."""
    database = UserDatabase(folder / "made")
    RunStore(database).keep(run)
    batches = BatchStore(database)
    batches.begin(batch(name="first"))
    batches.add("k", [(1, 0, result())])
    batches.mark("k", "done")
    for name, script in OLD.items():
        with closing(sqlite3.connect(folder / name)) as file:
            file.execute("attach ? as made", [str(database.path)])
            file.executescript(script)
    (folder / "shelf").mkdir()
    for key in "ba":
        version = {**asdict(MINE), "name": key}
        (folder / "shelf" / f"{key}.json").write_text(json.dumps(version))
    (folder / "workspace.json").write_text(json.dumps(asdict(MINE)))
    (folder / "form-batch.json").write_text('{"rows": "a"}')
    document = {"origin": "sample:travel", "name": "new", "kind": "both", "used": ""}
    documents = [document, {**document, "name": "old", "origin": "file:/a"}]
    (folder / "recent.json").write_text(json.dumps(documents))
    models = [asdict(ModelChoice("owner/new")), asdict(ModelChoice("owner/old"))]
    (folder / "models.json").write_text(json.dumps({"format": 1, "models": models}))
    (folder / "benchmarks").mkdir()
    (folder / "benchmarks" / "20260301T100000-cached.json").write_text(json.dumps(REPORT))
    (folder / "benchmarks" / "thesis.json").write_text("{}")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(FILE)
    }


def test_the_first_start_copies_the_older_files_once_and_leaves_them(tmp_path: Path) -> None:
    run = record(name="mine")
    write_old_files(tmp_path, run)
    before, database = contents(tmp_path), UserDatabase(tmp_path)
    drafts, runs, batches = Drafts(database), RunStore(database), BatchStore(database)
    assert contents(tmp_path) == before
    assert drafts.load() == MINE
    assert [version.name for _, version in drafts.shelf()] == ["b", "a"]
    assert drafts.form("batch") == {"rows": "a"}
    assert [document.name for document in Recent(database).documents()] == ["new", "old"]
    assert [model.name for model in RecentModels(database).kept()] == ["owner/new", "owner/old"]
    assert [one["name"] for one in Measurements(database).listed()] == ["20260301T100000-cached"]
    assert Measurements(database).report("20260301T100000-cached") == REPORT
    (found,) = runs.find([run.id])
    assert (found.schema, found.prompt, found.contained, found.name) == (run.schema, run.prompt, "", "mine")
    assert found.told == run.told
    stored, state, _ = batches.load("k")
    assert (state, stored.name, stored.plan.rows) == ("done", "first", batch().plan.rows)
    assert stored.results == {1: result()}
    assert runs.held()["bytes"] > len(run.schema)
    assert batches.held()["bytes"] > len(result_json(result()))
    assert database.notes == []
    runs.delete([run.id])
    drafts.save(Workspace("next", "s", "p"), base=3)
    database.close()
    assert runs.held()["runs"] == 0
    assert Drafts(UserDatabase(tmp_path)).load() != MINE


FULL = """
import resource, sys
from pathlib import Path
from app.studio.database import UserDatabase
from app.studio.documents.drafts import Drafts
from app.studio.history import RunStore
from engine.base.errors import PromptCacheError
database = UserDatabase(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, -1))
try:
    Drafts(database)
except PromptCacheError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
print(Drafts(database).load().name, RunStore(database).held()["runs"])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on files")
def test_older_files_that_have_no_room_are_copied_later(tmp_path: Path) -> None:
    write_old_files(tmp_path, record(prompt="x" * 1_000_000))
    asked = [sys.executable, "-c", FULL, str(tmp_path)]
    told, then = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "ulimit -f" in told
    assert then == "mine 1"


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("runs.sqlite", damage),
        ("batches.sqlite", lambda path: change(path, "pragma user_version = 2")),
        ("workspace.json", lambda path: path.write_text("[1]")),
        ("runs.sqlite", lambda path: (path.unlink(), path.mkdir())),
        ("recent.json", lambda path: path.write_text("{}")),
        ("models.json", lambda path: path.write_text('{"models": [3]}')),
        ("models.json", lambda path: path.write_text(f'{{"models": [{{"name": {10**30}}}]}}')),
    ],
)
def test_an_older_file_that_cannot_be_copied_is_named(tmp_path: Path, name: str, spoil: Any) -> None:
    write_old_files(tmp_path, record())
    spoil(tmp_path / name)
    before, database = contents(tmp_path), UserDatabase(tmp_path)
    store = RunStore(database)
    assert store.held()["runs"] == (name != "runs.sqlite")
    (sentence,) = store.held()["warnings"]
    assert sentence.startswith(repr(str(tmp_path / name)))
    assert sentence.endswith("The file is unchanged.")
    assert contents(tmp_path) == before
    assert len(BatchStore(database).listed()) == (name != "batches.sqlite")
    assert (Drafts(database).load() == MINE) == (name != "workspace.json")


@pytest.mark.parametrize(
    "odd", ["1", "null", "1" + 30 * "0", '{"origin": "a"}', '{"origin": [], "name": ""}']
)
def test_odd_entries_of_an_older_list_are_left_out(tmp_path: Path, odd: str) -> None:
    good = {"origin": "file:/a", "name": "a", "kind": "schema", "used": ""}
    (tmp_path / "recent.json").write_text(f"[{odd}, {json.dumps(good)}]")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "20260101T000000-scope.json").write_text("{}")
    database = UserDatabase(tmp_path)
    assert [document.name for document in Recent(database).documents()] == ["a"]
    assert Measurements(database).listed() == []
    assert Measurements(database).pace("demo") is None


def test_older_texts_are_read_in_each_form_and_a_run_without_its_text_is_named(tmp_path: Path) -> None:
    first, second = record(), record(1, schema="<schema name='other'/>")
    write_old_files(tmp_path, first)
    made = RunStore(UserDatabase(tmp_path / "made"))
    made.keep(second)
    change(tmp_path / "runs.sqlite", "update texts set text = cast(text as text)")
    with closing(sqlite3.connect(tmp_path / "runs.sqlite")) as file:
        file.execute("attach ? as made", [str(tmp_path / "made" / FILE)])
        file.execute(
            """insert into runs select 5, id, name, note, origin, schema_digest, prompt_digest, frame,
            summary, '', belongs, measured from made.runs where id = ?""",
            [second.id],
        )
        file.commit()
    store = RunStore(UserDatabase(tmp_path))
    (found,) = store.find([first.id])
    assert (found.schema, found.prompt) == (first.schema, first.prompt)
    assert store.held()["warnings"] == [
        "Not copied, because their texts are missing: 1 of the runs of a former version."
    ]


def test_older_files_are_copied_also_where_the_database_is_garbage(tmp_path: Path) -> None:
    write_old_files(tmp_path, record())
    damage(tmp_path / FILE)
    database = UserDatabase(tmp_path)
    assert Drafts(database).load() == MINE
    assert RunStore(database).held()["runs"] == 1
    assert database.notes[1] == "No draft and no version could be read from it."


def change(path: Path, sql: str) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute(sql)
        file.commit()
