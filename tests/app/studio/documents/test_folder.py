"""The user's own files: written back whole to where they came from, or not at all and in words."""

from __future__ import annotations

import errno
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.base.safe_write import write_bytes
from app.studio.documents.folder import BOM, ChangedFileError, Folder, NotUtf8Error, Stamp
from engine.base.errors import PromptCacheError

TEXT = '<schema name="s">\n  é 😀\n</schema>\n'


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", [b"", BOM])
def test_line_ends_and_the_mark_survive_a_round_trip(
    folder: Folder, tmp_path: Path, bom: bytes, newline: str
) -> None:
    file = tmp_path / "a.pml"
    file.write_bytes(bom + TEXT.replace("\n", newline).encode())
    text, stamp = folder.read("a.pml")
    assert text == TEXT
    written = folder.save("a.pml", TEXT + "<!-- more -->\n", stamp)
    assert file.read_bytes() == bom + (TEXT + "<!-- more -->\n").replace("\n", newline).encode()
    assert folder.read("a.pml")[1] == written


def test_a_text_that_was_not_edited_leaves_every_byte(folder: Folder, tmp_path: Path) -> None:
    mixed = b"<a>\r\n\n\r</a>\r\n"
    (tmp_path / "a.pml").write_bytes(mixed)
    before = (tmp_path / "a.pml").stat()
    text, stamp = folder.read("a.pml")
    assert folder.save("a.pml", text, stamp) == stamp
    assert (tmp_path / "a.pml").read_bytes() == mixed
    assert (tmp_path / "a.pml").stat().st_ino == before.st_ino


def test_a_file_that_another_program_changed_is_not_overwritten(folder: Folder, tmp_path: Path) -> None:
    file = tmp_path / "a.pml"
    file.write_text("<schema/>")
    _, stamp = folder.read("a.pml")
    file.write_text("<schema>theirs</schema>")
    with pytest.raises(ChangedFileError, match="was changed by another program") as found:
        folder.save("a.pml", "<schema>ours</schema>", stamp)
    assert not found.value.gone
    assert file.read_text() == "<schema>theirs</schema>"
    written = folder.save("a.pml", "<schema>ours</schema>", stamp, force=True)
    assert file.read_text() == "<schema>ours</schema>"
    folder.save("a.pml", "<schema>later</schema>", written)
    assert file.read_text() == "<schema>later</schema>"


def test_a_file_that_was_never_read_is_not_overwritten(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "a.pml").write_text("<schema/>")
    with pytest.raises(ChangedFileError):
        folder.save("a.pml", "<schema>ours</schema>", Stamp())


def test_a_file_that_says_the_same_by_now_is_saved(folder: Folder, tmp_path: Path) -> None:
    file = tmp_path / "a.pml"
    file.write_text("<schema/>")
    _, stamp = folder.read("a.pml")
    file.write_bytes(b"<schema>\r\n</schema>")
    assert folder.save("a.pml", "<schema>\n</schema>", stamp).newline == "\r\n"
    assert file.read_bytes() == b"<schema>\r\n</schema>"


def test_a_deleted_file_is_written_anew_only_when_asked(folder: Folder, tmp_path: Path) -> None:
    file = tmp_path / "a.pml"
    file.write_bytes(b"<schema/>\r\n")
    _, stamp = folder.read("a.pml")
    file.unlink()
    with pytest.raises(ChangedFileError, match="no longer exists") as found:
        folder.save("a.pml", "<schema/>\n", stamp)
    assert found.value.gone
    assert not file.exists()
    folder.save("a.pml", "<schema/>\n", stamp, force=True)
    assert file.read_bytes() == b"<schema/>\r\n"


def test_permissions_stay_and_a_link_stays_a_link(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    target = tmp_path / "below" / "target.pml"
    target.write_text("<schema/>")
    target.chmod(0o640)
    (tmp_path / "a.pml").symlink_to(target)
    _, stamp = folder.read("a.pml")
    folder.save("a.pml", "<schema>new</schema>", stamp)
    assert (tmp_path / "a.pml").is_symlink()
    assert target.read_text() == "<schema>new</schema>"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_nothing_is_written_through_a_link_that_leads_out(folder: Folder, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside.pml"
    (tmp_path / "dangling.pml").symlink_to(outside)
    with pytest.raises(PromptCacheError, match="A link"):
        folder.create("dangling.pml", "<schema/>", Stamp())
    assert not outside.exists()
    outside.write_text("<schema/>")
    text, stamp = folder.read("dangling.pml")
    for force in (False, True):
        with pytest.raises(PromptCacheError, match="outside the studio's folder"):
            folder.save("dangling.pml", text + "\n", stamp, force=force)
    assert outside.read_text() == "<schema/>"


def test_a_read_only_file_is_left_alone(folder: Folder, tmp_path: Path) -> None:
    file = tmp_path / "a.pml"
    file.write_text("<schema/>")
    file.chmod(0o444)
    _, stamp = folder.read("a.pml")
    with pytest.raises(
        PromptCacheError, match=r"was not written: the file is read-only.*saved in your draft"
    ):
        folder.save("a.pml", "<schema>new</schema>", stamp)
    assert file.read_text() == "<schema/>"
    assert [path.name for path in tmp_path.iterdir()] == ["a.pml"]


def test_a_full_disk_is_a_sentence(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.pml").write_text("<schema/>")
    _, stamp = folder.read("a.pml")

    def full_disk(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(PromptCacheError, match="No space left on device"):
        folder.save("a.pml", "<schema>new</schema>", stamp)
    assert (tmp_path / "a.pml").read_text() == "<schema/>"


def test_what_does_not_read_back_is_not_called_saved(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.pml").write_text("<schema/>")
    _, stamp = folder.read("a.pml")
    monkeypatch.setattr("app.studio.documents.folder.write_bytes", lambda *_arguments, **_options: None)
    with pytest.raises(PromptCacheError, match="differs from the text that was written"):
        folder.save("a.pml", "<schema>new</schema>", stamp)


def test_other_encodings_are_offered_never_guessed(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "a.pml").write_bytes("<schema>\ncafé “x” €</schema>".encode("windows-1252") + b"\x81")
    with pytest.raises(NotUtf8Error, match=r"byte 0xE9 in line 2.*Windows-1252.*saved as UTF-8") as found:
        folder.read("a.pml")
    text, stamp = folder.read("a.pml", found.value.encoding)
    assert text == "<schema>\ncafé “x” €</schema>\x81"
    folder.save("a.pml", text, stamp)
    assert (tmp_path / "a.pml").read_bytes() == text.encode()
    (tmp_path / "b.pml").write_bytes("<schema>é</schema>".encode("utf-16"))
    with pytest.raises(NotUtf8Error, match="UTF-16") as found:
        folder.read("b.pml")
    assert folder.read("b.pml", found.value.encoding)[0] == "<schema>é</schema>"
    (tmp_path / "c.pml").write_bytes(b"\xff\xfea")
    with pytest.raises(PromptCacheError, match="broken UTF-16"):
        folder.read("c.pml", "utf-16")


def test_half_of_a_surrogate_pair_is_a_sentence(folder: Folder) -> None:
    with pytest.raises(PromptCacheError, match="Line 2 has half of a surrogate pair"):
        folder.create("a.pml", "<schema>\n\ud83d</schema>", Stamp())


def test_a_new_file_takes_no_name_that_is_taken(folder: Folder, tmp_path: Path) -> None:
    stamp = folder.create("a.pml", "<schema/>\n", Stamp(newline="\r\n", bom=True))
    assert (tmp_path / "a.pml").read_bytes() == BOM + b"<schema/>\r\n"
    assert folder.save("a.pml", "<schema/>\n<!-- -->\n", stamp).digest != stamp.digest
    with pytest.raises(PromptCacheError, match="already"):
        folder.create("a.pml", "other", Stamp())


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../a.pml",
        "/tmp/a.pml",
        "a/b.pml",
        "a\\b.pml",
        "a.txt",
        ".a.pml",
        "a\n.pml",
        "x" * 300 + ".pml",
    ],
)
def test_names_that_leave_the_folder_are_refused(folder: Folder, tmp_path: Path, name: str) -> None:
    with pytest.raises(PromptCacheError):
        folder.create(name, "<schema/>", Stamp())
    with pytest.raises(PromptCacheError):
        folder.read(name)
    assert list(tmp_path.iterdir()) == []


def test_another_tab_is_not_called_another_program(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "a.pml").write_text("<schema/>")
    _, first = folder.read("a.pml")
    folder.save("a.pml", "<schema>one</schema>", first)
    with pytest.raises(ChangedFileError, match="was saved from another tab or window of the studio"):
        folder.save("a.pml", "<schema>two</schema>", first)
    (tmp_path / "a.pml").write_text("<schema>theirs</schema>")
    with pytest.raises(ChangedFileError, match="was changed by another program"):
        folder.save("a.pml", "<schema>two</schema>", first)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_of_two_studios_that_save_at_once_one_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.pml").write_text(TEXT, encoding="utf-8")
    first, second = Folder(tmp_path), Folder(tmp_path)
    _, stamp = first.read("a.pml")
    writes, goes_on = threading.Event(), threading.Event()

    def slowly(path: Path, data: bytes, *, overwrite: bool) -> None:
        writes.set()
        goes_on.wait(30)
        write_bytes(path, data, overwrite=overwrite)

    monkeypatch.setattr("app.studio.documents.folder.write_bytes", slowly)
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(first.save, "a.pml", "<one/>", stamp)
        assert writes.wait(30)
        other = threads.submit(second.save, "a.pml", "<other/>", stamp)
        with pytest.raises(TimeoutError):
            other.result(0.2)
        goes_on.set()
        one.result()
        with pytest.raises(ChangedFileError):
            other.result()
    assert (tmp_path / "a.pml").read_text(encoding="utf-8") == "<one/>"


def test_a_folder_that_cannot_be_locked_is_written_to(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> bool:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("app.studio.documents.folder.lock_descriptor", refuse)
    folder.create("a.pml", TEXT, Stamp())
    assert (tmp_path / "a.pml").read_text(encoding="utf-8") == TEXT


@pytest.mark.parametrize("name", [".git/a.pml", "far/.hidden/a.pml"])
def test_nothing_goes_where_it_would_not_be_listed(folder: Folder, tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    folder.create("a.pml", TEXT, Stamp())
    for write in (lambda: folder.create(name, TEXT, Stamp()), lambda: folder.rename("a.pml", name)):
        with pytest.raises(PromptCacheError, match="begin with a dot are hidden"):
            write()
    assert folder.names() == ["a.pml"]


def test_a_pipe_is_not_waited_for(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "a.pml").write_text("<schema/>")
    _, stamp = folder.read("a.pml")
    (tmp_path / "a.pml").unlink()
    os.mkfifo(tmp_path / "a.pml")
    with pytest.raises(PromptCacheError, match="not a regular file"):
        folder.save("a.pml", "<schema>new</schema>", stamp)


def test_without_a_folder_nothing_is_written() -> None:
    with pytest.raises(PromptCacheError, match="--schemas"):
        Folder().create("a.pml", "", Stamp())
    assert Folder().names() == []


def test_documents_of_folders_inside_are_found_read_and_saved(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "trips" / "far").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    for name in ("b.pml", "trips/a.pml", "trips/far/c.xml", "trips/notes.txt", ".hidden/d.pml"):
        (tmp_path / name).write_text("<schema/>")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "trips")
    assert folder.names() == ["b.pml", "trips/a.pml", "trips/far/c.xml"]
    assert [found.size for found in folder.documents()] == [9, 9, 9]
    text, stamp = folder.read("trips/far/c.xml")
    origin = folder.origin("trips/far/c.xml")
    assert folder.name_of(origin) == "trips/far/c.xml"
    folder.save("trips/far/c.xml", text + "\n", stamp)
    assert (tmp_path / "trips" / "far" / "c.xml").read_text() == "<schema/>\n"
    folder.create("trips/new.pml", "<schema/>", Stamp())
    assert not folder.owns(f"file:{tmp_path.parent}/b.pml")


@pytest.mark.parametrize("name", ["trips/../../a.pml", "trips//a.pml", "./a.pml", "out/a.pml", "C:\\a.pml"])
def test_no_path_leads_out_of_the_folder(folder: Folder, tmp_path: Path, name: str) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "a.pml").write_text("<schema/>")
    (tmp_path / "trips").mkdir()
    (tmp_path / "out").symlink_to(outside)
    for refused in (folder.read, lambda one: folder.create(one, "x", Stamp()), folder.origin):
        with pytest.raises(PromptCacheError):
            refused(name)
    assert (outside / "a.pml").read_text() == "<schema/>"


def test_a_document_is_renamed_to_a_name_that_is_free(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "a.pml").write_text("<schema/>")
    (tmp_path / "b.pml").write_text("<prompt/>")
    (tmp_path / "trips").mkdir()
    with pytest.raises(PromptCacheError, match=r"A file 'b\.pml' already exists"):
        folder.rename("a.pml", "b.pml")
    for new in ("../c.pml", "c.txt", ""):
        with pytest.raises(PromptCacheError, match="Write a plain file name"):
            folder.rename("a.pml", new)
    with pytest.raises(PromptCacheError, match=r"'gone/c\.pml' is in a folder that does not exist"):
        folder.rename("a.pml", "gone/c.pml")
    folder.rename("a.pml", "trips/c.pml")
    assert folder.names() == ["b.pml", "trips/c.pml"]
    with pytest.raises(PromptCacheError, match=r"'a\.pml' no longer exists"):
        folder.rename("a.pml", "d.pml")


def test_a_document_is_renamed_where_no_links_are(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_names: object, **_options: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("os.link", no_links)
    (tmp_path / "a.pml").write_text("<schema/>")
    folder.rename("a.pml", "b.pml")
    assert (tmp_path / "b.pml").read_text() == "<schema/>"
    (tmp_path / "a.pml").write_text("<prompt/>")
    with pytest.raises(PromptCacheError, match="already"):
        folder.rename("a.pml", "b.pml")
    assert folder.names() == ["a.pml", "b.pml"]


def test_a_document_is_looked_at_without_being_opened(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "a.pml").write_text("<schema/>")
    _, stamp = folder.read("a.pml")
    assert folder.look("a.pml", stamp) == "same"
    (tmp_path / "a.pml").write_text("<schema>theirs</schema>")
    assert folder.look("a.pml", stamp) == "changed"
    (tmp_path / "a.pml").unlink()
    assert folder.look("a.pml", stamp) == "gone"
