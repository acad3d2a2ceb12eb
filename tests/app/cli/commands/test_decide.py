"""`pml decide` on a tiny model."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.cli.decisions.tables import bar
from engine.decisions.report import gold_place

pytestmark = pytest.mark.usefixtures("place")
Run = Callable[..., SimpleNamespace]

ASKED = """
  <decide name="mood" type="score">How is it?<option value="bad"/><option value="good"/></decide>
</prompt>"""
FILE = {
    "questions": [{"type": "choice", "name": "city", "instructions": "Which?", "choices": ["Oslo", "Rome"]}]
}


def test_questions_of_the_command_line(run_pml: Run) -> None:
    words = run_pml("decide", "prompt.pml", "--schema", "trip.pml", "--question", "Is it far?")
    assert words.status == 0, words.err
    assert "Is it far?" in words.out
    assert {line.split()[0] for line in words.out.splitlines()[2:4]} == {"yes", "no"}
    assert "the same answer" in words.out or "The sides differ" in words.out
    options = ("--question", "Where?", "--options", "Oslo,Rome,Paris", "--side", "cached", "--json")
    done = run_pml("decide", "prompt.pml", "--schema", "trip.pml", *options, "--permutations", "3")
    found = json.loads(done.out)
    (answer,) = found["cached"]["answers"]
    assert list(answer["probabilities"]) == ["Oslo", "Rome", "Paris"]
    assert sum(answer["probabilities"].values()) == pytest.approx(1)
    assert found["readout"]["permutations"] == 3
    assert "uncached" not in found


def test_questions_of_the_prompt_and_of_a_file(run_pml: Run, place: Path) -> None:
    source = (place / "prompt.pml").read_text(encoding="utf-8")
    (place / "asked.pml").write_text(source.replace("</prompt>", ASKED), encoding="utf-8")
    (place / "q.json").write_text(json.dumps(FILE), encoding="utf-8")
    done = run_pml("decide", "asked.pml", "--schema", "trip.pml", "--json", "--csv", "one.csv")
    found = json.loads(done.out)
    assert [answer["name"] for answer in found["cached"]["answers"]] == ["mood"]
    assert found["agreement"]["questions"] == 1
    (row,) = csv.DictReader((place / "one.csv").open(encoding="utf-8-sig"))
    assert float(row["cached mood: bad"]) + float(row["cached mood: good"]) == pytest.approx(1)
    done = run_pml("decide", "asked.pml", "--schema", "trip.pml", "--questions", "q.json", "--json")
    assert [answer["name"] for answer in json.loads(done.out)["uncached"]["answers"]] == ["city"]


def test_rows_with_right_answers(run_pml: Run, place: Path) -> None:
    (place / "q.json").write_text(json.dumps(FILE), encoding="utf-8")
    rows = "id,text,gold city\na,In the north.,oslo\nb,In the south.,Rome\nc,Where?,Bonn\nd,Hm.,\n"
    (place / "rows.csv").write_text(rows, encoding="utf-8")
    batch = ("decide", "prompt.pml", "--schema", "trip.pml", "--batch", "rows.csv", "--questions", "q.json")
    files = ("-o", "out.jsonl", "--csv", "out.csv", "--fit-temperature", "--json")
    done = run_pml(*batch, *files)
    assert done.status == 0, done.err
    figures = json.loads(done.out)["figures"]["cached"]["city"]
    assert figures["count"] == 2
    assert [sum(row) for row in figures["confusion"]] == [1, 1]
    assert "fit" not in figures
    assert "city: --fit-temperature needs at least 10 labelled rows, and there are 2." in done.err
    assert "line 4: gold 'Bonn' is no option of 'city'" in done.err
    assert "gold \\ answer (2 rows)" in done.err
    lines = [json.loads(line) for line in (place / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["id"] for line in lines] == ["a", "b", "c", "d"]
    again = run_pml(*batch, *files)  # everything is answered already
    assert "4 answered before" in again.err
    assert json.loads(again.out)["figures"]["cached"]["city"] == figures
    table = list(csv.DictReader((place / "out.csv").open(encoding="utf-8-sig")))
    assert [row["gold city"] for row in table] == ["oslo", "Rome", "Bonn", ""]
    assert all(row["cached city"] in ("Oslo", "Rome") for row in table)


def test_a_temperature_is_fitted_if_it_helps(run_pml: Run, place: Path) -> None:
    ask = ("decide", "--schema", "trip.pml", "--batch", "rows.csv", "--question", "Is it far?")
    for name, golds in (("first", "yes,no"), ("last", "no,yes"), ("yes", "yes,yes"), ("no", "no,no")):
        rows = [f"{name} {at},{golds.split(',')[at % 2]}" for at in range(10)]
        (place / "rows.csv").write_text("\n".join(["text,gold", *rows]), encoding="utf-8")
        done = run_pml(*ask, "--fit-temperature", "--temperature", "60", "-o", f"{name}.jsonl", "--json")
        found = json.loads(done.out)["figures"]["cached"]["answer"]["fit"]
        helps = found["ece_after"] < found["ece_before"]
        assert (found["fitted_on"], found["held_out"]) == (5, 5)
        assert 0.01 <= found["temperature"] <= 100
        assert ("No temperature helps" in done.err) is not helps


def test_a_row_that_fails_stops_no_other(run_pml: Run, place: Path) -> None:
    (place / "rows.jsonl").write_text(
        '{"picks": ["nowhere"]}\n{"text": "Hi.", "gold": true}\n', encoding="utf-8"
    )
    words = ("--batch", "rows.jsonl", "--question", "Is it far?")
    done = run_pml("decide", "--schema", "trip.pml", *words)
    assert done.status == 3
    first, second = map(json.loads, done.out.splitlines())
    assert "no module 'nowhere'" in first["error"]["message"]
    assert second["cached"]["answers"][0]["type"] == "predicate"
    assert "answer, cached: accuracy" in done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("prompt.pml",), "There is no question"),
        (("prompt.pml", "--options", "a,b"), "belong to --question"),
        (("prompt.pml", "--question", "x", "--options", "a,b", "--levels", "a,b"), "give one of them"),
        (("prompt.pml", "--question", "x", "--options", "a,a"), "option 'a' twice"),
        (("prompt.pml", "--question", "x", "--options", "a"), "has 1 option"),
        (("prompt.pml", "--question", "x", "-o", "x"), "are for --batch"),
        (("--question", "x"), "Missing argument"),
        (("--question", "x", "--batch", "rows.csv", "--json"), "name a file for its rows"),
        (("prompt.pml", "--question", "x", "--temperature", "0"), "temperature"),
    ],
)
def test_wrong_usage_says_what_to_do(run_pml: Run, words: tuple[str, ...], says: str) -> None:
    done = run_pml("decide", "--schema", "trip.pml", *words)
    assert done.status in (1, 2)
    assert says in done.err


def test_two_columns_of_right_answers_for_one_question_say_so(run_pml: Run, place: Path) -> None:
    (place / "rows.csv").write_text("text,gold a,gold b\nIn the north.,yes,no\n", encoding="utf-8")
    ask = ("decide", "--schema", "trip.pml", "--batch", "rows.csv", "--question", "Is it far?")
    done = run_pml(*ask, "--fit-temperature")
    assert "no question is named 'a' or 'b', as gold columns are." in done.err
    assert "at least 10 labelled rows, and there are 0." in done.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"questions": [', "q.json: this is not valid JSON: line 1, column"),
        ('[{"instructions": "Is it?"}]', "q.json: questions[0].type is missing"),
        ('[{"type": "predicate", "instructions": " "}]', "q.json: the question has no instructions"),
    ],
)
def test_errors_of_a_file_of_questions_name_it(run_pml: Run, place: Path, text: str, says: str) -> None:
    (place / "q.json").write_text(text, encoding="utf-8")
    done = run_pml("decide", "prompt.pml", "--schema", "trip.pml", "--questions", "q.json")
    assert done.status in (1, 2)
    assert says in done.err


def test_right_answers_are_found_in_any_case() -> None:
    assert gold_place("ROME", ["Oslo", "Rome"], "choice") == 1
    assert gold_place("a", ["A", "a"], "choice") == 1
    assert gold_place("true", ["yes", "no"], "predicate") == 0
    assert gold_place("true", ["yes", "no"], "choice") is None


def test_bars_end_within_an_eighth() -> None:
    assert (bar(0).strip(), bar(1), bar(0.5).strip()) == ("", "█" * 20, "█" * 10)
    assert bar(1 / 160) == "▏".ljust(20)
