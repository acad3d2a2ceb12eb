"""A batch in the studio: read, answered in the background, judged, and given out as files."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from app.studio.batches.batch import Batch, BatchPlan, BatchSummary, RowResult, SideResult
from app.studio.documents.samples import gist
from app.studio.web.jobs import Job
from engine.engine import Engine
from engine.fidelity.teacher_forcing import Reading
from engine.inference.run_settings import RunSettings
from engine.pml import parse_schema
from engine.store import Store
from tests.app.conftest import PROMPT, SCHEMA
from tests.app.studio.asked import Asked
from tests.engine.cases import model_of

TEXTS = {"schema": SCHEMA, "prompt": PROMPT}
SETTINGS = {"max_new_tokens": 3}
TABLE = """id,picks,duration,text,set max_new_tokens,expect min characters
a,tokyo,3 days,Where should I eat?,,0
b,rome,,What is there?,2,9999
c,oslo,,,,
"""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("studio")
    with Engine(model_of("llama-gqa"), Store.open(folder / "cache")) as engine:
        yield Asked(folder, engine=engine)


def table(text: str, **more: Any) -> dict[str, Any]:
    return {**TEXTS, "settings": SETTINGS, "source": "table", "table": text, **more}


def state(asked: Asked, key: str = "", known: int = -1) -> dict[str, Any]:
    answer = asked.ask("batch_state", {"key": key, "known": known})
    TypeAdapter(asked.endpoints["batch_state"].answer).validate_python(answer)
    batch: dict[str, Any] = answer["batch"]
    return batch


def run(asked: Asked, key: str, text: str = TABLE, **more: Any) -> dict[str, Any]:
    begun = asked.ask("batch_start", {**table(text, **more), "key": key})
    assert "error" not in begun, begun
    asked.ended(key)
    return state(asked)


def values(found: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in found["settings"]}


def test_rows_are_read_and_their_faults_told_with_line_and_column(asked: Asked) -> None:
    found = asked.ask("batch_read", table(TABLE))
    assert (found["rows"], found["looked"], found["faulty"]) == (3, 3, 1)
    (fault,) = found["faults"]
    assert (fault["line"], fault["column"]) == (4, "picks")
    assert "has no module 'oslo'" in fault["message"]


def test_a_row_over_the_limit_is_marked_and_the_next_one_is_more_exact(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = Reading.divergence  # of a tiny model it may be 0
    monkeypatch.setattr(Reading, "divergence", lambda read, full: exact(read, full) + 0.5)
    two = "id,text\na,Where should I eat?\nb,What is there?\n"
    own = SCHEMA.replace("gardens", "temples")  # the other tests' segments get no such measurements
    batch = run(asked, "limit", two, schema=own, settings={**SETTINGS, "max_kl": 0.02})
    a, b = (asked.ask("batch_row", {"key": "limit", "number": number}) for number in (0, 1))
    assert (a["row"]["over_limit"], batch["summary"]["over_limit"], batch["summary"]["kl_checked"]) == (
        True,
        2,
        2,
    )
    assert "exceeds the limit of 0.02; the next run uses a more exact method" in a["reuse"]
    assert b["reuse"].partition(":")[0] != a["reuse"].partition(":")[0]
    kept = asked.ask("batch_files", {"key": "limit", "form": "csv"})["files"][0]["text"]
    assert "exceeds the limit" in kept


def test_an_error_of_several_rows_is_listed_once(asked: Asked) -> None:
    found = asked.ask("batch_read", table("id,picks,set heat\na,oslo,\nb,,1\nc,rome,2\nd,oslo,\ne,,\n"))
    listed = [(one["line"], one["column"], one["rows"]) for one in found["faults"]]
    assert (found["faulty"], listed) == (4, [(2, "picks", 2), (3, "set heat", 2)])


def test_what_a_spreadsheet_saves_is_read(asked: Asked) -> None:
    assert asked.ask("batch_read", table("\ufeffid;picks\r\na;tokyo\r\nb;rome\r\n"))["rows"] == 2
    wrong = asked.ask("batch_read", table("id,set heat,expect regex,text\na,1,,x\nb,,(,x\na,,,y\n"))
    places = [(one["line"], one["column"]) for one in wrong["faults"]]
    assert places == [(2, "set heat"), (3, "expect regex"), (4, "id")]


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"table": "a,b\n1,2\n"}, "has no header line"),
        ({"table": "id\n"}, "has no rows"),
        ({"table": "id,text\n" + "1,x\n" * 10_001}, "more than 10,000 rows"),
        ({"table": "id,text\na,x\n", "prompt": "<prompt schema='trip'><nowhere/></prompt>"}, "nowhere"),
        ({"table": "id,text\na,x\n", "settings": {"temperature": -1}}, "Temperature must be"),
        ({"source": "grid"}, "Nothing varies yet"),
        ({"source": "grid", "grid": [{"kind": "text", "values": []}]}, "has no value"),
        (
            {"source": "grid", "grid": [{"kind": "text", "values": [str(n) for n in range(10_001)]}]},
            "10,001 rows, but a batch has at most 10,000",
        ),
    ],
)
def test_what_is_no_batch_is_refused_in_a_sentence(asked: Asked, sent: dict[str, Any], words: str) -> None:
    for question, more in (("batch_read", {}), ("batch_start", {"key": "never"})):
        assert words in asked.ask(question, {**table(""), **sent, **more})["error"]


def test_each_row_is_answered_on_both_sides_and_judged_on_each(asked: Asked) -> None:
    batch = run(asked, "both", checks=[{"kind": "max characters", "value": "9999"}])
    assert batch["state"] == "done"
    a, b, c = batch["rows"]
    assert (a["state"], b["state"], c["state"]) == ("done", "done", "failed")
    assert (a["cached"]["passed"], a["uncached"]["passed"]) == (True, True)
    assert (b["cached"]["passed"], b["uncached"]["passed"]) == (False, False)
    assert (c["fault"]["line"], c["fault"]["column"]) == (4, "picks")
    assert (a["question"], c["text"]) == ("Where should I eat?", "")
    assert c["question"] == gist(PROMPT)["words"] != "", "what the open prompt asks"
    assert a["cached"]["tokens"]["generated"] == 3
    assert b["cached"]["tokens"]["generated"] == 2
    assert a["first_token_agrees"] in (True, False)
    summary = batch["summary"]
    assert {name: summary[name] for name in ("rows", "answered", "failed", "checked", "compared")} == {
        "rows": 3,
        "answered": 2,
        "failed": 1,
        "checked": 2,
        "compared": 2,
    }
    assert (summary["passed_cached"], summary["passed_uncached"], summary["verdicts_changed"]) == (1, 1, 0)
    assert summary["encoded"] > 0
    assert summary["ttft_uncached_ms"] > 0
    whole = asked.ask("batch_row", {"key": "both", "number": 1})
    assert whole["prompt"] == PROMPT.replace("<tokyo/>", "<rome/>").replace(
        "Where should I eat?", "What is there?"
    )
    assert values(whole)["max_new_tokens"] == "2 tokens"
    assert [bool(one["cached"]) for one in whole["checks"]] == [False, True]
    assert whole["difference"] is not None
    # What is in the cache by now is read, and encoded no more.
    again = run(asked, "again")["summary"]
    assert (again["encoded"], again["timed"], again["cold"]) == (0, 2, False)
    assert again["reused"] > 0


def test_rows_that_read_nothing_are_not_timed_as_cached() -> None:
    def summary(*rows: tuple[float, dict[str, int]]) -> BatchSummary:
        tree = parse_schema(SCHEMA).tree
        assert tree is not None
        batch = Batch("k", BatchPlan((), tree, None, RunSettings(), "cached"))
        for number, (ttft, tokens) in enumerate(rows):
            side = SideResult("", ttft, {}, tokens, "length", (), None)
            batch.results[number] = RowResult({"cached": side})
        return batch.summary()

    unread, first, read = (
        (9.0, {"from_cache": 0, "encoded": 0}),
        (8.0, {"from_cache": 4, "encoded": 4}),
        (1.0, {"from_cache": 4, "encoded": 0}),
    )
    for rows, expected in (
        ((unread, first, read), (1, False, 1, 1.0)),
        ((unread, first), (1, True, 1, 8.0)),
        ((unread, unread), (2, True, 2, 9.0)),
        ((), (0, False, 0, None)),
    ):
        found = summary(*rows)
        assert (found["timed"], found["cold"], found["unread"], found["ttft_cached_ms"]) == expected


def test_a_page_is_told_only_of_rows_that_it_does_not_know(asked: Asked) -> None:
    batch = run(asked, "told", mode="cached")
    assert all("uncached" not in row for row in batch["rows"])
    assert state(asked, "told", batch["ended"])["rows"] == []
    assert len(state(asked, "told", 2)["rows"]) == 1
    assert len(state(asked, "another", 3)["rows"]) == 3


def test_a_grid_has_a_row_for_each_way_to_choose(asked: Asked) -> None:
    axes = [
        {"kind": "picks", "values": ["tokyo", "rome", "-tokyo -rome"]},
        {"kind": "argument", "name": "plan/duration", "values": ["1 day", "2 days"]},
        {"kind": "setting", "name": "repair", "values": ["none", "link:2"]},
    ]
    batch = run(asked, "grid", "", source="grid", grid=axes, mode="cached")
    assert batch["summary"]["answered"] == 12, [one.get("fault") for one in batch["rows"]]
    none = asked.ask("batch_row", {"key": "grid", "number": 11})
    assert "<tokyo/>" not in none["prompt"]
    assert 'duration="2 days"' in none["prompt"]
    assert (values(none)["repair"], values(none)["reuse"]) == ("link:2", "off")


def test_the_rows_that_are_told_are_those_that_run(asked: Asked) -> None:
    axes = [
        {"kind": "picks", "values": ["plan/tokyo", "plan/rome", "-plan/tokyo -plan/rome"]},
        {"kind": "picks", "values": ["plan", "-plan"]},
    ]
    told = asked.ask("batch_read", table("", source="grid", grid=axes))
    assert (told["rows"], told["repeated"]) == (4, 2), told
    batch = run(asked, "once", "", source="grid", grid=axes, mode="cached")
    assert batch["summary"]["rows"] == told["rows"]
    prompts = [asked.ask("batch_row", {"key": "once", "number": n})["prompt"] for n in range(4)]
    assert len(set(prompts)) == 4


def test_rows_can_be_prompts_of_their_own(asked: Asked) -> None:
    batch = run(asked, "alone", "id,picks,text\na,rome,Go.\nb,-rome,Go.\n", alone=True, prompt="<nothing")
    assert batch["alone"]
    assert [one["state"] for one in batch["rows"]] == ["done", "failed"]
    assert "no prompt to omit it from" in batch["rows"][1]["fault"]["message"]
    prompt = asked.ask("batch_row", {"key": "alone", "number": 0})["prompt"]
    assert "Where should I eat?" not in prompt


def test_what_was_answered_stays_where_a_batch_is_stopped(asked: Asked) -> None:
    rows = "id,text\n" + "".join(f"{n},Word {n}.\n" for n in range(300))
    asked.ask("batch_start", {**table(rows, settings={"max_new_tokens": 40}), "key": "stopped"})
    second = asked.ask("batch_start", {**table(TABLE), "key": "other"})
    assert "A batch is already running" in second["error"]
    until = time.monotonic() + 60
    while state(asked)["ended"] < 2:
        assert time.monotonic() < until
        time.sleep(0.01)
    with asked.parts.engine.computing.step():  # it does not end meanwhile
        assert state(asked)["left_s"] > 0
        asked.ask("stop_job", {"key": "stopped"})
    asked.ended("stopped")
    found = state(asked)
    assert (found["state"], found["fault"], found["left_s"]) == ("stopped", "", None)
    assert 2 <= found["ended"] < 300
    assert sum(row["state"] == "done" for row in found["rows"]) == found["ended"]


def test_a_stopped_batch_goes_on_with_its_model(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Job.progress

    def stopped(job: Job, done: int, total: int, what: str) -> None:
        if done == 2:
            job.stop()
        progress(job, done, total, what)

    with monkeypatch.context() as patched:
        patched.setattr(Job, "progress", stopped)
        before = run(asked, "resumed", "id,text\na,One.\nb,Two.\nc,Three.\n")
    assert (before["state"], before["ended"]) == ("stopped", 2)
    with monkeypatch.context() as patched:
        patched.setattr(asked.parts.engine.model, "name", "another")
        assert "Load it, then resume" in asked.ask("batch_resume", {"key": "resumed"})["error"]
    asked.ask("batch_resume", {"key": "resumed"})
    asked.ended("resumed")
    after = state(asked)
    assert (after["key"], after["state"], after["ended"]) == ("resumed", "done", 3)
    assert after["rows"][:2] == before["rows"][:2]


def test_results_go_out_as_a_table_that_no_spreadsheet_computes(asked: Asked) -> None:
    rows = 'id,text,expect contains\n=1+1,"=HYPERLINK(""x"")",zzz\n-2,Go.,zzz\n'
    run(asked, "out", rows, mode="cached")
    (found,) = asked.ask("batch_files", {"key": "out", "form": "csv"})["files"]
    assert found["text"].startswith("\ufeff")
    read = list(csv.DictReader(io.StringIO(found["text"].removeprefix("\ufeff"))))
    assert [row["id"] for row in read] == ["'=1+1", "'-2"]
    assert read[0]["text"] == '\'=HYPERLINK("x")'
    assert not any(value.startswith(("=", "+", "-", "@")) for row in read for value in row.values())
    assert read[0]["cached passed"] == "no"
    assert "does not contain 'zzz'" in read[0]["cached failed checks"]
    assert "apostrophe" in found["notes"][0]
    whole = json.loads(asked.ask("batch_files", {"key": "out", "form": "json"})["files"][0]["text"])
    assert whole["rows"][0]["checks"][0]["cached"]
    assert whole["rows"][0]["passed"] == {"cached": False}
    assert whole["summary"]["checked"] == 2
    assert "no longer exists" in asked.ask("batch_files", {"key": "gone", "form": "csv"})["error"]


def test_a_row_opens_as_the_workspace_and_the_open_one_goes_to_the_shelf(asked: Asked) -> None:
    run(asked, "open", mode="cached")
    page = {"name": "mine", "schema": SCHEMA, "prompt": "<prompt>mine</prompt>"}
    opened = asked.ask("batch_open", {"key": "open", "number": 1, "page": page})["workspace"]
    assert "<rome/>" in opened["prompt"]
    assert opened["settings"]["max_new_tokens"] == 2
    assert asked.ask("shelf")["shelf"][0]["prompt"] == page["prompt"]


def test_what_is_filled_in_is_kept(asked: Asked) -> None:
    form = {"table": "id\n1\n", "checks": [{"kind": "json", "value": "{}"}]}
    assert asked.ask("batch_keep", {"form": form}) == {}
    kept = asked.ask("batch_form")
    assert kept["form"] == form
    assert {one["name"] for one in kept["kinds"]} > {"contains", "json"}


def test_a_check_that_cannot_be_read_is_refused_by_its_number(asked: Asked) -> None:
    checks = [{"kind": "contains", "value": "x"}, {"kind": "regex", "value": "("}]
    found = asked.ask("batch_start", {**table(TABLE), "key": "bad", "checks": checks})
    assert found["error"].startswith("Check 2: '(' is not a regular expression")


def test_there_is_no_batch_before_the_first(tmp_path: Path) -> None:
    assert Asked(tmp_path).ask("batch_state") == {}
