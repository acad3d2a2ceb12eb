"""Every command at a tiny size: its sides, its JSON, and what it refuses. No times."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.__main__ import bench
from benchmarks.quality.decide import read
from benchmarks.speed.ttft import dropped

Run = Callable[..., SimpleNamespace]
SMALL = ("--cached", "24", "--modules", "3", "--new", "6", "--repeats", "1")
CROWD = ("--prompts", "2", "--shared", "24", "--own", "6", "--tokens", "4")


def measured(run: Run, *words: str, model: str) -> dict[str, dict[str, Any]]:
    """The groups of a report by name."""
    done = run(*words, "--model", model, "--json")
    assert done.status == 0, done.err
    report = json.loads(done.out)
    assert {"processor", "cores", "torch"} <= set(report["machine"])
    for group in report["groups"]:
        assert all(samples and min(samples) > 0 for samples in group["samples_ms"].values())
    return {group["name"]: group for group in report["groups"]}


def test_help_names_every_command(run_bench: Run) -> None:
    for name in bench.commands:
        done = run_bench(name, "--help")
        assert done.status == 0
        assert done.out.startswith(f"Usage: python -m benchmarks {name}")
        assert f"  {name} " in run_bench("--help").out


def test_ttft(run_bench: Run, model: str) -> None:
    found = measured(run_bench, "ttft", *SMALL, model=model)
    text, tokens = found[""], found["token ids"]
    sides = {"uncached", "cached", "files_later", "files_first", "cached link:8", "cached impact:0.15"}
    assert sides <= set(text["median_ms"])
    assert text["values"]["tokens, from_cache"] >= 24
    assert set(tokens["median_ms"]) == {"uncached", "cached", "copy", "floor"}
    assert tokens["values"]["difference of logits, cached to copy"] < 1e-4
    words = run_bench("ttft", *SMALL, "--model", model).out
    assert "UNCACHED ÷" in words
    assert "processor " in words
    refused = run_bench("ttft", "--cached", "2", "--modules", "4", "--model", model)
    assert refused.status == 1
    assert "a module needs a token" in refused.err
    assert "do not fit" in run_bench("ttft", "--cached", "9000000", "--model", model).err


def test_formats(run_bench: Run, model: str) -> None:
    found = measured(run_bench, "formats", "--tokens", "24", "--repeats", "1", model=model)
    choice, answer = found["choice of a token"], found["token of an answer"]
    assert set(choice["median_ms"]) == set(answer["median_ms"]) == {"free text", "any text", "JSON"}
    values = answer["values"]
    assert values["any text, forced tokens"] == 0 < values["JSON, forced tokens"]
    assert values["JSON, passes"] < values["JSON, tokens"]


def test_times_are_of_the_requested_weights(run_bench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PML_QUANTIZE", "int8")
    (group,) = measured(run_bench, "crowd", *CROWD, "--repeats", "1", model="demo").values()
    assert group["params"]["weights"] == "int8"


def test_first_runs_begin_with_an_empty_store(run_bench: Run, model: str) -> None:
    found = measured(run_bench, "first", *SMALL, model=model)
    assert set(found[""]["median_ms"]) == {"uncached", "first", "first_sync", "first_written"}
    assert found[""]["values"]["segments"] >= 3


def test_decode_gives_the_same_text_with_guesses(run_bench: Run, model: str) -> None:
    given = ("--cached", "24", "--modules", "3", "--repeats", "1")
    found = measured(run_bench, "decode", *given, "--quantize", "int8", model=model)
    assert set(found[""]["median_ms"]) == {"step_plain", "step_packed", "step_int8"}
    values = found["bundled model, quoting"]["values"]
    assert values["same text"] == "yes"
    assert values["passes, step with guesses"] < values["passes, step without guesses"]


def test_batch_has_the_answers_of_one_by_one(run_bench: Run, model: str) -> None:
    found = measured(run_bench, "batch", *CROWD, "--modules", "3", "--repeats", "1", model=model)
    kinds = {"one_by_one", "batch", "batch_reordered", "batch_plain", "private"}
    assert set(found[""]["median_ms"]) == kinds
    assert found[""]["values"]["same text"] == "yes"
    assert found[""]["values"]["tokens per second, batch"] > 0
    assert set(found["a newcomer"]["median_ms"]) == {"newcomer", "newcomer_alone"}


def test_arrivals(run_bench: Run, model: str) -> None:
    found = measured(run_bench, "arrivals", *CROWD, "--modules", "3", model=model)
    assert found["random arrivals"]["values"]["a token alone, ms"] > 0


def test_attention_computes_the_same_on_all_sides(run_bench: Run) -> None:
    done = run_bench("attention", "--prompts", "4", "--tokens", "64", "--repeats", "1", "--json")
    groups = {group["name"]: group for group in json.loads(done.out)["groups"]}
    assert {group["values"]["same text"] for group in groups.values()} == {"yes"}
    shared = groups["grouped heads, all shared"]
    assert set(shared["median_ms"]) == {"ours", "unaware", "private", "reordered"}
    assert shared["values"]["keys and values, private ÷ ours"] > 1


def test_serve_adds_no_text_of_its_own(run_bench: Run, model: str) -> None:
    given = ("--cached", "24", "--new", "6", "--tokens", "8", "--repeats", "1")
    (group,) = measured(run_bench, "serve", *given, model=model).values()
    assert len(group["median_ms"]) == 6
    same = {name: value for name, value in group["values"].items() if name.endswith("same text")}
    assert same == dict.fromkeys(same, "yes")
    assert len(same) == 4


@pytest.mark.long
def test_reordered_blocks_are_read(run_bench: Run) -> None:
    given = ("--blocks", "2", "--tokens", "40", "--repeats", "1")
    found = measured(run_bench, "reorder", *given, model="demo")
    assert len(found) == 4
    for name, group in found.items():
        read = int(str(group["values"]["tokens read of the latest request"]).split()[0])
        assert read >= 70 or name.startswith("marked"), "blocks with names are read wherever they stand"


class Other(BaseHTTPRequestHandler):
    """Another engine: it streams two tokens."""

    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        self.answer(json.dumps({"data": [{"id": "theirs"}]}))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["model"] == "theirs"
        event = json.dumps({"choices": [{"text": "a"}]})
        self.answer(f"data: {event}\n\ndata: {event}\n\ndata: [DONE]\n\n")

    def answer(self, text: str) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


def test_a_crowd_of_requests_against_another_engine(run_bench: Run, model: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        against = ("--against", f"http://127.0.0.1:{server.server_port}/v1")
        (group,) = measured(run_bench, "crowd", *CROWD, "--repeats", "1", *against, model=model).values()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert set(group["median_ms"]) == {"ours", "theirs"}
    assert group["values"]["theirs: requests per second"] > 0
    refused = run_bench(
        "crowd", *CROWD, "--model", model, "--against", f"http://127.0.0.1:{server.server_port}"
    )
    assert refused.status == 1
    assert "names no model" in refused.err


def test_sweep_writes_a_table_and_a_file(run_bench: Run, model: str, tmp_path: Path) -> None:
    target = tmp_path / "sweep.csv"
    wanted = ("sweep", "cached", "--at", "8", "--at", "16", *SMALL, "--model", model, "--csv", target)
    done = run_bench(*wanted)
    assert done.status == 0, done.err
    for words in ("CACHED", "UNCACHED ÷", "floor", "files", "processor "):
        assert words in done.out
    assert len(target.read_text(encoding="utf-8").splitlines()) == 1 + 2 * 4
    assert "--force" in run_bench(*wanted).err
    for options, said in ((("cached", "--at", "far"), "'far'"), (("scope", "--at", "wide"), "'wide'")):
        refused = run_bench("sweep", *options)
        assert refused.status == 2
        assert said in refused.err


@pytest.mark.parametrize(("arrangement", "modules"), [("mixed", 2), ("grouped", 3)])
def test_decide_mixes_or_groups_the_examples(
    run_bench: Run, model: str, tmp_path: Path, arrangement: str, modules: int
) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [("train", f"text {number} {label}", label) for label in "abc" for number in range(2)]
    rows += [("test", "text a", "a"), ("test", "text b", "b"), ("test", "text c", "c")]
    fields = ("split", "text", "label")
    path.write_text("\n".join(json.dumps(dict(zip(fields, row, strict=True))) for row in rows))
    assert len(read(str(path), 9, arrangement).modules) == modules
    done = run_bench(
        "decide", str(path), "--arrangement", arrangement, "--limit", "2", "--model", model, "--json"
    )
    assert done.status == 0, done.err
    report = json.loads(done.out)
    assert report["questions"] == 2
    assert {"uncached", "anchored", "anchored impact:0.05", "transformers"} <= set(report["ways"])
    assert all(way["ms"] > 0 and 0 <= way["accuracy"] <= 1 for way in report["ways"].values())
    path.write_text("{}")
    assert "rows.jsonl:1 is not a labelled text" in run_bench("decide", str(path), "--model", model).err


@pytest.mark.long
def test_store(run_bench: Run) -> None:
    counts = ("--kills", "1", "--damages", "10", "--seconds", "1", "--questions", "1")
    found = measured(run_bench, "store", *counts, model="demo")
    assert found["kills"]["values"]["correct afterwards"] == 1
    damages = found["damages"]["values"]
    assert (damages["wrong answers"], damages["detected"]) == (0, 10)
    assert found["processes"]["values"]["index and files agree"] == "yes"
    assert found["verify"]["values"]["bytes ÷ keys and values"] < 1.02


def test_quality_writes_tables_and_charts(
    run_bench: Run, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.base.charts.chromium", lambda: None)
    file, out = tmp_path / "q.jsonl", tmp_path / "out"
    file.write_text('{"input": "What?", "context": "Some text.", "answers": ["x"], "metric": "f1"}\n')
    done = run_bench("quality", file, "--scope", "isolated", "--model", model, "--out", out)
    assert done.status == 0, done.err
    assert "0 / 0 / 1" in done.out
    assert {path.name for path in out.iterdir()} == {
        "samples.jsonl",
        "quality.json",
        "quality.txt",
        "charts.html",
    }
    assert run_bench("quality", file, "--suite", "demo").status == 2
    assert run_bench("quality", tmp_path / "none").status == 2


@pytest.mark.long
def test_quality_over_the_suite_of_the_bundled_model(run_bench: Run) -> None:
    done = run_bench("quality", "--suite", "demo", "--limit", "1", "--scope", "scaffold", "--model", "demo")
    assert done.status == 0, done.err
    for words in ("learning\n", "modules: 1 ", "all files, 4 prompts"):
        assert words in done.out


def test_regress_compares_this_checkout(run_bench: Run) -> None:
    assert run_bench("regress", "HEAD", "none", "--rounds", "1").status == 1


def test_files_leave_the_page_cache_only_on_a_real_disk(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    assert dropped([path]) in (True, False)
    assert path.read_bytes() == bytes(1 << 20)
