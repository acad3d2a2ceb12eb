"""`pml watch`: what is told when files are saved, replaced, half written and taken away."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.base.watcher import Changes, Watch
from engine.pml import Prompt, Schema, make
from engine.pml.diagnostics.diagnostic import NOWHERE

SCHEMA = """<schema name="trip"><module name="tokyo">Gardens.</module>
<module name="rome">Ruins.</module></schema>
"""
PROMPT = '<prompt schema="trip"><tokyo/>Where?</prompt>\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trip.pml").write_text(SCHEMA, encoding="utf-8")
    (tmp_path / "one.pml").write_text(PROMPT, encoding="utf-8")
    return tmp_path


def settled(watch: Watch) -> list[str]:
    """What is told once a change has come to rest."""
    return [line for _ in range(4) for line in watch.look()]


def test_each_document_is_told_of_at_first(folder: Path) -> None:
    assert settled(Watch([folder])) == ["trip.pml: schema, ok", "one.pml: prompt, ok"]


def test_a_change_is_one_line_and_no_change_is_none(folder: Path) -> None:
    watch = Watch([folder])
    settled(watch)
    assert settled(watch) == []
    (folder / "one.pml").write_text(PROMPT.replace("tokyo", "venice"), encoding="utf-8")
    (line,) = settled(watch)
    assert line.startswith("one.pml: prompt, 1 error; line 1: E402: schema 'trip' has no module 'venice'")


def test_a_schema_brings_the_line_of_a_prompt_that_it_breaks(folder: Path) -> None:
    watch = Watch([folder])
    settled(watch)
    (folder / "trip.pml").write_text(SCHEMA.replace("Ruins", "Ruins and fountains"), encoding="utf-8")
    assert settled(watch) == ["trip.pml: schema, ok"]
    (folder / "trip.pml").write_text(SCHEMA.replace("tokyo", "kyoto"), encoding="utf-8")
    schema, prompt = settled(watch)
    assert schema == "trip.pml: schema, ok"
    assert "E402" in prompt


def test_a_file_that_an_editor_replaces_is_seen(folder: Path) -> None:
    watch = Watch([folder / "one.pml"])
    settled(watch)
    new = folder / ".one.pml.new"
    new.write_text(PROMPT.replace("Where?", "Which?"), encoding="utf-8")  # as long as before
    before = (folder / "one.pml").stat()
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    new.replace(folder / "one.pml")
    assert settled(watch) == ["one.pml: prompt, ok"]


def test_what_is_half_written_waits_or_is_told_and_ends_nothing(folder: Path) -> None:
    watch = Watch([folder])
    settled(watch)
    (folder / "one.pml").write_bytes(PROMPT.encode()[:20] + b"\xe6")
    assert watch.look() == []  # it may be written still
    (line,) = settled(watch)
    assert "is not UTF-8" in line
    (folder / "one.pml").unlink()
    assert settled(watch) == ["one.pml: gone"]
    (folder / "one.pml").write_text(PROMPT, encoding="utf-8")
    assert settled(watch) == ["one.pml: prompt, ok"]


def test_a_file_that_a_module_is_read_from_counts(folder: Path) -> None:
    (folder / "notes.txt").write_text("Some notes.", encoding="utf-8")
    source = SCHEMA.replace("</schema>", '<module name="notes" src="notes.txt"/></schema>')
    (folder / "trip.pml").write_text(source, encoding="utf-8")
    watch = Watch([folder])
    settled(watch)
    (folder / "notes.txt").unlink()
    line, *_ = settled(watch)
    assert line.startswith("trip.pml: schema, 1 error; line 2: E209")


def test_a_prompt_alone_brings_its_schema(folder: Path) -> None:
    watch = Watch([folder / "one.pml"])
    assert settled(watch) == ["one.pml: prompt, ok"]
    (folder / "trip.pml").write_text(SCHEMA.replace("tokyo", "kyoto"), encoding="utf-8")
    schema, prompt = settled(watch)
    assert schema == "trip.pml: schema, ok"
    assert "E402" in prompt
    (folder / "one.pml").write_text('<prompt schema="other"/>', encoding="utf-8")
    assert settled(watch) == ["one.pml: prompt, ok; no schema 'other' is in its folder"]


def test_a_model_judges_and_encodes_what_is_sound(folder: Path) -> None:
    encoded: list[str] = []

    def deepen(schema: Schema, prompt: Prompt | None) -> tuple:
        return (make("E502", "too many tokens", NOWHERE, ""),) if prompt else ()

    def encode(schema: Schema) -> str:
        encoded.append(schema.name)
        return "encoded 2 segments"

    watch = Watch([folder], deepen, encode)
    assert settled(watch) == [
        "trip.pml: schema, ok; encoded 2 segments",
        "one.pml: prompt, 1 error; line 1: E502: too many tokens",
    ]
    (folder / "trip.pml").write_text(SCHEMA.replace("</schema>", ""), encoding="utf-8")
    assert "E105" in settled(watch)[0]
    assert encoded == ["trip"]


def test_a_file_is_told_of_when_two_looks_agree(tmp_path: Path) -> None:
    path, changes = tmp_path / "a", Changes()
    assert changes.look([path]) == set()
    path.write_text("a", encoding="utf-8")
    assert changes.look([path]) == set()
    assert changes.look([path]) == {path}
    path.unlink()
    assert changes.look([path]) == set()
    assert changes.look([path]) == {path}


def test_a_prompt_is_told_of_when_its_schema_goes(folder: Path) -> None:
    watch = Watch([folder])
    settled(watch)
    (folder / "trip.pml").unlink()
    gone, prompt = settled(watch)
    assert gone == "trip.pml: gone"
    assert prompt == "one.pml: prompt, ok; no schema 'trip' is in its folder"


def test_a_model_encodes_what_is_new_until_ctrl_c(
    place: Path, run_pml: Callable[..., SimpleNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(range(9))

    def pause(_: float) -> None:
        if next(looks) == 8:
            raise KeyboardInterrupt

    clock = SimpleNamespace(sleep=pause, strftime=time.strftime)
    monkeypatch.setattr("app.cli.commands.watch.time", clock)
    done = run_pml("watch", "trip.pml", "--encode")
    assert done.status == 0, done.err
    _, line = done.out.splitlines()
    assert re.search(
        r"trip\.pml: schema, ok; encoded \d+ segments \(\d+ tokens\) in .*, 0 were already", line
    )


def test_a_schema_is_told_of_again_when_what_it_includes_changes(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    rules = tmp_path / "parts" / "rules.pml"
    rules.write_text('<schema name="r"><module name="brief">Be brief.</module></schema>', encoding="utf-8")
    main = '<schema name="s"><include src="parts/rules.pml"/></schema>'
    (tmp_path / "s.pml").write_text(main, encoding="utf-8")
    (tmp_path / "one.pml").write_text('<prompt schema="s"><brief/>\nWhy?</prompt>', encoding="utf-8")
    watch = Watch([tmp_path])
    assert settled(watch) == ["s.pml: schema, ok", "one.pml: prompt, ok"]
    rules.write_text('<schema name="r"><module name="short">Be brief.</module></schema>', encoding="utf-8")
    (prompt,) = settled(watch)
    assert "E402" in prompt
    rules.write_text('<schema name="r"><module name="a b">x</module></schema>', encoding="utf-8")
    assert "1 error; parts/rules.pml, line 1: E301" in settled(watch)[0]
