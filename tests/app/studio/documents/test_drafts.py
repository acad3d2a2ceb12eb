"""Nothing that was written is lost: revisions, versions, and two studios at once."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from app.studio.database import UserDatabase
from app.studio.documents.drafts import SHELF_SIZE, Drafts, StaleDraftError, Workspace
from engine.base.errors import PromptCacheError


def workspace(text: str, **fields: object) -> Workspace:
    return Workspace(name="travel", schema=f"<schema>{text}</schema>", prompt="<prompt/>", **fields)  # type: ignore[arg-type]


@pytest.fixture
def database(tmp_path: Path) -> UserDatabase:
    return UserDatabase(tmp_path)


@pytest.fixture
def drafts(database: UserDatabase) -> Drafts:
    return Drafts(database)


def test_a_draft_survives_a_restart(drafts: Drafts, tmp_path: Path) -> None:
    kept = drafts.save(workspace("é 😀", settings={"seed": 3}), base=0)
    assert Drafts(UserDatabase(tmp_path)).load() == kept


def test_a_save_from_an_old_revision_is_refused(drafts: Drafts) -> None:
    first = drafts.save(workspace("one"), base=0)
    second = drafts.save(workspace("two"), base=first.revision)
    with pytest.raises(StaleDraftError) as stale:
        drafts.save(workspace("three"), base=first.revision)
    assert stale.value.current == second
    assert drafts.load() == second


def test_an_old_revision_with_the_same_text_is_no_conflict(drafts: Drafts) -> None:
    first = drafts.save(workspace("one"), base=0)
    drafts.save(workspace("two"), base=first.revision)
    assert drafts.save(workspace("two", settings={"seed": 1}), base=first.revision).settings == {"seed": 1}


def test_a_forced_save_puts_the_other_text_on_the_shelf(drafts: Drafts) -> None:
    first = drafts.save(workspace("one"), base=0)
    drafts.save(workspace("two"), base=first.revision)
    drafts.save(workspace("three"), base=first.revision, force=True)
    assert [kept.schema for _, kept in drafts.shelf()] == [workspace("two").schema]


def test_a_replaced_schema_becomes_a_version_and_an_edited_one_does_not(drafts: Drafts) -> None:
    text = '<schema name="mine"><module name="a">My words.</module></schema>'
    own = Workspace("mine", text, "<prompt/>")
    base = drafts.save(own, base=0).revision
    renamed = replace(own, schema=text.replace("mine", "renamed"))
    base = drafts.save(renamed, base=base).revision
    assert drafts.shelf() == ()
    pasted = replace(own, schema='<schema name="desk"><module name="lamp">Light.</module></schema>')
    base = drafts.save(pasted, base=base).revision
    drafts.save(replace(own, schema=""), base=base)
    assert [kept.schema for _, kept in drafts.shelf()] == [pasted.schema, renamed.schema]


def test_opening_another_workspace_shelves_the_present_one(drafts: Drafts) -> None:
    drafts.save(workspace("mine"), base=0)
    drafts.replace(workspace("sample"))
    ((key, kept),) = drafts.shelf()
    assert kept.schema == workspace("mine").schema
    assert drafts.shelved(key) == kept
    with pytest.raises(PromptCacheError, match="Choose another"):
        drafts.shelved("gone")


def test_the_shelf_does_not_grow_for_ever(drafts: Drafts) -> None:
    for number in range(SHELF_SIZE + 5):
        drafts.replace(workspace(str(number)))
    shelf = drafts.shelf()
    assert len(shelf) == SHELF_SIZE
    assert shelf[0][1].schema == workspace(str(SHELF_SIZE + 3)).schema


@pytest.mark.parametrize("damage", ["{", "[]", '{"name": 1}', '{"surprise": true}'])
def test_a_draft_that_cannot_be_read_is_not_overwritten(
    drafts: Drafts, database: UserDatabase, damage: str
) -> None:
    with database.changing() as db:
        db.table("workspaces").insert({"number": 0, "workspace": damage})
    assert drafts.load() is None
    drafts.save(workspace("new"), base=0)
    assert drafts.load() is not None
    assert drafts.shelf() == ()
    with database.reading() as db:
        assert [row["workspace"] for row in db.table("workspaces").rows_where("number = 1")] == [damage]


def test_a_form_comes_back(drafts: Drafts) -> None:
    assert drafts.form("batch") == {}
    drafts.keep_form("batch", {"rows": "a"})
    drafts.keep_form("batch", {"rows": "half \ud83d"})
    assert drafts.form("batch") == {"rows": "half \ud83d"}


def test_a_text_that_no_encoding_takes_is_kept(drafts: Drafts) -> None:
    kept = drafts.save(workspace("half of a pair: \ud83d"), base=0)
    assert drafts.load() == kept


def test_text_of_a_closed_tab_goes_to_the_shelf_and_leaves_the_open_one(drafts: Drafts) -> None:
    kept = drafts.save(workspace("open"), base=0)
    assert drafts.shelve(workspace("open")) is None
    key = drafts.shelve(workspace("lost"))
    assert key is not None
    assert drafts.shelve(workspace("lost")) == key
    assert drafts.shelved(key).schema == workspace("lost").schema
    assert drafts.shelved(key).saved
    assert drafts.load() == kept
    assert len(drafts.shelf()) == 1


SAVES = 25
OTHER_STUDIO = """
import sys
from pathlib import Path
from app.studio.database import UserDatabase
from app.studio.documents.drafts import Drafts, StaleDraftError, Workspace

drafts, name = Drafts(UserDatabase(Path(sys.argv[1]))), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
base = drafts.load().revision
for number in range(int(sys.argv[3])):
    text = Workspace("travel", f"{name} {number}", "p")
    try:
        base = drafts.save(text, base=base).revision
    except StaleDraftError:  # the user keeps what this page shows
        base = drafts.save(text, base=base, force=True).revision
    print(base, flush=True)
"""


def test_two_studios_lose_nothing_without_a_conflict(drafts: Drafts, tmp_path: Path) -> None:
    """Every revision was given once: who saved over another text was told of it."""
    drafts.save(workspace("begin"), base=0)
    command = [sys.executable, "-c", OTHER_STUDIO, str(tmp_path)]
    both = [
        subprocess.Popen(
            [*command, name, str(SAVES)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in "AB"
    ]
    for one in both:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in both:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    revisions = [int(line) for one in both for line in one.communicate(timeout=60)[0].split()]
    assert len(revisions) == len(set(revisions)) == 2 * SAVES
