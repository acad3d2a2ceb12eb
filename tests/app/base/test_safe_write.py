"""Writing files whole: what stays of a file that has several names, and where a write fails half way."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from app.base import safe_write


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.pml"
    path.write_bytes(b"the old text, which is longer")
    (tmp_path / "b.pml").hardlink_to(path)
    return path


def test_a_file_of_several_names_keeps_them(file: Path, tmp_path: Path) -> None:
    for new in (b"new", b"a text that is much longer than the one before"):
        safe_write.write_bytes(file, new)
        assert (tmp_path / "b.pml").read_bytes() == file.read_bytes() == new
    assert file.stat().st_nlink == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pml", "b.pml"]


def test_a_full_disk_leaves_the_old_text_under_every_name(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, plain = file.read_bytes(), safe_write.overwrite_in_place

    def half(target: Path, data: bytes) -> None:
        if data == old:
            return plain(target, data)
        plain(target, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(safe_write, "overwrite_in_place", half)
    with pytest.raises(OSError, match="No space left"):
        safe_write.write_bytes(file, b"new text")
    assert (tmp_path / "b.pml").read_bytes() == file.read_bytes() == old
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pml", "b.pml"]


def test_a_text_that_can_be_written_nowhere_else_stays_in_its_copy(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(target: Path, data: bytes) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(safe_write, "overwrite_in_place", fail)
    with pytest.raises(OSError, match=r"is half written, and .* holds the text"):
        safe_write.write_bytes(file, b"new text")
    (copy,) = tmp_path.glob(".a.pml.*.new")
    assert copy.read_bytes() == b"new text"
