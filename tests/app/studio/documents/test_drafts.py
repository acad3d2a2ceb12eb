"""Nothing that was written is lost: revisions, the shelf, damaged files, a full disk."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.studio.documents.drafts import SHELF_SIZE, Drafts, StaleDraftError, Workspace, write_text
from engine.base.errors import PromptCacheError


def workspace(text: str, **fields: object) -> Workspace:
    return Workspace(name="travel", schema=f"<schema>{text}</schema>", prompt="<prompt/>", **fields)  # type: ignore[arg-type]


@pytest.fixture
def drafts(tmp_path: Path) -> Drafts:
    return Drafts(tmp_path / "drafts")


def test_a_draft_survives_a_restart(drafts: Drafts, tmp_path: Path) -> None:
    kept = drafts.save(workspace("é 😀", settings={"seed": 3}), base=0)
    assert Drafts(tmp_path / "drafts").load() == kept


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


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"name": 1}', '{"surprise": true}', "\x00"])
def test_a_damaged_draft_is_set_aside_not_overwritten(drafts: Drafts, tmp_path: Path, damage: str) -> None:
    file = tmp_path / "drafts" / "workspace.json"
    file.write_text(damage)
    assert drafts.load() is None
    (aside,) = (tmp_path / "drafts").glob("workspace.damaged-*.json")
    assert aside.read_text() == damage
    drafts.save(workspace("new"), base=0)
    assert drafts.load() is not None


def test_a_text_that_no_encoding_takes_is_kept(drafts: Drafts) -> None:
    kept = drafts.save(workspace("half of a pair: \ud83d"), base=0)
    assert drafts.load() == kept


def test_a_failed_write_leaves_the_old_text_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "text.pml"
    file.write_text("old")

    def full_disk(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_text(file, "new")
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["text.pml"]


def test_a_full_disk_is_a_sentence(drafts: Drafts, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(PromptCacheError, match="No space left on device"):
        drafts.save(workspace("one"), base=0)


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PromptCacheError, match="drafts folder"):
        Drafts(tmp_path / "file" / "drafts")


def test_a_folder_on_a_disk_that_is_not_connected_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "share").symlink_to(tmp_path / "disk")
    with pytest.raises(PromptCacheError, match=r"share' is a link to .*disk', which does not exist"):
        Drafts(tmp_path / "share" / "drafts")


def test_a_draft_that_cannot_be_read_is_left_where_it_is(
    drafts: Drafts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts.save(workspace("one"), base=0)

    def broken(_path: Path) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", broken)
        with pytest.raises(PromptCacheError, match="Input/output error"):
            drafts.load()
    assert not list((tmp_path / "drafts").glob("workspace.damaged-*.json"))
    kept = drafts.load()
    assert kept is not None
    assert kept.schema == workspace("one").schema


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


def test_drafts_of_an_earlier_version_open(drafts: Drafts, tmp_path: Path) -> None:
    earlier = {
        "name": "n",
        "schema": "s",
        "prompt": "p",
        "origin": "file:a.pml",
        "settings": {},
        "revision": 3,
    }
    (tmp_path / "drafts" / "workspace.json").write_text(json.dumps({**earlier, "saved": ""}))
    kept = drafts.load()
    assert kept is not None
    assert (kept.origin, kept.prompt_origin, kept.files) == ("file:a.pml", "", {})


def test_drafts_are_for_their_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "drafts").mkdir(mode=0o755)
    Drafts(tmp_path / "drafts")
    assert (tmp_path / "drafts").stat().st_mode & 0o777 == 0o700


def test_a_clock_that_goes_back_throws_the_oldest_out(
    drafts: Drafts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(SHELF_SIZE):
        drafts.replace(workspace(f"before {number}"))
    monkeypatch.setattr("app.studio.documents.drafts._now", lambda: datetime(2001, 1, 1, tzinfo=UTC))
    for number in range(5):
        drafts.replace(workspace(f"after {number}"))
    kept = [one.schema for _, one in drafts.shelf()]
    assert len(kept) == SHELF_SIZE
    assert kept[:4] == [workspace(f"after {number}").schema for number in (3, 2, 1, 0)]
    assert workspace("before 4").schema in kept
    assert workspace("before 3").schema not in kept


SAVES = 25
OTHER_STUDIO = """
import sys
from pathlib import Path
from app.studio.documents.drafts import Drafts, StaleDraftError, Workspace

drafts, name, lost = Drafts(Path(sys.argv[1])), sys.argv[2], 0
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


def test_two_studios_lose_nothing_without_a_conflict(drafts: Drafts) -> None:
    """Every revision was given once: who saved over another text was told of it."""
    drafts.save(workspace("begin"), base=0)
    command = [sys.executable, "-c", OTHER_STUDIO, str(drafts.folder)]
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
