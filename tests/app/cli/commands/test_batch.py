"""`pml run --batch`: rows, each with its own answer or fault, and an output that a later run goes on with."""

from __future__ import annotations

import csv
import io
import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.app.studio.batches.test_judge import Server, server

__all__ = ["server"]  # a fixture

pytestmark = pytest.mark.usefixtures("place")

ROOT = Path(__file__).resolve().parents[4]
CSV = """id,picks,plan/duration,text,_expected
a,tokyo,3 days,Where should I eat?,ramen
b,rome,"a week, two",What is there?,
"""

Pml = Callable[..., SimpleNamespace]
Batch = Pml


@pytest.fixture
def batch(run_pml: Pml) -> Batch:
    """Answers rows, each with two tokens and from segments only; `lines` are those of the output."""

    def call(rows: str | bytes, *options: str, name: str = "rows.csv") -> SimpleNamespace:
        Path(name).write_bytes(rows if isinstance(rows, bytes) else rows.encode("utf-8"))
        words = ("--schema", "trip.pml", "--max-new-tokens", "2", "--mode", "cached")
        result = run_pml("run", "--batch", name, *words, *options)
        output = Path(options[options.index("--output") + 1]) if "--output" in options else None
        text = output.read_text("utf-8") if output is not None and output.is_file() else result.out
        result.lines = [json.loads(line) for line in text.splitlines()] if result.status in (0, 3, 4) else []
        return result

    return call


def ids(lines: list[dict[str, Any]]) -> list[Any]:
    return [line["id"] for line in lines]


def faults(lines: list[dict[str, Any]]) -> dict[Any, str]:
    return {line["id"]: line["error"]["message"] for line in lines if "error" in line}


def test_each_row_gets_the_answer_of_its_prompt(batch: Batch, run_pml: Pml) -> None:
    result = batch(CSV)
    assert result.status == 0, result.err
    assert ids(result.lines) == ["a", "b"]
    assert "2 rows answered" in result.err
    words = ("--schema", "trip.pml", "--max-new-tokens", "2", "--mode", "cached", "--json")
    Path("prompt.pml").write_text(
        '<prompt schema="trip">\n <plan duration="3 days"> <tokyo/> </plan>\n Where should I eat?\n</prompt>',
        encoding="utf-8",
    )
    alone = json.loads(run_pml("run", "prompt.pml", *words).out)["cached"]
    mine = result.lines[0]["cached"]
    assert set(mine) == set(alone)
    assert (mine["token_ids"], mine["tokens"]["prompt"]) == (alone["token_ids"], alone["tokens"]["prompt"])
    assert result.lines[0]["cached"]["tokens"]["encoded"] > result.lines[1]["cached"]["tokens"]["encoded"] > 0


def test_json_rows_of_both_kinds_on_both_sides(batch: Batch) -> None:
    rows = [
        {"id": 7, "picks": ["tokyo"], "arguments": {"duration": "3 days"}, "text": "Where should I eat?"},
        {"prompt": '<prompt><plan duration="3 days"><tokyo/></plan> Where should I eat?</prompt>'},
        {"picks": "plan, rome", "arguments": {"plan": {"duration": 4}}, "_note": "a number"},
    ]
    result = batch("\n".join(map(json.dumps, rows)), "--mode", "both", name="rows.jsonl")
    assert result.status == 0, result.err
    assert ids(result.lines) == [7, 2, 3]
    first, second, _ = result.lines
    assert {"cached", "uncached", "ttft_speedup", "kl_first_token", "same_text"} <= set(first)
    assert first["uncached"]["tokens"] == second["uncached"]["tokens"]
    assert first["cached"]["text"] == second["cached"]["text"]


def test_what_is_wrong_with_a_row_is_said_of_that_row(batch: Batch) -> None:
    rows = [
        '{"id": "fine", "picks": "tokyo"}',
        '{"id": "long", "picks": "tokyo", "text": "' + "So? " * 9000 + '"}',
        '{"id": "union", "picks": "tokyo rome"}',
        '{"id": "module", "picks": "tokio"}',
        '{"id": "twice", "picks": "tokyo plan/tokyo"}',
        '{"id": "parameter", "arguments": {"plan": {"durration": "1"}}}',
        '{"broken": ',
        '{"id": "key", "pick": "tokyo"}',
        '{"id": "schema", "schema": "code", "picks": "tokyo"}',
        '{"id": "named", "prompt": "<prompt schema=\\"code\\"><tokyo/></prompt>"}',
        '{"id": "two", "prompt": "<prompt/>", "text": "So?"}',
        '{"id": "character", "text": "\\u0000"}',
        '{"id": "half", "text": "\\ud800"}',
        '{"id": "fine", "picks": "rome"}',
        '{"id": 1.5}',
        '["a"]',
        '{"id": "deep", "arguments": ' + '{"a":' * 100_000 + "1" + "}" * 100_000 + "}",
        "",
        '{"id": "last", "picks": ["rome"]}',
    ]
    result = batch("\n".join(rows), name="rows.jsonl")
    assert result.status == 3, result.err
    assert [line["id"] for line in result.lines if "cached" in line] == ["fine", "last"]
    told = faults(result.lines)
    wanted = {
        "long": "reads at most 32767",
        "union": "in the same choice. Keep one.",
        "module": "no module 'tokio'. Did you mean 'tokyo'?",
        "twice": "'plan/tokyo' is picked twice",
        "parameter": "no parameter 'durration'. Did you mean 'duration'?",
        7: "This is not valid JSON: column 11",
        "key": "'pick' is not a key of a row. Write one of id, prompt, schema, picks, arguments, text, ",
        "schema": "The row is for the schema 'code'",
        "named": "Line 1, column 17 of the prompt: ",
        "two": "a whole prompt and picks, arguments or text",
        "character": "E103",
        "half": "E103",
        "fine": "The id 'fine' is already in line 1",
        15: "The id is neither text nor a whole number",
        16: "This is not a JSON object",
        17: "This is not valid JSON",
    }
    assert list(told) == list(wanted)
    for row, words in wanted.items():
        assert words in told[row], (row, told[row])
    codes = {line["id"]: line["error"].get("code") for line in result.lines if "error" in line}
    assert (codes["long"], codes["named"]) == ("E502", "E401")
    assert "(line" not in told["union"]
    for row in ("long", "union", "named"):
        assert not told[row][0].islower()
        assert told[row].endswith(".")
    assert result.err.splitlines()[-5:] == [
        result.err.splitlines()[-5],
        f"pml: line 2: {told['long']}",
        f"pml: line 3: {told['union']}",
        f"pml: line 4: {told['module']}",
        'pml: and 13 more; all are the lines with an "error".',
    ]
    assert "2 rows answered, 16 failed" in result.err.splitlines()[-5]


def test_what_spreadsheets_write_is_read(batch: Batch) -> None:
    rows = CSV.replace('"a week, two"', "a week; two").replace(",", "\t").replace("\n", "\r\n")
    result = batch(rows.encode("utf-8-sig"))
    assert result.status == 0, result.lines or result.err
    assert ids(result.lines) == ["a", "b"]


def test_faulty_lines_of_a_csv(batch: Batch) -> None:
    rows = (
        b"id,picks,durration,text\n"
        b"a,tokyo,,fine\n"
        b"b,tokyo,3,typo\n"
        b"c,tokyo,,too,many\n"
        b'd,tokyo,,"two\nlines"\n'
        b'e,tokyo,,"quotes "inside" it"\n'
    )
    rows += "f,tokyo,,caf\u00e9\n".encode("latin-1") + b"g,tokyo\n,rome\n" + b'h,tokyo,,"never closed\n'
    result = batch(rows)
    assert result.status == 3
    assert [line["id"] for line in result.lines if "cached" in line] == ["a", "d", "g", 10]
    told = faults(result.lines)
    assert "no parameter 'durration'. Did you mean 'duration'?" in told["b"]
    assert "5 cells, but there are 4 columns" in told["c"]
    assert told[7].startswith("The line cannot be read as CSV")
    assert "is not UTF-8: byte 0xE9 in line 8" in told[8]
    assert told[11].startswith("The quote opened in line 11 is never closed. Close every quote")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (b"", "has no rows"),
        (b'[{"id": 1}]', "one JSON object per line"),
    ],
)
def test_a_file_that_is_no_batch_is_refused_before_a_model_loads(
    rows: bytes, words: str, batch: Batch
) -> None:
    result = batch(rows, "--model", "no/such/model/anywhere")
    assert (result.status, result.out) == (1, "")
    assert words in result.err


def test_paths_that_cannot_be_used(batch: Batch, run_pml: Pml) -> None:
    words = ("--schema", "trip.pml", "--model", "no/such/model/anywhere")
    missing = run_pml("run", "--batch", "nothing.csv", *words)
    assert missing.status == 2
    assert "nothing.csv does not exist" in missing.err
    folder = run_pml("run", "--batch", ".", *words)
    assert folder.status == 2
    assert ". is a folder" in folder.err
    Path("rows.csv").write_text(CSV, encoding="utf-8")
    for output, told in (
        (".", "is a folder"),
        ("rows.csv", "rows.csv is the batch itself"),
        ("./trip.pml", "is the schema itself"),
        ("no/such/out.jsonl", "its folder does not exist"),
    ):
        result = run_pml("run", "--batch", "rows.csv", *words, "--output", output, "--force")
        assert result.status in (1, 2)
        assert told in result.err
    assert Path("rows.csv").read_text("utf-8") == CSV


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-", "--batch", "-"], "cannot both be read from standard input"),
        ([], "Missing argument 'PROMPT'"),
        (["prompt.pml", "--output", "out.jsonl"], "are for --batch"),
        (["prompt.pml", "--as-they-end"], "are for --batch"),
        (["prompt.pml", "--force"], "are for --batch"),
        (["prompt.pml", "--judge", "model"], "are for --batch"),
        (["--batch", "rows.csv", "--judge-model", "m"], "are for --judge"),
        (["--batch", "rows.csv", "--json"], "--json is for one prompt"),
        (["--batch", "rows.csv", "--server", "http://127.0.0.1:7860"], "a batch is computed here"),
    ],
)
def test_what_does_not_go_together(words: list[str], told: str, run_pml: Pml) -> None:
    result = run_pml("run", *words, "--schema", "trip.pml")
    assert (result.status, result.out) == (2, "")
    assert told in result.err


def test_a_run_goes_on_where_another_stopped(batch: Batch) -> None:
    rows = CSV + "c,paris,,,\n"
    first = batch(rows, "--output", "out.jsonl")
    assert first.status == 3
    assert "Write" not in first.err
    whole = Path("out.jsonl").read_bytes()
    lines = whole.splitlines(keepends=True)
    # Killed while the second line was written; then somebody mends the third row and adds one.
    Path("out.jsonl").write_bytes(lines[0] + lines[2] + lines[1][:40])
    again = batch(CSV + "c,rome,,,\nd,tokyo,,,\n", "--output", "out.jsonl")
    assert again.status == 0, again.err
    assert "3 rows answered, 1 answered before, in out.jsonl" in again.err
    assert ids(again.lines) == ["a", "b", "c", "d"]
    assert Path("out.jsonl").read_bytes().startswith(lines[0])
    nothing_left = batch(CSV + "c,rome,,,\nd,tokyo,,,\n", "--output", "out.jsonl")
    assert nothing_left.status == 0
    assert nothing_left.lines == again.lines
    assert "0 rows answered, 4 answered before" in nothing_left.err


@pytest.mark.parametrize(
    ("rows", "options", "words"),
    [
        (CSV, ("--max-new-tokens", "3"), "another model, another schema or other settings"),
        (CSV.replace("?", "!"), (), "to 2 rows that have changed since (the first is 'a')."),
        (
            CSV.replace("b,", "e,").replace("Where", "When"),
            (),
            "to 1 row that has changed since ('a') and to 1 row that is gone ('b').",
        ),
    ],
    ids=["settings", "several", "both kinds"],
)
def test_an_output_of_something_else_is_refused(
    rows: str, options: tuple[str, ...], words: str, batch: Batch
) -> None:
    assert batch(CSV, "--output", "out.jsonl").status == 0
    there = Path("out.jsonl").read_bytes()
    refused = batch(rows, *options, "--output", "out.jsonl")
    assert (refused.status, refused.out) == (1, "")
    assert words in refused.err
    assert "--force" in refused.err
    assert Path("out.jsonl").read_bytes() == there
    forced = batch(rows, *options, "--output", "out.jsonl", "--force")
    assert forced.status == 0
    assert "before" not in forced.err


@pytest.mark.parametrize("there", ["notes\n", '{"id": 1, "text": "mine"}\n', '[1]\n{"id": 1}\n', "7\n"])
def test_a_file_of_somebody_else_is_refused(there: str, batch: Batch) -> None:
    Path("out.jsonl").write_text(there, encoding="utf-8")
    refused = batch(CSV, "--output", "out.jsonl")
    assert refused.status == 1
    assert "out.jsonl is not the output of a batch: line 1" in refused.err
    assert Path("out.jsonl").read_text("utf-8") == there


def test_another_schema_or_model_is_another_run(batch: Batch) -> None:
    assert batch(CSV, "--output", "out.jsonl").status == 0
    Path("trip.pml").write_text(Path("trip.pml").read_text("utf-8").replace("ruins", "fountains"), "utf-8")
    assert "another model, another schema" in batch(CSV, "--output", "out.jsonl").err


def test_rows_from_standard_input(batch: Batch, run_pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--schema", "trip.pml", "--max-new-tokens", "2", "--mode", "cached")

    def piped(*options: str) -> SimpleNamespace:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CSV.encode())))
        return run_pml("run", "--batch", "-", *words, *options)

    result = piped("--as-they-end")
    assert result.status == 0, result.err
    assert len(result.out.splitlines()) == 2
    assert piped("--output", "out.jsonl").status == 0
    refused = piped("--output", "out.jsonl")
    assert refused.status == 1
    assert "- can be read only once" in refused.err


def test_a_line_that_cannot_be_read_takes_no_other_rows_id(batch: Batch) -> None:
    rows = 'id,picks,text\n1,tokyo,x\n2,"to"kyo,x\n3,tokyo,x\n'  # numbered as people do
    result = batch(rows, "--output", "out.jsonl")
    assert [line["id"] for line in result.lines] == ["1", 3, "3"]
    assert ["error" in line for line in result.lines] == [False, True, False]
    assert "1 failed, 2 answered before" in batch(rows, "--output", "out.jsonl").err


def test_a_number_of_a_line_that_is_an_id_too_is_told_as_such(batch: Batch) -> None:
    result = batch("id,picks\n,tokyo\n2,rome\n5,rome\n,tokyo\n5,tokyo\n")
    assert [line["id"] for line in result.lines if "cached" in line] == [2, "5"]
    told = [line["error"]["message"] for line in result.lines if "error" in line]
    assert told == [
        "The id '2' is taken: line 2 has no id, so its line number is its id. Give each row its own id.",
        "The row has no id, and its line number is the id of line 4. Give each row its own id.",
        "The id '5' is already in line 4. Give each row its own id.",
    ]


def test_what_failed_is_listed_as_the_terminal_says(batch: Batch) -> None:
    rows = 'id,picks,text\na,tokyo,a word: ""error"": {\n' + "b,paris,\n" * 4
    result = batch(rows, "--output", "the answers.jsonl")
    assert result.err.count("pml: line ") == 3
    find = result.err.splitlines()[-1].partition(' with an "error": ')[2]
    assert find == """grep '"error": {' 'the answers.jsonl'"""
    found = subprocess.run(shlex.split(find), capture_output=True, text=True, check=True).stdout
    assert [json.loads(line)["id"] for line in found.splitlines()] == ["b"] * 4


def test_who_names_no_mode_is_told_of_the_faster_one(
    batch: Batch, run_pml: Pml, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--mode" not in batch(CSV).err
    words = ("run", "--batch", "rows.csv", "--schema", "trip.pml", "--max-new-tokens", "1")
    told = run_pml(*words)
    assert told.status == 0
    assert told.err.count("--mode cached answers up to 32 at once") == 1
    assert "--mode" not in run_pml(*words, "--mode", "both").err


def test_rows_change_a_prompt_have_settings_of_their_own_and_are_held_against_what_is_expected(
    batch: Batch,
) -> None:
    columns = "id,picks,set max_new_tokens,expect max words,expect contains"
    rows = f"{columns}\na,rome,1,9999,\nb,,,9999,no such text\n"
    result = batch(rows, "prompt.pml", "--mode", "both")
    assert result.status == 4, result.err
    a, b = result.lines
    assert (a["cached"]["tokens"]["generated"], b["cached"]["tokens"]["generated"]) == (1, 2)
    assert b["cached"]["tokens"]["prompt"] > 60  # the prompt that it changes is in it: a byte is a token
    assert (a["passed"], b["passed"]) == (
        {"cached": True, "uncached": True},
        {"cached": False, "uncached": False},
    )
    assert b["checks"][1]["expect"] == "contains 'no such text'"
    assert "does not contain" in b["checks"][1]["uncached"]
    assert "1 of 2 as expected" in result.err


def test_a_judge_grades_each_answer_and_an_error_of_it_fails_no_row(batch: Batch, server: Server) -> None:
    Path("judge.txt").write_text("{question} {answer}", encoding="utf-8")
    words = ("--judge", server.url, "--judge-template", "judge.txt", "--csv", "table.csv", "--mode", "both")
    result = batch("id,picks,text\na,rome,Why?\nb,nowhere,\n", *words)
    assert result.status == 3, result.err
    answered, failed = result.lines
    assert answered["grades"]["cached"] == {"score": 0.7, "reply": "I give 7 of 10."}
    assert set(answered["grades"]) == {"cached", "uncached"}
    assert "grades" not in failed
    assert {one["model"] for one in server.got} == {"judge"}
    assert server.got[0]["messages"][0]["content"].startswith("Why? ")
    assert "2 of 2 answers graded, mean 0.70" in result.err
    assert ",0.7,I give 7 of 10.," in Path("table.csv").read_text("utf-8-sig")
    result = batch("id,picks\na,rome\n", "--judge", "127.0.0.1:9")
    assert "No server answers" in result.lines[0]["grades"]["cached"]["reply"]
    assert "0 of 1 answer graded" in result.err
    result = batch("id,picks\na,rome\n", "--judge", "model")
    assert result.lines[0]["grades"]["cached"]["reply"]
    early = batch("id\na\n", "--judge", "http://example.com/v1", "--model", "nowhere")
    assert "Only servers on this machine" in early.err, "before the model is loaded"


def test_checks_of_the_whole_run_are_options_and_its_table_has_the_columns_of_the_studio(
    batch: Batch,
) -> None:
    rows = "id,picks,text,expect min words\na,tokyo,=Go.,0\nb,rome,What?,\nc,oslo,,\n"
    checks = ("--expect", "not contains", "no such text", "--expect", "max characters", "0")
    words = (*checks, "--csv", "table.csv", "--output", "out.jsonl")
    result = batch(rows, *words)
    assert result.status == 3, "a row that failed goes before one that is not as expected"
    a, b, c = result.lines
    assert [one["expect"] for one in a["checks"]] == [
        "not contains 'no such text'",
        "max characters 0",
        "min words 0",
    ]
    assert a["passed"] == b["passed"] == {"cached": False}
    assert "error" in c
    text = Path("table.csv").read_text("utf-8-sig")
    found = list(csv.DictReader(io.StringIO(text)))
    assert [(one["id"], one["state"], one["cached passed"]) for one in found] == [
        ("a", "done", "no"),
        ("b", "done", "no"),
        ("c", "failed", ""),
    ]
    assert found[0]["text"] == "'=Go."
    assert (found[1]["all modules"], found[2]["all modules"]) == ("plan plan/rome", "")
    assert "max_new_tokens=2" in found[0]["all settings"]
    assert found[0]["cached answer"].strip("'") == a["cached"]["text"]
    assert "max characters 0: It has" in found[0]["cached failed checks"]
    assert "no module 'oslo'" in found[2]["error"]
    # Gone on with: what was answered before is in the table too.
    again = batch(rows, *words)
    assert "2 answered before" in again.err
    assert list(csv.DictReader(io.StringIO(Path("table.csv").read_text("utf-8-sig")))) == found
    sound = rows.removesuffix("c,oslo,,\n")
    assert batch(sound, *checks).status == 4
    assert batch(sound, *checks, "--expect-any").status == 0
    other = batch(rows, "--expect", "min words", "0", "--output", "out.jsonl")
    assert "out.jsonl" in other.err
    assert other.status == 1, "answers that were held against something else are not gone on with"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--expect", "regex", "("), "--expect 1: '(' is not a regular expression"),
        (
            ("--expect", "contains", "x", "--expect", "rhymes", "x"),
            "--expect 2: 'rhymes' is not a kind of expectation",
        ),
    ],
)
def test_an_expectation_that_is_none_is_wrong_usage(batch: Batch, words: tuple[str, ...], told: str) -> None:
    result = batch(CSV, *words)
    assert result.status == 2
    assert told in result.err


def test_a_table_replaces_no_other_file(batch: Batch) -> None:
    Path("mine.csv").write_text("a,b")
    result = batch(CSV, "--csv", "mine.csv")
    assert "mine.csv already exists" in result.err
    assert Path("mine.csv").read_text() == "a,b"
    assert "is the batch itself" in batch(CSV, "--csv", "rows.csv").err


def test_lines_say_how_segments_were_reused_and_go_out_to_other_tools(batch: Batch) -> None:
    Path("out").mkdir()
    words = ("--output", "out.jsonl", "--export", "promptfoo", "out", "--export", "langfuse", "out")
    result = batch(CSV, *words)
    assert result.status == 0, result.err
    assert [set(line["reuse"]) for line in result.lines] == [{"taken", "why", "kl", "promise", "checked"}] * 2
    assert "reuse" not in batch(CSV, "--reuse", "off").lines[0]
    names = ("promptfooconfig.json", "promptfoo-results.json", "langfuse-items.jsonl")
    texts = [(Path("out") / name).read_text("utf-8") for name in names]
    tests = json.loads(texts[0])["tests"]
    assert [test["description"] for test in tests] == ["a", "b"]
    told = json.loads(texts[1])["results"]["results"]
    assert told[0]["response"]["output"] == result.lines[0]["cached"]["text"]
    again = batch(CSV, *words)
    assert "2 answered before" in again.err, again.err
    assert json.loads((Path("out") / names[1]).read_text("utf-8"))["results"]["results"] == told
    (Path("out") / names[0]).write_text("mine")
    assert "already exists" in batch(CSV, *words).err
