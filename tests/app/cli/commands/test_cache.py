"""`pml cache`: every command on a store with segments in it, in words and as JSON."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from app.cli.base.param_types import Age, Size
from engine.base.tiers import Outcome, Reason, Tier
from engine.prompt.recipe import TURN
from engine.store import INDEX, Lookup, Origin, Store
from tests.app.cli.base.test_output import visible
from tests.engine.cache.test_store import ORIGIN, overwrite, segment

Run = Callable[..., SimpleNamespace]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("PML_CACHE_DIR", str(folder))
    store = Store.open(folder)
    for number in range(4):
        store.save(segment(f"{number:040x}", 30, number), ORIGIN)
    store.close()
    return folder


def as_json(run_pml: Run, *words: str | Path, status: int = 0) -> dict:
    done = run_pml("cache", *words, "--json")
    assert done.status == status, done.err
    return json.loads(done.out)


def test_what_was_missing_and_what_would_go_next_are_listed(cache: Path, run_pml: Run) -> None:
    assert "No segment was missing" in run_pml("cache", "misses").out
    store = Store.open(cache)
    store.record([Lookup("gone", Tier.NONE, Outcome.MISS, Reason.BUDGET, 10, 2.5, "trip", "tokyo")])
    store.close()
    (miss,) = as_json(run_pml, "misses")["misses"]
    assert (miss["reason"], miss["meaning"]) == (Reason.BUDGET.value, Reason.BUDGET.meaning)
    words = run_pml("cache", "misses").out
    assert Reason.BUDGET.meaning in words
    assert "tokyo" in words
    assert run_pml("cache", "next", "1").out.startswith("Nothing would be evicted: ")
    run_pml("cache", "budget", str(as_json(run_pml, "stats")["bytes"]))
    found = as_json(run_pml, "next", "1")
    assert found["total"]["segments"] == len(found["first"]) == 1
    total, why, lacking = run_pml("cache", "next", "1TB").out.splitlines()[-3:]
    assert total.startswith("4 segments")
    assert "cheapest to recompute per MiB" in why
    assert "would still be missing" in lacking
    assert as_json(run_pml, "stats")["segments"] == 4, "nothing was removed"


def test_stats_say_how_full_it_is(cache: Path, run_pml: Run) -> None:
    found = as_json(run_pml, "stats")
    assert found["segments"] == 4
    assert {"budget", "policy", "scheme", "served", "pins", "evictions", "disk_free", "evicted"} <= set(found)
    words = run_pml("cache", "stats").out
    assert "4 segments" in words
    assert "left on the disk" in words


def test_verify_finds_damage_and_mends_it(cache: Path, run_pml: Run) -> None:
    assert as_json(run_pml, "verify")["clean"]
    assert "agree" in run_pml("cache", "verify").out
    path = next((cache / "files").iterdir())
    overwrite(path, b"x")
    found = as_json(run_pml, "verify", status=1)
    assert [fault["file"] for fault in found["faults"]] == [path.name]
    words = run_pml("cache", "verify", "--repair")
    assert words.status == 1
    assert "quarantined" in words.out
    assert as_json(run_pml, "verify")["segments"] == 3


def test_prune_by_size_and_age(cache: Path, run_pml: Run) -> None:
    size = as_json(run_pml, "stats")["bytes"] // 4
    assert as_json(run_pml, "prune", "--max-bytes", str(2 * size))["segments"] == 2
    assert as_json(run_pml, "prune", "--older-than", "1d")["segments"] == 0
    assert as_json(run_pml, "stats")["evictions"][0]["reason"] == "evicted: budget"
    assert run_pml("cache", "prune").status == 2
    assert run_pml("cache", "prune", "--max-bytes", "much").status == 2


def test_budget_scheme_and_pins_are_kept(cache: Path, run_pml: Run) -> None:
    kept = {"budget": 5_000_000_000, "policy": "cost", "max_age": None, "warnings": []}
    assert as_json(run_pml, "budget", "5GB", "--policy", "cost") == {
        **kept,
        "evicted": {"segments": 0, "bytes": 0},
    }
    assert as_json(run_pml, "budget") == kept
    assert as_json(run_pml, "scheme", "int8") == {"scheme": "int8"}
    assert as_json(run_pml, "scheme") == {"scheme": "int8"}
    assert as_json(run_pml, "pin", "travel") == {"pins": ["travel"], "pinned_until": {}, "warnings": []}
    assert as_json(run_pml, "prune", "--max-bytes", "0")["segments"] == 0
    assert as_json(run_pml, "unpin", "travel") == {"pins": []}
    unknown = run_pml("cache", "unpin", "travel")
    assert unknown.status == 1
    assert "is not pinned" in unknown.err
    assert as_json(run_pml, "prune", "--max-bytes", "0")["segments"] == 4


def test_a_pin_for_a_time_says_until_when(cache: Path, run_pml: Run) -> None:
    before = time.time()
    found = as_json(run_pml, "pin", "travel", "--for", "1h")
    assert found["pins"] == ["travel"]
    assert before + 3600 <= found["pinned_until"]["travel"] <= time.time() + 3600
    until = datetime.fromtimestamp(found["pinned_until"]["travel"]).strftime("%Y-%m-%d %H:%M")
    assert f"pinned: travel until {until}, " in run_pml("cache", "stats").out
    assert as_json(run_pml, "stats")["pinned_until"] == found["pinned_until"]
    assert run_pml("cache", "pin", "travel").out == "Pinned: travel.\n"
    assert "not an age" in run_pml("cache", "pin", "travel", "--for", "soon").err
    assert "must be above 0" in run_pml("cache", "pin", "travel", "--for", "0s").err


def test_what_is_kept_for_a_time_to_live_is_said_and_cleared(cache: Path, run_pml: Run) -> None:
    store = Store.open(cache)
    kept = [row["key"] for row in store.segments()][:2]
    store.keep(kept, 3600)
    store.close()
    found = as_json(run_pml, "stats")
    assert found["kept"] == sum(
        row["bytes"] for row in as_json(run_pml, "list")["segments"] if row["kept_until"]
    )
    assert "stored for a time to live: " in run_pml("cache", "stats").out
    assert as_json(run_pml, "prune", "--max-bytes", "0")["segments"] == 2
    assert as_json(run_pml, "clear") == {"removed": 2, "kept": 0}


def test_pins_that_do_not_fit_and_pins_of_nothing_are_said(cache: Path, run_pml: Run) -> None:
    unknown = run_pml("cache", "pin", "travle")
    assert unknown.status == 1
    assert "schema 'travle' has no stored segments" in unknown.err
    assert run_pml("cache", "pin", "travel").err == ""
    words = "the budget is 1,000: nothing else is stored."
    assert words in run_pml("cache", "budget", "1000").err
    assert words in run_pml("cache", "stats").err
    assert words in run_pml("cache", "pin", "travel").err
    assert words in as_json(run_pml, "stats")["warnings"][0]


def test_a_budget_of_nothing_is_a_budget(cache: Path, run_pml: Run) -> None:
    found = run_pml("cache", "budget", "0", "--yes")
    assert found.status == 0
    assert found.out.startswith("The budget is 0 B, cost. Evicted 4 segments, ")
    assert "nothing new is stored" in found.err
    assert as_json(run_pml, "budget")["budget"] == 0


def test_a_budget_that_evicts_is_not_set_where_nobody_can_be_asked(cache: Path, run_pml: Run) -> None:
    before = as_json(run_pml, "budget")
    for words in (("0",), ("0", "--json"), ("1000", "--policy", "lru")):
        found = run_pml("cache", "budget", *words)
        assert (found.status, found.out) == (2, "")
        assert re.search(r"A budget of .* evicts 4 segments, .* Nothing was changed; use --yes", found.err)
    assert as_json(run_pml, "budget") == before
    assert as_json(run_pml, "stats")["segments"] == 4


@pytest.mark.parametrize(("answer", "status", "left"), [("n", 1, 4), ("y", 0, 0)])
def test_a_budget_that_evicts_is_asked_about_at_a_terminal(
    cache: Path, run_pml: Run, monkeypatch: pytest.MonkeyPatch, answer: str, status: int, left: int
) -> None:
    asked: list[str] = []

    def told(question: str, **_options: object) -> bool:
        asked.append(question)
        return answer == "y"

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("click.confirm", told)
    found = run_pml("cache", "budget", "0")
    assert found.status == status
    assert re.fullmatch(r"A budget of 0 B evicts 4 segments, .* Continue\?", asked[0])
    assert ("nothing was evicted" in found.err) == (left == 4)
    assert as_json(run_pml, "stats")["segments"] == left


def test_an_age_limit_is_kept_and_taken_back(cache: Path, run_pml: Run) -> None:
    assert as_json(run_pml, "budget", "--max-age", "30d")["max_age"] == 30 * 86400
    assert "segments unused for 30 d are evicted" in run_pml("cache", "budget").out
    assert "segments unused for 30 d are evicted" in run_pml("cache", "stats").out
    with sqlite3.connect(cache / INDEX) as index:
        index.execute("update segments set last_used = 1 where key like '%1'")
    assert as_json(run_pml, "stats")["segments"] == 3
    assert as_json(run_pml, "budget", "--max-age", "none")["max_age"] is None
    assert run_pml("cache", "budget", "--max-age", "never").status == 2
    assert run_pml("cache", "prune", "--older-than", "none").status == 2


def test_clear_leaves_pinned_segments_and_says_so(cache: Path, run_pml: Run) -> None:
    run_pml("cache", "pin", "travel")
    words = run_pml("cache", "clear").out
    assert words == "Deleted 0 segments. 4 pinned segments stayed; --pinned deletes them too.\n"
    assert as_json(run_pml, "clear", "--pinned") == {"removed": 4, "kept": 0}


def test_encoding_over_the_budget_says_what_is_kept_and_fails(
    cache: Path, run_pml: Run, tmp_path: Path
) -> None:
    many = "".join(f'<module name="m{number}">text of number {number}</module>' for number in range(8))
    schema = tmp_path / "s.pml"
    schema.write_text(f'<schema name="s">Read. {many}</schema>')
    run_pml("cache", "clear")
    assert run_pml("encode", schema).status == 0
    run_pml("cache", "clear")
    run_pml("cache", "budget", "120000")
    found = run_pml("encode", schema)
    assert found.status == 1
    said = re.search(r"pml: (\d) of 9 segments are stored: .* pml cache budget (\d+MB) is enough", found.err)
    assert said is not None, found.err
    assert 0 < int(said[1]) < 9
    report = json.loads(run_pml("encode", schema, "--json").out)
    assert (report["kept"], report["total"]) == (int(said[1]), 9)
    run_pml("cache", "budget", said[2])
    assert run_pml("encode", schema).status == 0


def test_segments_move_to_another_store(
    cache: Path, run_pml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "travel.tar"
    assert as_json(run_pml, "export", file, "--schema", "travel")["segments"] == 4
    assert "none" in run_pml("cache", "export", tmp_path / "x.tar", "--schema", "none").err
    monkeypatch.setenv("PML_CACHE_DIR", str(tmp_path / "other"))
    assert as_json(run_pml, "import", file) == {
        "segments": 4,
        "bytes": file_bytes(cache),
        "known": 0,
        "left_out": 0,
        "unfit": [],
    }
    assert "4 were already stored" in run_pml("cache", "import", file).out
    assert run_pml("cache", "import", tmp_path / "nothing.tar").status == 2


EVIL = "x\x1b[2J\x9b31m\nSECOND LINE\x7f"


@pytest.fixture
def hostile(cache: Path) -> Path:
    """A store whose index somebody else has written: escape sequences wherever text can stand."""
    with sqlite3.connect(cache / INDEX) as index:
        index.execute("update segments set key = key || ?, model = ?, scope = ?", [EVIL, EVIL, EVIL])
        index.execute("update labels set key = key || ?, schema = schema || ?, path = ?", [EVIL, EVIL, EVIL])
        index.execute("insert into pins (schema, since) values (?, 1)", [f"travel{EVIL}"])
        index.execute("insert into evictions values (null, 1, ?, ?, ?, 1, ?)", [EVIL] * 4)
        index.execute("insert into served values (?, 'miss', ?, 1, 1, 1)", [EVIL, EVIL])
    next((cache / "files").iterdir()).write_bytes(b"x")
    (cache / "files" / f"stray{EVIL}.txt").write_bytes(b"x")
    return cache


COMMANDS: tuple[tuple[str | Path, ...], ...] = (
    ("stats",),
    ("list",),
    ("verify",),
    ("verify", "--repair"),
    ("pin", f"travel{EVIL}"),
    ("unpin", f"travel{EVIL}"),
    ("unpin", EVIL),
    ("export", "all.tar"),
    ("export", f"{EVIL}.tar", "--schema", EVIL),
    ("import", f"{EVIL}.tar"),
    ("budget",),
    ("scheme",),
    ("prune", "--max-bytes", EVIL),
    ("prune", "--older-than", "1d"),
    (EVIL,),
    ("clear",),
)


@pytest.mark.parametrize("form", [(), ("--json",), ("--debug",)])
@pytest.mark.parametrize(
    "words", COMMANDS, ids=lambda words: str(words[0]).encode("ascii", "replace").decode()
)
def test_a_hostile_store_shows_no_control_characters(
    hostile: Path, run_pml: Run, words: tuple[str, ...], form: tuple[str, ...], tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_pml("cache", *words, *form)
    for text in (done.out, done.err):
        assert visible(text), repr(text)
    if form != ("--debug",):
        assert "\nSECOND LINE" not in done.out


def test_conversation_is_exported_and_deleted_by_itself(cache: Path, run_pml: Run, tmp_path: Path) -> None:
    store = Store.open(cache)
    store.save(segment("f" * 40, 30, 9), Origin("travel", TURN, "anchored", "tiny", "f"))
    store.close()
    words = run_pml("cache", "export", tmp_path / "some.tar").out
    assert "Wrote 4 segments" in words
    assert "Left out 1 of conversations; --conversation includes them." in words
    assert as_json(run_pml, "export", tmp_path / "all.tar", "--conversation")["segments"] == 5
    assert run_pml("cache", "clear", "--conversation").out == "Deleted 1 segment.\n"
    assert as_json(run_pml, "stats")["segments"] == 4


def file_bytes(cache: Path) -> int:
    return sum(path.stat().st_size for path in (cache / "files").iterdir())


@pytest.mark.parametrize(
    ("text", "size"),
    [("500", 500), ("20GB", 20_000_000_000), ("1.5GiB", 1610612736), ("3 mb", 3_000_000), ("7k", 7000)],
)
def test_sizes(text: str, size: int) -> None:
    assert Size().convert(text, None, None) == size


@pytest.mark.parametrize(("text", "age"), [("90s", 90), ("12h", 43200), ("30d", 2592000), ("2w", 1209600)])
def test_ages(text: str, age: float) -> None:
    assert Age().convert(text, None, None) == age


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((Size(), text) for text in ("5i", "-1", "GB", "9" * 400, "9" * 20 + "TB")),
        *((Age(), text) for text in ("5", "d")),
    ],
)
def test_what_is_no_quantity_is_refused(kind: click.ParamType, text: str) -> None:
    with pytest.raises(click.BadParameter):
        kind.convert(text, None, None)


def test_the_home_folder_is_refused_before_anything_is_made(tmp_path: Path, run_pml: Run) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".profile").write_text("export A=1")
    for words in (["stats"], ["list"], ["clear"], ["verify", "--repair"], ["prune", "--older-than", "0s"]):
        done = run_pml("cache", *words, "--cache-dir", home)
        assert done.status == 1
        assert "neither empty nor a segment store" in done.err
    assert [path.name for path in home.rglob("*")] == [".profile"]


def test_verify_reports_foreign_files_and_mends_the_index(cache: Path, run_pml: Run, caplog) -> None:
    (cache / "files" / "thesis.docx").write_text("years of work")
    found = as_json(run_pml, "verify")
    assert (found["clean"], found["foreign"], found["orphans"]) == (True, ["files/thesis.docx"], [])
    assert "files/thesis.docx: does not belong to the store" in run_pml("cache", "verify", "--repair").out
    (cache / "index.sqlite").write_bytes(b"this is no database" * 100)
    done = run_pml("cache", "verify", "--repair")
    assert done.status == 0, "it is built again when the store is opened"
    assert "rebuilt from its files" in caplog.text
    assert as_json(run_pml, "verify")["segments"] == 4
    assert (cache / "files" / "thesis.docx").read_text() == "years of work"
