"""Measurements of reuse on disk: with the run that they belong to, or by themselves, and shared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.studio.database import UserDatabase
from app.studio.history import Record, RunStore, read_frame
from app.studio.history.sharing import from_text, to_html, to_json
from engine.fidelity.findings import Fidelity, Flip, ModuleFidelity, Remedy

OF = {"schema": "s1", "prompt": "p1", "settings": "t1", "model": "m1"}
FOUND: Any = json.loads(
    json.dumps(
        Fidelity(
            *(0.125, False, 0.75, 0.03, 0.5, 2, 4, True),
            flips=(Flip(2, " Rome", " Oslo", "go to", 0.5),),
            modules=(
                ModuleFidelity("a", 9, 0.1, 0.1, 0.1, -0.3, 0),
                ModuleFidelity("b", 9, 0.1, 0.1, 0.1, 0.1, 1),
            ),
            remedies=(Remedy("repair link:2", "link:2", (), "", 0, 0.1, 0.01, 1.0, 4),),
            advice="One token flips. Module 'b' suffers most.",
        ).to_json()
    )
)


def measured(at: str = "2026-03-02T10:00:00+01:00", **found: Any) -> Record:
    told = {"schema": "s", "of": OF, "started": at, "state": "measured", "settings": {"scope": "anchored"}}
    kept = {"measured": at, "found": {**FOUND, **found}}
    return Record("<schema/>", "<prompt/>", dict(read_frame({**told, "fidelity": kept})))


def answered(of: dict[str, str] = OF, **given: Any) -> Record:
    side = {"state": "done", "text": "an answer", "ttft_ms": 12.5, "timeline_ms": {"prefill": 12.5}}
    told = {"schema": "s", "of": of, "started": "2026-03-01T10:00:00+01:00", "sides": {"cached": side}}
    return Record("<schema/>", "<prompt/>", {**told, "state": "done"}, **given)


def test_a_measurement_becomes_part_of_the_run_of_the_same_texts_model_and_settings(tmp_path: Path) -> None:
    store = RunStore(UserDatabase(tmp_path))
    run, other = answered(name="mine"), answered({**OF, "prompt": "p2"})
    for one in (run, other):
        store.keep(one)
    store.keep_fidelity(measured())
    assert store.held()["runs"] == 2
    found = RunStore(UserDatabase(tmp_path)).find([run.id])[0]
    assert found.name == "mine"
    assert found.told["sides"]["cached"]["text"] == "an answer"
    assert found.told["fidelity"] == {"measured": "2026-03-02T10:00:00+01:00", "found": FOUND}
    rows = {one["id"]: one["fidelity"] for one in store.summaries()}
    assert rows[other.id] is None
    assert rows[run.id] == {
        "measured": "2026-03-02T10:00:00+01:00",
        "kl_mean": 0.03,
        "kl_first_token": 0.125,
        "first_token_agrees": False,
        "flips": 1,
        "worst": "b",
        "advice": FOUND["advice"],
    }
    store.keep_fidelity(measured("2026-03-03T10:00:00+01:00", kl_mean=0.5))
    again = store.measured(read_frame({"of": OF})["of"])
    assert again is not None
    assert again["fidelity"] is not None
    assert again["fidelity"]["found"]["kl_mean"] == 0.5
    assert store.held()["runs"] == 2


def test_a_measurement_without_a_run_is_a_run_of_its_own_kind(tmp_path: Path) -> None:
    RunStore(UserDatabase(tmp_path)).keep_fidelity(measured())
    store = RunStore(UserDatabase(tmp_path))
    (row,) = store.summaries()
    assert (row["state"], row["cached_ms"]) == ("measured", None)
    assert row["fidelity"] is not None
    for changed in ("schema", "prompt", "settings", "model"):
        assert store.measured(read_frame({"of": {**OF, changed: "x"}})["of"]) is None, changed
    assert store.measured(read_frame({"of": OF})["of"]) is not None
    store.delete([row["id"]])
    assert store.measured(read_frame({"of": OF})["of"]) is None


def test_a_run_after_its_measurement_takes_it_in(tmp_path: Path) -> None:
    store, run, again = RunStore(UserDatabase(tmp_path)), answered(), answered()
    store.keep_fidelity(measured())
    store.keep(run)
    (row,) = store.summaries()
    assert (row["id"], row["state"]) == (run.id, "done")
    assert row["fidelity"] is not None
    store.keep(again)
    assert [one["fidelity"] is not None for one in store.summaries()] == [True, True]
    named = measured()
    other = {**OF, "prompt": "p2"}
    store.keep_fidelity(Record("<schema/>", "<p/>", {**named.frame, "of": other}, name="mine"))
    store.keep(answered(other))
    assert sorted(one["name"] for one in store.summaries()) == ["", "", "", "mine"], "what has a name stays"


def test_a_shared_file_carries_what_was_measured(tmp_path: Path) -> None:
    for text in (to_json([measured()]), to_html([measured()])):
        (read,) = from_text(text, "runs")
        assert read.told["fidelity"] == {"measured": "2026-03-02T10:00:00+01:00", "found": FOUND}
    page = to_html([measured()]).partition("<script")[0]
    for words in ("suffers most", "repair link:2", "0.12"):
        assert words in page, words
    store = RunStore(UserDatabase(tmp_path))
    store.import_runs(from_text(to_json([measured()]), "runs"))
    assert store.measured(read_frame({"of": OF})["of"]) is not None


@pytest.mark.parametrize(
    "sent",
    [
        *({"measured": "yesterday", "found": FOUND}, {"measured": "2026-03-02", "found": {"kl_mean": 0.1}}),
        *("much", {"measured": "2026-03-02", "found": {**FOUND, "kl_mean": float("inf")}}),
        {"measured": "2026-03-02", "found": {**FOUND, "modules": ["a"]}},
    ],
)
def test_what_is_no_measurement_is_left_out(sent: object) -> None:
    told = read_frame({"state": "measured", "fidelity": sent})
    assert told["fidelity"] is None
