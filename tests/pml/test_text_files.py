"""One reader for every file of text: what it takes, and the sentence for what it does not."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from app.studio.documents.folder import Folder, NotUtf8Error
from engine.base.errors import PromptCacheError
from engine.exchange import import_from
from engine.files.text_files import (
    MAX_BYTES,
    EncodingError,
    MissingFileError,
    TextFileError,
    decode,
    read_stream,
    read_text_file,
)
from engine.pml import parse_schema
from engine.pml.parse.sources import SourceError, read_source


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbf\xef\xbb\xbfGr\xc3\xbc\xc3\x9fe\r\n")
    assert read_text_file(tmp_path / "a") == "\ufeffGrüße\r\n"


@pytest.mark.parametrize(
    ("data", "at", "says"),
    [
        (b"one\ntwo \xe9", 8, "is not UTF-8: byte 0xE9 in line 2"),
        (b"\xef\xbb\xbf\xff", 0, "byte 0xFF in line 1"),
        (b"\xed\xa0\x80", 0, "byte 0xED"),  # half of a surrogate pair
        (b"\xff\xfea\x00", 0, "mark of UTF-16"),
    ],
)
def test_what_is_not_utf8_is_named_by_its_byte(data: bytes, at: int, says: str) -> None:
    with pytest.raises(EncodingError, match=says) as refused:
        decode(data, "x.pml")
    assert (refused.value.at, refused.value.wide) == (at, "UTF-16" in says)


def test_what_is_no_plain_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name, says in (
        ("pipe", "not a regular file"),
        ("", "is a folder"),
        ("loop", "cannot be read"),
        ("a\0", "null byte"),
    ):
        with pytest.raises(TextFileError, match=says):
            read_text_file(str(tmp_path / name) if name else tmp_path)
    with pytest.raises(MissingFileError, match="it does not exist"):
        read_text_file(tmp_path / "none", "it")


def test_a_folder_is_said_to_be_one_where_the_system_opens_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(TextFileError, match="is a folder"):
        read_text_file(tmp_path)
    with pytest.raises(TextFileError, match="may not be read"):
        read_text_file(tmp_path / "a")


def test_every_reader_has_the_same_limit(tmp_path: Path) -> None:
    most = b'<schema name="a">' + b"x" * (MAX_BYTES - 26) + b"</schema>"
    assert len(most) == MAX_BYTES
    for name, data, fits in (("most.pml", most, True), ("over.pml", most + b"\n", False)):
        (tmp_path / name).write_bytes(data)
        assert parse_schema(data).ok is fits
        readers = (
            lambda name=name: read_text_file(tmp_path / name),
            lambda name=name: read_source(name, tmp_path),
            lambda name=name: Folder(tmp_path).read(name),
            lambda name=name: import_from(tmp_path / name, "jinja"),
            lambda data=data: read_stream(io.BytesIO(data), "standard input"),
        )
        for read in readers:
            if fits:
                read()
            else:
                with pytest.raises(PromptCacheError, match="larger than 5 MB"):
                    read()


def test_every_reader_names_the_byte(tmp_path: Path) -> None:
    (tmp_path / "a.pml").write_bytes(b"a\n\xff")
    for read in (
        lambda: read_text_file(tmp_path / "a.pml"),
        lambda: import_from(tmp_path / "a.pml", "jinja"),
        lambda: read_source("a.pml", tmp_path),
        lambda: Folder(tmp_path).read("a.pml"),
    ):
        with pytest.raises((TextFileError, SourceError, NotUtf8Error), match="byte 0xFF in line 2"):
            read()
