"""A document belongs to the folder that it came from: no draft is written into its namesake elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tests.app.studio.asked import Asked

TEXT = '<schema name="trip"><module name="a" src="a.txt"/></schema>\n'
EDITED = TEXT.replace("trip", "edited")


def studio(tmp_path: Path, folder: Path | None) -> Asked:
    """A studio over one data folder and this folder of documents; no model is asked."""
    return Asked(tmp_path, folder)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders with the same documents."""
    both = tmp_path / "A", tmp_path / "B"
    for path in both:
        path.mkdir()
        (path / "trip.pml").write_text(TEXT)
        (path / "a.txt").write_text(f"text of {path.name}")
    return both


def opened(author: Asked) -> dict[str, Any]:
    """The workspace after opening trip.pml."""
    empty = {"name": "", "schema": "", "prompt": "<prompt/>", "base": 0}
    return cast(dict[str, Any], author.ask("open_file", {"name": "trip.pml", "page": empty})["workspace"])


def saving(workspace: dict[str, Any], text: str) -> dict[str, Any]:
    return {"origin": workspace["origin"], "text": text, "stamp": workspace["files"]["schema"]}


def test_a_draft_of_one_folder_is_not_written_into_another(
    tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    ours, theirs = folders
    workspace = opened(studio(tmp_path, ours))
    elsewhere = studio(tmp_path, theirs)
    for force in (False, True):
        answer = elsewhere.ask("save_file", {**saving(workspace, EDITED), "force": force, "here": True})
        assert answer["refused"] == "elsewhere"
        assert f"from another folder ({ours})" in answer["message"]
        assert f"--schemas {ours}" in answer["message"]
    assert (theirs / "trip.pml").read_text() == (ours / "trip.pml").read_text() == TEXT


def test_it_is_written_where_it_came_from_also_through_a_link(
    tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    workspace = opened(studio(tmp_path, folders[0]))
    (tmp_path / "link").symlink_to(folders[0])
    assert (
        studio(tmp_path, tmp_path / "link").ask("save_file", saving(workspace, EDITED))["saved"] == "trip.pml"
    )
    assert (folders[0] / "trip.pml").read_text() == EDITED


def test_src_is_not_read_from_another_folder(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    workspace = opened(studio(tmp_path, folders[0]))
    asked = {"schema": TEXT, "prompt": "<prompt/>", "origin": workspace["origin"]}
    assert studio(tmp_path, folders[0]).ask("check", asked)["schema"]["ok"]
    assert not studio(tmp_path, folders[1]).ask("check", asked)["schema"]["ok"]


def test_without_a_folder_it_says_where_the_file_is(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    workspace = opened(studio(tmp_path, folders[0]))
    answer = studio(tmp_path, None).ask("save_file", saving(workspace, EDITED))
    assert answer["refused"] == "elsewhere"
    assert str(folders[0]) in answer["message"]


def test_a_draft_of_an_earlier_version_is_asked_about(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    author = studio(tmp_path, folders[1])
    workspace = {**opened(author), "origin": "file:trip.pml"}
    answer = author.ask("save_file", saving(workspace, EDITED))
    assert answer["refused"] == "unknown"
    assert str(folders[1]) in answer["message"]
    assert (folders[1] / "trip.pml").read_text() == TEXT
    taken = author.ask("save_file", {**saving(workspace, EDITED), "here": True})
    assert (folders[1] / "trip.pml").read_text() == EDITED
    assert author.parts.library.folder.owns(taken["origin"])


def test_the_list_of_files_is_the_folders_of_now(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    author = studio(tmp_path, folders[0])
    (folders[0] / "later.pml").write_text(TEXT)
    here = {"folder": True, "root": folders[0].as_posix()}
    assert author.ask("list_files") == {**here, "files": ["later.pml", "trip.pml"]}


def test_a_text_under_a_new_name_is_this_folders(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    author = studio(tmp_path, folders[0])
    made = author.ask("save_as", {"name": "new.pml", "text": TEXT})
    assert author.ask("save_file", {"origin": made["origin"], "text": EDITED, "stamp": made["stamp"]})[
        "saved"
    ]
    assert (folders[0] / "new.pml").read_text() == EDITED
