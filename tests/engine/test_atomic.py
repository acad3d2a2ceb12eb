"""Files that are written whole or not at all, whatever the platform can and cannot."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.files import atomic
from engine.files.directory import Directory


@pytest.fixture(params=["given by path", "held", "looked up by path"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Directory | Path]:
    if request.param == "given by path":
        yield tmp_path
        return
    if request.param == "looked up by path":
        monkeypatch.setattr(os, "supports_dir_fd", set())
    with contextlib.closing(Directory.at(tmp_path)) as held:
        yield held


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def write(folder: Directory | Path, content: bytes, **options: Any) -> None:
    with atomic.writing(folder, "a", **options) as file:
        file.write(content)


def test_the_name_stands_for_the_old_content_until_all_of_the_new_is_written(
    folder: Directory | Path, tmp_path: Path
) -> None:
    write(folder, b"old")
    with atomic.writing(folder, "a") as file:
        file.write(b"new")
        file.flush()
        assert (tmp_path / "a").read_bytes() == b"old"
        assert len(names(tmp_path)) == 2
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_whoever_gives_up_leaves_nothing_behind(folder: Directory | Path, tmp_path: Path) -> None:
    def give_up() -> None:
        with atomic.writing(folder, "a") as file:
            file.write(b"new")
            raise KeyboardInterrupt

    write(folder, b"old")
    with pytest.raises(KeyboardInterrupt):
        give_up()
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
def test_a_full_disk_leaves_the_old_content(
    folder: Directory | Path, tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, b"old")
    plain = getattr(os, call)

    def full(*arguments: object, **named: object) -> object:
        if call == "open" and arguments[0] == tmp_path:  # the folder
            return plain(*arguments, **named)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(OSError, match="No space left"):
            write(folder, b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_is_taken_while_it_is_written_stays(
    folder: Directory | Path, tmp_path: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_named: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)

    def take_turns() -> None:
        with atomic.writing(folder, "a", replace=False) as file:
            file.write(b"mine")
            (tmp_path / "a").write_bytes(b"theirs")

    with pytest.raises(FileExistsError):
        take_turns()
    assert (tmp_path / "a").read_bytes() == b"theirs"
    assert names(tmp_path) == ["a"]
    (tmp_path / "a").unlink()
    write(folder, b"mine", replace=False)
    assert (tmp_path / "a").read_bytes() == b"mine"
    assert names(tmp_path) == ["a"]


def test_permissions_are_what_was_asked_for(folder: Directory | Path, tmp_path: Path) -> None:
    @contextmanager
    def umask(mask: int) -> Iterator[None]:
        before = os.umask(mask)
        yield
        os.umask(before)

    with umask(0o027):
        for mode, found in ((0o600, 0o600), (0o400, 0o400), (0o664, 0o664), (None, 0o640)):
            write(folder, b"", mode=mode)
            assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == found


def test_a_folder_that_is_renamed_meanwhile_is_the_one_that_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with atomic.writing(tmp_path / "one", "a") as file:
        (tmp_path / "one").rename(tmp_path / "two")
        (tmp_path / "one").mkdir()
        file.write(b"new")
    assert names(tmp_path / "one") == []
    assert names(tmp_path / "two") == ["a"]


@pytest.mark.parametrize(
    "gone", [("O_DIRECTORY",), ("O_CLOEXEC", "O_NOFOLLOW"), ("fchmod",), ("O_DIRECTORY", "fchmod")]
)
def test_a_platform_without_some_calls_writes_all_the_same(
    tmp_path: Path, gone: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in gone:
        monkeypatch.delattr(os, name)
    write(tmp_path, b"old")
    write(tmp_path, b"new")
    with pytest.raises(FileExistsError):
        write(tmp_path, b"newer", replace=False)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert names(tmp_path) == ["a"]


def test_the_folder_is_flushed_where_the_file_system_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, flushed = os.fsync, []

    def no_folders(descriptor: int) -> None:
        flushed.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        if flushed[-1]:
            raise OSError(errno.EINVAL, "not of a folder")
        plain(descriptor)

    monkeypatch.setattr(os, "fsync", no_folders)
    write(tmp_path, b"new")
    assert flushed == [False, True]
    assert names(tmp_path) == ["a"]


def test_files_are_put_in_their_place_here_and_nowhere_else() -> None:
    """What is written over in place, because it has several names, is flushed there too."""
    root = Path(atomic.__file__).parents[2]
    found = {
        str(path.relative_to(root))
        for folder in ("engine", "app", "benchmarks", "training")
        for path in (root / folder).rglob("*.py")
        if re.search(r"fsync\(|mkstemp|NamedTemporaryFile", path.read_text(encoding="utf-8"))
    }
    assert found == {"engine/files/atomic.py", "engine/files/directory.py", "app/base/safe_write.py"}
