"""Questions about each row of a batch, with right answers, as the page sends them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.studio.web.jobs import Job
from engine import Engine
from tests.app.studio.asked import Asked
from tests.app.studio.decisions.test_decisions import OWN, PROMPT, SCHEMA, question

TABLE = "id,text,gold\na,One.,YES\nb,Two.,no\nc,Three.,perhaps\nd,Four.,\n"
BROKEN = "id,picks,text,gold\na,a,One.,yes\nb,nowhere,Two.,no\n"


@pytest.fixture
def studio(tmp_path: Path, tiny_model: Path) -> Iterator[Asked]:
    with Engine.open(tiny_model, device="cpu", cache_dir=tmp_path / "cache") as engine:
        yield Asked(tmp_path, engine=engine)


def decide(studio: Asked, *questions: dict[str, Any], table: str = TABLE, **more: Any) -> Any:
    rows = {"schema": SCHEMA, "prompt": PROMPT, "source": "table", "table": table}
    return studio.ask("batch_decide", {"key": "1", **rows, "questions": list(questions), **more})


def decided(studio: Asked, key: str = "1") -> Any:
    """The batch when its work is over."""
    studio.ended(key)
    return studio.ask("batch_decided", {"key": key})["batch"]


def test_rows_are_decided_on_both_sides_and_compared_with_the_right_answers(studio: Asked) -> None:
    assert decide(studio, question("predicate", "Is it red?"))["faults"] == []
    result = decided(studio)
    assert [row["id"] for row in result["rows"]] == ["a", "b", "c", "d"]
    assert [row["decisions"][0]["gold"] for row in result["rows"]] == ["YES", "no", "perhaps", ""]
    (figures,) = result["figures"]
    assert (figures["labelled"], figures["unknown"], figures["labels"]) == (2, [4], ["yes", "no"])
    for side in ("cached", "uncached"):
        answers = [row["decisions"][0][side] for row in result["rows"]]
        assert all(0.5 <= answer["probability"] <= 1 for answer in answers)
        right = [answer["label"] == gold for answer, gold in zip(answers[:2], ("yes", "no"), strict=True)]
        assert figures[side]["accuracy"] == sum(right) / 2
        assert sum(map(sum, figures[side]["confusion"])) == 2


def test_an_error_of_a_row_stops_no_other_row_and_a_stop_keeps_the_decided_ones(
    studio: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(studio, question("predicate", "Is it red?"), table=BROKEN, mode="cached")
    first, second = decided(studio)["rows"]
    assert (first["fault"], "uncached" in first["decisions"][0]) == ("", False)
    assert "nowhere" in second["fault"]
    tell = Job.tell

    def stopped(job: Job, done: int, total: int, what: str) -> None:
        tell(job, done, total, what)
        if done == 2:
            job.stop()

    monkeypatch.setattr(Job, "tell", stopped)
    decide(studio, question("predicate", "Is it red?"), key="2")
    result = decided(studio, "2")
    assert (result["total"], [row["id"] for row in result["rows"]]) == (4, ["a", "b"])


def test_decisions_survive_a_restart_and_a_stopped_batch_goes_on(
    studio: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = Job.tell

    def stopped(job: Job, done: int, total: int, what: str) -> None:
        tell(job, done, total, what)
        if done == 1:
            job.stop()

    asked = question("predicate", "Is it red?")
    settings = {"decide_permutations": 2}
    with monkeypatch.context() as patched:
        patched.setattr(Job, "tell", stopped)
        decide(studio, asked, settings=settings)
        studio.ended("1")
    restarted = Asked(tmp_path, engine=studio.parts.engine)
    before = restarted.ask("batch_decided", {})["batch"]
    assert (before["state"], before["total"], before["permutations"]) == ("stopped", 4, 2)
    assert [row["id"] for row in before["rows"]] == ["a"]
    assert [one["decides"] for one in restarted.ask("list_batches")["batches"]] == [True]
    assert restarted.ask("batch_state", {}) == {}, "it is no batch of answers"
    restarted.ask("batch_resume", {"key": "1"})
    after = decided(restarted)
    assert (after["state"], [row["id"] for row in after["rows"]]) == ("done", ["a", "b", "c", "d"])
    assert after["rows"][0] == before["rows"][0]
    again = Asked(tmp_path, engine=studio.parts.engine).ask("batch_decided", {"key": "1"})["batch"]
    assert {**again, "figures": []} == {**after, "figures": []}
    assert again["figures"][0]["cached"] == after["figures"][0]["cached"]
    assert "has a result" in restarted.ask("batch_resume", {"key": "1"})["error"]


def test_decisions_are_files_as_the_command_line_writes_them(studio: Asked) -> None:
    decide(studio, question("score", "How red?", "a bit", "very"), table=TABLE.replace("YES", "Very"))
    decided(studio)
    (table,) = studio.ask("batch_files", {"key": "1", "form": "csv"})["files"]
    lines = list(csv.DictReader(io.StringIO(table["text"].lstrip("\ufeff"))))
    assert [line["gold"] for line in lines] == ["Very", "no", "perhaps", ""]
    assert 0 <= float(lines[0]["cached answer level"]) <= 1
    parts = float(lines[0]["uncached answer: a bit"]), float(lines[0]["uncached answer: very"])
    assert sum(parts) == pytest.approx(1)
    (content,) = studio.ask("batch_files", {"key": "1", "form": "json"})["files"]
    found = json.loads(content["text"])
    assert found["questions"][0]["instructions"] == "How red?"
    assert found["readout"]["permutations"] == 1
    assert found["figures"]["cached"]["answer"]["count"] == 1
    assert found["rows"][3]["cached"]["answers"][0]["level"] in ("a bit", "very")


def test_a_temperature_is_fitted_on_every_other_labelled_row(studio: Asked) -> None:
    labelled = "text,gold\n" + "One.,yes\nTwo.,no\n" * 5 + "Three.,no\n"
    decide(studio, question("predicate", "Is it red?"), table=labelled, settings={"decide_temperature": 2.0})
    (figures,) = decided(studio)["figures"]
    names = [line["name"] for line in figures["reliability"]["data"]]
    assert names == ["perfectly calibrated", "cached", "uncached"]
    fitted = studio.ask("batch_fit", {"key": "1", "question": 0})
    for side in ("cached", "uncached"):
        assert (fitted[side]["fitted_on"], fitted[side]["held_out"]) == (6, 5)
        assert 0.1 <= fitted[side]["temperature"] <= 40
        assert 0 <= fitted[side]["ece_after"] <= 1
    assert "no such question" in studio.ask("batch_fit", {"key": "1", "question": 1})["error"]
    decide(studio, question("predicate", "Is it red?"), key="2")
    decided(studio, "2")
    decide(studio, question("predicate", "Is it red?"), key="3", table="text,gold\nOne.,yes\n")
    decided(studio, "3")
    assert "at least 10 rows" in studio.ask("batch_fit", {"key": "3", "question": 0})["error"]


def test_errors_of_the_form_come_back_and_the_questions_of_the_prompt_replace_it(studio: Asked) -> None:
    assert decide(studio, question("choice", "Which?", "a"))["faults"][0]["field"] == "options"
    assert decide(studio, prompt=OWN)["faults"] == []
    assert decided(studio)["figures"][0]["question"] == "Which?"
