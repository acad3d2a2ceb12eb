"""A `src` file is read beneath the schema's folder, whatever is renamed and linked meanwhile."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.exchange.folder.from_folder import from_folder
from engine.files import safe_open
from engine.files.safe_open import open_beneath
from engine.pml import parse_schema
from engine.pml.parse.sources import MAX_TOTAL, SourceError, read_source
from tests.drawing import EVERY

SECONDS = 2.0 if EVERY else 0.2
SWAP = """
import os, sys
inside, parked, link = sys.argv[1:]
print("swapping", flush=True)
while os.getppid() == {parent}:
    os.rename(inside, parked)
    os.rename(link, inside)
    os.rename(inside, link)
    os.rename(parked, inside)
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A schema's folder, beside one with a secret in a file of the same name."""
    for folder, text in (("base/notes/deep", "fine"), ("secret/deep", "secret")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.txt").write_text(text)
        (tmp_path / folder).with_name("x.txt").write_text(text)
    return tmp_path / "base"


@contextmanager
def swapping(base: Path, inside: str, target: Path) -> Iterator[None]:
    """Another process takes a folder away and puts a link to another in its place, over and over."""
    link = base.parent / "link"
    link.symlink_to(target)
    words = [base / inside, base.parent / "parked", link]
    program = [sys.executable, "-c", SWAP.format(parent=os.getpid()), *map(str, words)]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        try:
            yield
        finally:
            swapper.kill()


@pytest.mark.parametrize(
    ("inside", "target", "src"),
    [
        ("notes", "secret", "notes/x.txt"),
        ("notes", "secret", "notes/deep/x.txt"),
        ("notes/deep", "secret/deep", "notes/deep/x.txt"),
        ("notes/x.txt", "secret/x.txt", "notes/x.txt"),
        ("notes", "secret", "by-link/x.txt"),
    ],
)
def test_no_renaming_makes_a_file_outside_readable(base: Path, inside: str, target: str, src: str) -> None:
    (base / "by-link").symlink_to("notes")
    texts: dict[str, int] = {}
    with swapping(base, inside, base.parent / target):
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or "fine" not in texts:
            try:
                text = read_source(src, base)
            except SourceError as error:
                text = error.code
            texts[text] = texts.get(text, 0) + 1
    assert "secret" not in texts, texts


def test_no_renaming_makes_an_import_list_or_read_a_folder_outside(base: Path) -> None:
    (base.parent / "secret" / "only-there.txt").write_text("secret")
    with swapping(base, "notes", base.parent / "secret"):
        end = time.monotonic() + SECONDS
        (base / "always.txt").write_text("always")
        while time.monotonic() < end:
            made = from_folder(base, "s")
            assert "secret" not in str(made.schema.children)
            assert not any("only-there" in note for note in made.notes), made.notes


def test_an_import_follows_the_link_that_it_is_given(base: Path) -> None:
    (base.parent / "link").symlink_to(base)
    (base / "linked").symlink_to("notes")
    assert from_folder(base.parent / "link", "s").schema == from_folder(base, "s").schema


def test_links_that_stay_inside_are_followed(base: Path) -> None:
    links = {
        "file": "notes/x.txt",
        "folder": "notes",
        "twice": "folder/deep",
        "notes/up": "../notes/deep",
        "notes/deep/round": "../../folder/./deep//x.txt",
        "whole": str(base.resolve() / "notes"),
        "here": ".",
    }
    for name, target in links.items():
        (base / name).symlink_to(target)
    for src in (
        *("file", "folder/x.txt", "folder/deep/x.txt", "twice/x.txt", "notes/up/x.txt", "notes/deep/round"),
        *("whole/x.txt", "here/here/notes/x.txt", "./notes//x.txt", "folder/up/x.txt"),
    ):
        assert read_source(src, base) == "fine", src


def test_links_that_lead_out_are_refused(base: Path) -> None:
    secret = base.parent / "secret"
    links = {
        "absolute": str(secret),
        "relative": "../secret",
        "notes/deep/up": "../../../secret",
        "twice": "relative",
        "back": f"../{base.name}/notes",
        "sibling": str(base.resolve()) + "-other",
        "root": "/",
    }
    (base.parent / "base-other").mkdir()
    (base.parent / "base-other" / "x.txt").write_text("secret")
    for name, target in links.items():
        (base / name).symlink_to(target)
    for src in (*(f"{name}/x.txt" for name in links if name != "root"), "root/etc/hostname"):
        with pytest.raises(SourceError, match="links outside the document's folder") as refused:
            read_source(src, base)
        assert refused.value.code == "E208", src


def test_links_that_go_round_and_paths_without_end_are_refused(base: Path) -> None:
    (base / "a").symlink_to("b")
    (base / "b").symlink_to("a")
    (base / "grows").symlink_to("grows/x")
    (base / "dot").symlink_to(".")
    for src in ("a", "b/x", "grows", "dot/" * 100 + "x.txt", "notes/" + "deep/" * 100_000):
        with pytest.raises(SourceError) as refused:
            read_source(src, base)
        assert refused.value.code == "E209", src


def test_reading_leaves_no_descriptor_open(base: Path) -> None:
    (base / "up").symlink_to("notes/../notes/deep")
    (base / "out").symlink_to("../secret")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for src in ("notes/x.txt", "up/x.txt", "out/x.txt", "missing/x", "notes/deep", "notes/x.txt/y"):
        with contextlib.suppress(SourceError):
            read_source(src, base)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_without_a_free_descriptor_it_is_said(base: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))  # those that are open stay so
        with pytest.raises(SourceError, match="too many open files"):
            read_source("notes/deep/x.txt", base)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_may_be_crossed_but_not_listed_is_crossed(base: Path) -> None:
    (base / "notes").chmod(0o311)
    try:
        assert read_source("notes/x.txt", base) == "fine"
    finally:
        (base / "notes").chmod(0o755)


def test_systems_that_cannot_open_from_a_folder_resolve_paths(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_open, "_FROM_FOLDERS", False)
    (base / "inside").symlink_to("notes/x.txt")
    (base / "out").symlink_to("../secret")
    (base / "round").symlink_to("round")
    assert read_source("notes/x.txt", base) == read_source("inside", base) == "fine"
    for src, code in (("out/x.txt", "E208"), ("round", "E209"), ("missing", "E209")):
        with pytest.raises(SourceError) as refused:
            read_source(src, base)
        assert refused.value.code == code


def naming(sources: list[str]) -> str:
    modules = (f'<module name="m{index}" src="{src}"/>' for index, src in enumerate(sources))
    return f'<schema name="a">{"".join(modules)}</schema>'


def test_all_files_of_a_schema_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.pml.parse.sources.MAX_TOTAL", 10)
    (tmp_path / "four").write_text("1234")
    (tmp_path / "six").write_text("éé56")
    assert parse_schema(naming(["four", "six"]), base=tmp_path).ok
    parsed = parse_schema(naming(["four", "six", "four", "four"]), base=tmp_path)
    assert [found.code for found in parsed.diagnostics] == ["E209", "E209"]
    assert "at most 40 MB in total" in parsed.diagnostics[0].message
    third = parsed.source.index('"m2" src="four"')
    assert parsed.diagnostics[0].span.start == parsed.source.index("four", third)
    assert parsed.tree is not None
    assert [bool(module.children) for module in parsed.tree.modules()] == [True, True, False, False]


def test_reading_stops_at_the_bound_and_reads_no_file_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.pml.parse.sources.MAX_TOTAL", 10)
    read: list[str] = []

    def counted(base: Path, path: str) -> int:
        read.append(path)
        return open_beneath(base, path)

    monkeypatch.setattr("engine.pml.parse.sources.open_beneath", counted)
    names = [f"f{index}" for index in range(6)]
    for name in names:
        (tmp_path / name).write_text("1234")
    assert parse_schema(naming(["f0", "f0"]), base=tmp_path).ok
    assert read == ["f0"]
    read.clear()
    assert not parse_schema(naming(names), base=tmp_path).ok
    assert read == names[:3]


def test_the_bound_is_the_one_that_the_message_names() -> None:
    assert MAX_TOTAL == 40 * 1024 * 1024
