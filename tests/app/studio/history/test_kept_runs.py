"""Runs on disk: bounds, names, damage, other studios, and files that nobody can write."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from app.studio.database import FILE, UserDatabase
from app.studio.history import Record, RunStore, read_frame
from app.studio.history.compare import beside
from app.studio.history.frames import LEAST_MS, MOST_MS
from app.studio.history.sharing import from_text, to_json
from app.studio.history.shown import shown
from engine.base.errors import PromptCacheError

SCHEMA = '<schema name="s"><module name="m">one two</module></schema>'
PROMPT = '<prompt schema="s"><m/>Go on.</prompt>'


def frame(text: str = "an answer", **more: Any) -> dict[str, Any]:
    side = {"state": "done", "text": text, "ttft_ms": 12.5, "timeline_ms": {"prefill": 12.5}, "ended": "eos"}
    return {
        "format": 1,
        "schema": "s",
        "started": "2026-03-01T10:00:00+01:00",
        "state": "done",
        "settings": {"scope": "anchored", "seed": 3, "stop": ["x"]},
        "model": {"name": "demo", "dtype": "float32"},
        "encoding": {"ms": 80.0, "segments": 2, "tokens": 40, "modules": ["m"]},
        "sides": {"cached": side, "uncached": {**side, "ttft_ms": 50.0, "timeline_ms": {"prefill": 50.0}}},
        "comparison": {"ttft_speedup": 4.0, "first_token_agrees": True, "kl_first_token": 0.0},
        "payback": {"first_ms": 92.5, "runs": 3, "words": "after 3 runs"},
        "difference": {"cached": [], "uncached": [], "differing": 0},
        **more,
    }


def record(number: int = 0, **given: Any) -> Record:
    told = frame(started=f"2026-03-01T10:{number // 60:02}:{number % 60:02}+01:00")
    return Record(**{"schema": SCHEMA, "prompt": PROMPT, "frame": told, **given})


def test_a_run_is_found_again_by_another_studio(tmp_path: Path) -> None:
    store, kept = RunStore(UserDatabase(tmp_path)), record(name="first", origin="sample:travel")
    store.keep(kept)
    found = RunStore(UserDatabase(tmp_path)).find([kept.id])[0]
    assert (found.schema, found.prompt, found.name, found.origin) == (
        SCHEMA,
        PROMPT,
        "first",
        "sample:travel",
    )
    assert found.told == kept.told
    assert "difference" not in found.frame
    (summary,) = RunStore(UserDatabase(tmp_path)).summaries()
    assert (summary["cached_ms"], summary["uncached_ms"], summary["speedup"]) == (12.5, 50.0, 4.0)
    rounded = frame(model={"name": "demo", "weights": "int8"})
    assert record(frame=rounded).summary()["model"] == "demo · int8 weights"
    assert (summary["encode_ms"], summary["first_ms"]) == (80.0, 92.5)
    assert summary["prompt"] == "Go on. · m"


def test_a_run_under_a_promise_is_listed_with_what_it_took_and_what_a_check_found() -> None:
    reuse = {"scope": "preceding", "repair": "impact:0.15", "why": "Recomputed 3 of 40", "broken": False}
    settings = {"reuse": "auto", "scope": "anchored", "repair": "none"}
    told = record(frame=frame(settings=settings, reuse={**reuse, "kl": 0.004, "checked": True})).summary()
    assert (told["scope"], told["repair"], told["kl"]) == ("preceding", "impact:0.15", 0.004)
    assert told["reuse"] == "Recomputed 3 of 40"
    earlier = record(frame=frame(settings=settings, reuse={**reuse, "kl": 0.004, "checked": False}))
    assert earlier.summary()["kl"] is None  # an answer of before was measured, not this one
    own = record(frame=frame(settings={"scope": "anchored", "repair": "none"})).summary()
    assert (own["scope"], own["repair"], own["reuse"], own["kl"]) == ("anchored", "none", "", None)


def test_the_newest_come_first_whatever_their_zone(tmp_path: Path) -> None:
    store = RunStore(UserDatabase(tmp_path))
    early = record(frame=frame(started="2026-03-01T11:00:00+03:00"), name="early")
    late = record(frame=frame(started="2026-03-01T10:00:00+00:00"), name="late")
    odd = record(frame=frame(started="yesterday"), name="odd")
    for one in (late, odd, early):
        store.keep(one)
    assert [one["name"] for one in store.summaries()] == ["late", "early", "odd"]


def test_the_oldest_without_name_and_note_go_first(tmp_path: Path) -> None:
    store = RunStore(UserDatabase(tmp_path), most_runs=3)
    named, noted = record(1, name="keep me"), record(2, note="the good one")
    for one in (named, noted, record(3), record(4)):
        store.keep(one)
    assert [one["started"][14:19] for one in store.summaries()] == ["00:04", "00:02", "00:01"]
    store.keep(record(5, name="also"))
    store.keep(record(6))
    assert [one["started"][14:19] for one in store.summaries()] == ["00:06", "00:05", "00:02"], (
        "where all others have names, the oldest of those goes"
    )


def test_bytes_are_bounded_and_shared_documents_are_kept_once(tmp_path: Path) -> None:
    long = "<schema>" + "x" * 100_000
    store = RunStore(UserDatabase(tmp_path), most_bytes=400_000)
    for number in range(20):
        store.keep(record(number, schema=long))
    held = store.held()
    assert held["runs"] == 20
    assert held["bytes"] < 200_000
    for number in range(20, 26):
        store.keep(record(number, schema=f"{long}{number}"))
    held = store.held()
    assert 2 <= held["runs"] <= 4
    assert held["bytes"] <= 400_000
    with pytest.raises(PromptCacheError, match="larger than the limit"):
        store.keep(record(schema="y" * 500_000))
    assert store.held()["runs"] == held["runs"], "what is refused pushes nothing out"


def test_what_is_deleted_is_on_the_disk_no_more(tmp_path: Path) -> None:
    store = RunStore(UserDatabase(tmp_path))
    secret = record(prompt="<prompt>the launch code is swordfish</prompt>")
    other = record(1)
    store.keep(secret)
    store.keep(other)
    assert store.delete([secret.id, "unknown"]) == 1
    assert [one["id"] for one in store.summaries()] == [other.id]
    assert all(b"swordfish" not in path.read_bytes() for path in tmp_path.iterdir())
    with pytest.raises(PromptCacheError, match="no longer exists"):
        store.find([secret.id])


def test_names_and_notes(tmp_path: Path) -> None:
    store, kept = RunStore(UserDatabase(tmp_path)), record()
    store.keep(kept)
    store.label(kept.id, name="a \ud83d name")
    store.label(kept.id, note="slow disk")
    (summary,) = store.summaries()
    assert (summary["name"], summary["note"]) == ("a ? name", "slow disk")
    store.label(kept.id, name="")
    assert store.summaries()[0]["name"] == ""
    with pytest.raises(PromptCacheError, match="at most 200 characters, but this one has 201"):
        store.label(kept.id, name="x" * 201)
    with pytest.raises(PromptCacheError, match="no longer exists"):
        store.label("nobody", name="x")


def test_words_are_found_in_documents_and_answers(tmp_path: Path) -> None:
    store = RunStore(UserDatabase(tmp_path))
    kept = [record(frame=frame("Paris in May")), record(prompt="<prompt>Rome</prompt>")]
    for one in kept:
        store.keep(one)
    assert store.search(["paris", "TWO"]) == [kept[0].id]
    assert store.search(["rome"]) == [kept[1].id]
    assert len(store.search([])) == 2


def test_texts_with_half_of_a_surrogate_pair_come_back(tmp_path: Path) -> None:
    store = RunStore(UserDatabase(tmp_path))
    odd = record(prompt="<prompt>\ud83d</prompt>", frame=frame("\ud83d"))
    store.keep(odd)
    found = store.find([odd.id])[0]
    assert (found.prompt, found.told["sides"]["cached"]["text"]) == (odd.prompt, "\ud83d")
    assert store.search(["two"]) == [odd.id]


def test_a_frame_of_anybody_has_its_types(tmp_path: Path) -> None:
    times = {"text": 7, "ttft_ms": float("nan"), "timeline_ms": {"prefill": "1", "plan": 2}, "tokens": []}
    odd = {
        "format": "x",
        "state": ["done"],
        "started": 3,
        "warnings": ["fine", 4],
        "encoding": [],
        "settings": {"stop": [1, "y"], "a": {}},
        "sides": {"cached": times},
        "model": {"name": 4},
        "comparison": {"ttft_speedup": -1, "first_token_agrees": "yes"},
        "payback": "never",
    }
    told = read_frame(odd)
    assert (told["format"], told["state"], told["started"], told["warnings"]) == (
        0,
        "stopped",
        "",
        ["fine", ""],
    )
    assert told["settings"] == {"stop": ["", "y"]}
    cached = told["sides"]["cached"]
    assert (cached["text"], cached["ttft_ms"], cached["timeline_ms"]) == ("", None, {"plan": 2})
    assert (told["comparison"], told["payback"]) == ({}, None), "without times nothing is paid"
    assert told["model"]["name"] == ""
    for nothing in (None, [], "x", {}):
        assert read_frame(nothing)["state"] == "stopped"
    assert read_frame(told) == told, "reading once more changes nothing"
    RunStore(UserDatabase(tmp_path)).keep(record(frame=odd))
    assert RunStore(UserDatabase(tmp_path)).summaries()[0]["cached_ms"] is None


def test_a_stored_run_shows_the_question_of_its_own_prompt() -> None:
    assert shown(record())["question"] == "Go on."
    assert shown(record(frame=frame(question="Why?")))["question"] == "Why?"
    assert shown(record(prompt="<prompt"))["question"] == ""


def test_what_follows_from_the_times_is_not_believed() -> None:
    told = read_frame(
        frame(
            comparison={"ttft_speedup": 900.0, "least_speedup": 890.0, "most_speedup": 910.0},
            payback={"first_ms": 3.0, "runs": 1, "words": "Faster from the first run on."},
        )
    )
    assert told["comparison"] == {"ttft_speedup": 4.0}
    assert told["payback"] is not None
    assert (told["payback"]["first_ms"], told["payback"]["runs"]) == (None, None)
    assert "Unknown payback" in told["payback"]["words"]
    sound = read_frame(frame())["payback"]
    assert sound == {"first_ms": 92.5, "runs": 3, "words": "Pays off after about 3 runs."}
    side = {"state": "done", "ttft_ms": 100.0, "timeline_ms": {"prefill": 7.0}}
    assert read_frame(frame(sides={"cached": side}))["sides"]["cached"]["timeline_ms"] == {}
    for odd in ("\ud800", "not a time", "1e999"):
        assert read_frame(frame(started=odd))["started"] == ""


def sides(cached: Any, uncached: Any, **more: Any) -> dict[str, Any]:
    side = {"state": "done", "text": "a", **more}
    return {"cached": {**side, "ttft_ms": cached}, "uncached": {**side, "ttft_ms": uncached}}


@pytest.mark.parametrize(
    ("cached", "uncached"),
    [(1e-320, 1e15), (1e-320, 50.0), (12.5, 1e15), (0, 50.0), (-1.0, 1e11), (float("inf"), 2), (5e-7, True)],
)
def test_a_time_that_cannot_be_is_none(tmp_path: Path, cached: Any, uncached: Any) -> None:
    odd = frame(
        sides=sides(cached, uncached, samples_ms=[cached, 3.0], cold_ms=[uncached], tokens_per_second=1e-320),
        encoding={"ms": 1e-320, "segments": 1, "others_ms": 1e15},
        comparison={"least_speedup": 1e-320, "most_speedup": 2**53},
    )
    told, (possible,) = read_frame(odd), [[one for one in (cached, uncached) if one in (12.5, 50.0, 2)]]
    assert [side["ttft_ms"] for side in told["sides"].values() if side["ttft_ms"]] == possible
    assert told["sides"]["cached"]["tokens_per_second"] is None
    assert told["comparison"] == {}
    assert (told["encoding"]["ms"], told["encoding"]["others_ms"]) == (None, None)
    store, kept = RunStore(UserDatabase(tmp_path)), record(frame=odd)
    store.keep(kept)
    store.label(kept.id, name="odd")
    (summary,) = store.summaries()
    assert (summary["speedup"], summary["name"]) == (None, "odd")
    json.dumps([beside(store.find([kept.id])), summary], allow_nan=False)
    assert from_text(to_json([kept]), "x")[0].told == told


def test_times_at_the_bounds_have_a_finite_ratio() -> None:
    told = read_frame(frame(sides=sides(LEAST_MS, MOST_MS), comparison={}))
    assert told["comparison"]["ttft_speedup"] == MOST_MS / LEAST_MS
    extremes = {"least_speedup": 1e-320, "most_speedup": 2**53}
    assert "least_speedup" not in read_frame(frame(comparison=extremes))["comparison"]


def test_half_of_a_surrogate_pair_is_the_id_of_no_run(tmp_path: Path) -> None:
    store, kept = RunStore(UserDatabase(tmp_path)), record()
    store.keep(kept)
    assert store.delete(["\ud800"]) == 0
    for ask in (lambda: store.find(["\ud800"]), lambda: store.label("\ud800", name="x")):
        with pytest.raises(PromptCacheError, match="no longer exists"):
            ask()
    assert store.held()["runs"] == 1


def test_a_damaged_row_costs_that_run_alone(tmp_path: Path) -> None:
    store, runs = RunStore(UserDatabase(tmp_path)), [record(number) for number in range(3)]
    for one in runs:
        store.keep(one)
    with sqlite3.connect(tmp_path / FILE) as file:
        file.execute("update runs set summary = '{}' where id = ?", [runs[0].id])
        file.execute("update runs set frame = '{\"sides', summary = '7' where id = ?", [runs[1].id])
    store = RunStore(UserDatabase(tmp_path))
    told = {one["id"]: one for one in store.summaries()}
    assert told.keys() == {one.id for one in runs}
    assert told[runs[0].id]["state"] == "failed"
    assert "Delete it" in told[runs[1].id]["prompt"]
    assert set(store.search(["answer"])) == {runs[0].id, runs[2].id}
    with pytest.raises(PromptCacheError, match="damaged on the disk"):
        store.find([runs[1].id])
    assert store.delete([runs[1].id]) == 1
