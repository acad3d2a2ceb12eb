"""`pml format`: printing, showing a diff, replacing files, and leaving broken ones alone."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

LOOSE = "<schema  name='a'>\n<module name='m'>text</module></schema>"
NEAT = '<schema name="a">\n  <module name="m">text</module>\n</schema>\n'
Pml = Callable[..., SimpleNamespace]


@pytest.fixture
def run_format(run_pml: Pml) -> Pml:
    return partial(run_pml, "format")


@pytest.fixture
def loose(tmp_path: Path) -> Path:
    path = tmp_path / "a.pml"
    path.write_text(LOOSE, encoding="utf-8")
    return path


def test_it_prints_and_changes_nothing(run_format: Pml, loose: Path) -> None:
    result = run_format(loose)
    assert (result.status, result.out, result.err) == (0, NEAT, "")
    assert loose.read_text(encoding="utf-8") == LOOSE


def test_a_diff_says_what_would_change(run_format: Pml, loose: Path) -> None:
    result = run_format(loose, "--diff")
    assert result.status == 1
    assert "-<schema  name='a'>\n" in result.out
    assert '+<schema name="a">\n' in result.out
    assert "\\ No newline at end of file" in result.out
    assert loose.read_text(encoding="utf-8") == LOOSE
    loose.write_text(NEAT, encoding="utf-8")
    again = run_format(loose, "--diff")
    assert (again.status, again.out) == (0, "")


def test_writing_replaces_the_file_and_keeps_its_permissions(run_format: Pml, loose: Path) -> None:
    loose.chmod(0o640)
    assert run_format(loose, "--write").out == f"{loose}: formatted\n"
    assert loose.read_text(encoding="utf-8") == NEAT
    assert loose.stat().st_mode & 0o777 == 0o640
    assert run_format(loose, "--write").out == f"{loose}: unchanged\n"
    assert os.listdir(loose.parent) == ["a.pml"]  # noqa: PTH208 - names are what is compared


def test_writing_follows_a_link(run_format: Pml, loose: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.pml"
    link.symlink_to(loose)
    run_format(link, "--write")
    assert link.is_symlink()
    assert loose.read_text(encoding="utf-8") == NEAT


def test_a_broken_file_is_left_as_it_is_and_the_others_are_formatted(
    run_format: Pml, loose: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "b.pml"
    broken.write_text("<schema name='b'><module name='m'>", encoding="utf-8")
    result = run_format(broken, loose, tmp_path / "none.pml", "--write")
    assert result.status == 2
    assert "E105" in result.err
    assert "it is unchanged" in result.err
    assert "there is no such file" in result.err
    assert broken.read_text(encoding="utf-8") == "<schema name='b'><module name='m'>"
    assert loose.read_text(encoding="utf-8") == NEAT


def test_a_folder_that_cannot_be_written_loses_nothing(
    run_format: Pml, loose: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.cli.commands.format.write_text", full)
    result = run_format(loose, "--write")
    assert result.status == 1
    assert "No space left on device" in result.err
    assert loose.read_text(encoding="utf-8") == LOOSE


def test_json(run_format: Pml, loose: Path, tmp_path: Path) -> None:
    other = tmp_path / "html.pml"
    other.write_text("<html/>", encoding="utf-8")
    result = run_format(loose, other, "--json")
    first, second = json.loads(result.out)["files"]
    assert first["changed"] is True
    assert first["formatted"] == NEAT
    assert second["ok"] is False
    assert "html" in second["error"]
    assert result.status == 1


def test_standard_input(run_format: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(LOOSE.encode())))
    assert run_format("-").out == NEAT
    assert run_format("-", "--write").status == 2
