"""The command line with a model: a tiny one with random weights, loaded like any other folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.inference.sampler import Sampler
from tests.app.conftest import PROMPT, SCHEMA

pytestmark = pytest.mark.usefixtures("place")

Pml = Callable[..., SimpleNamespace]
Report = Callable[..., dict[str, Any]]

ROOT = Path(__file__).resolve().parents[4]
SIDE = {"text", "token_ids", "ttft_ms", "tpot_ms", "timeline_ms", "tokens", "segments"}


@pytest.fixture
def answer(run_pml: Pml) -> Report:
    """Runs the prompt with `--json` and returns the object."""

    def call(*options: str) -> dict[str, Any]:
        result = run_pml(
            "run", "prompt.pml", "--schema", "trip.pml", "--max-new-tokens", "6", "--json", *options
        )
        assert result.status == 0, result.err
        report: dict[str, Any] = json.loads(result.out)
        return report

    return call


OFFLINE = """
import sys
def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise SystemExit(f"{event} {arguments}")
sys.addaudithook(refuse)
from app.cli import main
main(sys.argv[1:])
"""


def in_a_process(*arguments: str) -> SimpleNamespace:
    """Another process, which ends with a fault where it opens a connection."""
    allowed = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, *arguments],
        env=allowed | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return SimpleNamespace(status=done.returncode, out=done.stdout, err=done.stderr)


def test_a_run_reports_both_sides(answer: Report, tiny_model: Path) -> None:
    report = answer()
    assert report["schema"] == "trip"
    assert report["model"] == str(tiny_model)
    assert (report["scope"], report["placement"]) == ("anchored", "compact")
    assert {"ttft_speedup", "first_token_agrees", "kl_first_token", "same_text"} <= set(report)
    for side in ("cached", "uncached"):
        assert set(report[side]) >= SIDE
        counts = report[side]["tokens"]
        assert counts["from_cache"] + counts["computed"] == counts["prompt"]
        assert counts["generated"] == len(report[side]["token_ids"]) <= 6
        assert sum(report[side]["timeline_ms"].values()) == pytest.approx(report[side]["ttft_ms"])
    cached, uncached = report["cached"], report["uncached"]
    assert cached["tokens"]["prompt"] == uncached["tokens"]["prompt"]
    assert cached["tokens"]["from_cache"] > 30
    assert uncached["tokens"]["from_cache"] == 0
    assert {use["path"] for use in cached["segments"]} == {"", "plan", "plan/tokyo"}
    assert {use["outcome"] for use in cached["segments"]} == {"miss"}
    assert "encode" in cached["timeline_ms"]


@pytest.mark.parametrize(("mode", "sides"), [("cached", {"cached"}), ("uncached", {"uncached"})])
def test_one_side_alone(mode: str, sides: set[str], answer: Report) -> None:
    report = answer("--mode", mode)
    assert {"cached", "uncached"} & set(report) == sides
    assert "ttft_speedup" not in report


def test_sampling_follows_the_seed(answer: Report) -> None:
    hot = ("--mode", "uncached", "--temperature", "2", "--seed")
    ids = [answer(*hot, seed)["uncached"]["token_ids"] for seed in ("1", "1", "2")]
    assert ids[0] == ids[1] != ids[2]


def test_a_run_for_people(run_pml: Pml) -> None:
    result = run_pml("run", "prompt.pml", "--schema", "trip.pml", "--max-new-tokens", "4")
    assert result.status == 0, result.err
    lines = result.out.splitlines()
    rows = ("time to first token", "prompt tokens", "found in the cache", "encoded in this run", "generated")
    for words in rows:
        assert sum(line.startswith(words) for line in lines) == 1, words
    assert [line.split(",")[0] for line in lines if "first token after" in line] == ["cached", "uncached"]
    assert re.match(
        r"Cached is [\d.]+ times (faster|slower) to the first token \([\d.]+ m?s of it", lines[-2]
    )
    assert "KL" in lines[-2]
    assert re.match(r"Recomputed \d+ of \d+ cached tokens: mean KL ", lines[-1])
    again = run_pml("run", "prompt.pml", "--schema", "trip.pml", "--max-new-tokens", "4").out
    assert re.match(r"Cached is [\d.]+ times (faster|slower) to the first token;", again.splitlines()[-2])


APART = (
    '<schema name="s"><module name="a">Alpha beta.</module><module name="b">Gamma delta.</module></schema>'
)


@pytest.mark.parametrize(
    ("prompt", "given", "pointed"),
    [
        ("<a/><b/>Well?", ("--reuse", "off"), True),
        ("<a/><b/>Well?", (), False),
        ("<a/>Well?", ("--reuse", "off"), False),
        ("<a/><b/>Well?", ("--scope", "scaffold"), False),
        ("<a/><b/>Well?", ("--json",), False),
    ],
)
def test_a_run_on_a_terminal_points_to_fidelity_where_reuse_may_change_the_answer(
    prompt: str,
    given: tuple[str, ...],
    pointed: bool,
    place: Path,
    run_pml: Pml,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (place / "s.pml").write_text(APART)
    (place / "my prompt.pml").write_text(f'<prompt schema="s">{prompt}</prompt>')
    words = ("run", "my prompt.pml", "--schema", "s.pml", "--mode", "cached", "--max-new-tokens", "1", *given)
    assert "pml fidelity" not in run_pml(*words).out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    out = run_pml(*words).out
    assert ("reuse may change the answer" in out) == pointed
    assert ("pml fidelity 'my prompt.pml' --schema s.pml" in out) == pointed


@pytest.mark.parametrize(
    "command",
    [
        ("run", "prompt.pml", "--schema", "trip.pml", "--max-new-tokens", "2"),
        ("fidelity", "prompt.pml", "--schema", "trip.pml", "--max-new-tokens", "2"),
        ("layout", "trip.pml"),
        ("encode", "trip.pml"),
    ],
)
def test_a_command_closes_its_engine(
    run_pml: Pml, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    from engine import Engine

    closed: list[Engine] = []
    close = Engine.close

    def closing(engine: Engine) -> None:
        close(engine)
        closed.append(engine)

    monkeypatch.setattr(Engine, "close", closing)
    assert run_pml(*command).status == 0
    assert len(closed) == 1


def test_what_a_run_encodes_is_not_called_found(answer: Report) -> None:
    first, second = (answer("--mode", "cached", "--reuse", "off")["cached"]["tokens"] for _ in range(2))
    assert 0 < first["encoded"] == first["from_cache"]
    assert (second["encoded"], second["from_cache"]) == (0, first["from_cache"])


def test_nothing_is_called_spared_that_is_not_kept(run_pml: Pml) -> None:
    command = ("run", "prompt.pml", "--schema", "trip.pml", "--max-new-tokens", "2")
    assert "saved in the next run" in run_pml(*command).out
    assert run_pml("cache", "clear").status == 0
    assert run_pml("cache", "budget", "0", "--yes").status == 0
    said = run_pml(*command).out
    assert "of it encoding)" in said
    assert "spared" not in said


def test_turns_that_are_not_stored_are_computed_with_the_new_text(place: Path, answer: Report) -> None:
    turns = "<assistant>Yes.</assistant><user>And then?</user>" * 3
    source = (place / "prompt.pml").read_text(encoding="utf-8").replace("</prompt>", f"{turns}</prompt>")
    (place / "prompt.pml").write_text(source, encoding="utf-8")
    report = answer()
    assert "conversation is not stored" not in {use["reason"] for use in report["cached"]["segments"]}
    assert report["cached"]["tokens"]["computed"] > 20
    stored = answer("--store-conversation", "--mode", "cached")["cached"]["tokens"]
    assert stored["from_cache"] > report["cached"]["tokens"]["from_cache"]
    assert stored["prompt"] == report["cached"]["tokens"]["prompt"]


@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.long)])
def test_segments_outlive_the_process_which_opens_no_connection(run_pml: Pml, apart: bool) -> None:
    words = ("--max-new-tokens", "6", "--reuse", "off", "--json")
    command = ["run", "prompt.pml", "--schema", "trip.pml", *words]
    first, second = (in_a_process if apart else run_pml)(*command), run_pml(*command)
    assert (first.status, second.status) == (0, 0), first.err + second.err
    before, after = json.loads(first.out), json.loads(second.out)
    assert {use["outcome"] for use in before["cached"]["segments"]} == {"miss"}
    assert {(use["outcome"], use["tier"]) for use in after["cached"]["segments"]} == {("hit", "disk")}
    assert "encode" not in after["cached"]["timeline_ms"]
    assert after["cached"]["token_ids"] == before["cached"]["token_ids"]
    assert after["kl_first_token"] == pytest.approx(before["kl_first_token"], abs=1e-6)


def test_ctrl_c_ends_a_run_with_status_130(run_pml: Pml, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = Sampler.choose

    def interrupted(sampler: Sampler, logits: Any) -> int:
        signal.raise_signal(signal.SIGINT)
        return choose(sampler, logits)

    monkeypatch.setattr(Sampler, "choose", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it
    try:
        found = run_pml("run", "prompt.pml", "--schema", "trip.pml", "--mode", "uncached")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (found.status, found.err.strip()) == (130, "pml: interrupted")


def test_encode_leaves_alone_what_is_stored(run_pml: Pml, place: Path) -> None:
    first = json.loads(run_pml("encode", "trip.pml", "--json").out)
    again = json.loads(run_pml("encode", "trip.pml", "--json").out)
    counts = {"encoded", "reused", "elsewhere", "kept", "total", "tokens"}
    assert set(first) == counts | {"budget_needed", "seconds", "bytes", "warnings"}
    assert first["encoded"] > 0
    assert first["reused"] == 0
    assert (again["encoded"], again["reused"], again["tokens"]) == (0, first["encoded"], 0)

    (place / "trip.pml").write_text(SCHEMA.replace("Rome has ruins.", "Rome has hills."), encoding="utf-8")
    edited = json.loads(run_pml("encode", "trip.pml", "--json").out)
    assert (edited["encoded"], edited["reused"]) == (1, first["encoded"] - 1)
    assert "Encoded 0 segments" in run_pml("encode", "trip.pml").out


def test_layout_tells_sizes_and_what_is_stored(run_pml: Pml) -> None:
    before = json.loads(run_pml("layout", "trip.pml", "--json").out)
    assert [module["path"] for module in before["modules"]] == ["plan", "plan/tokyo", "plan/rome"]
    plan, tokyo, rome = before["modules"]
    assert tokyo["start"] == rome["start"] > plan["start"]
    assert plan["params"] == {"duration": 12}
    assert plan["total_tokens"] == plan["tokens"] + max(tokyo["tokens"], rome["tokens"])
    assert before["total_positions"] >= plan["start"] + plan["total_tokens"]
    assert {module["cached"] for module in before["modules"]} == {"none"}
    run_pml("encode", "trip.pml")
    after = json.loads(run_pml("layout", "trip.pml", "--json").out)
    assert {module["cached"] for module in after["modules"]} == {"disk"}
    isolated = json.loads(run_pml("layout", "trip.pml", "--scope", "isolated", "--json").out)
    assert {module["cached"] for module in isolated["modules"]} == {"none"}
    text = run_pml("layout", "trip.pml").out
    assert text.splitlines()[0].split() == ["MODULE", "START", "TOKENS", "TOTAL", "SIZE", "CACHED"]
    assert "plan/tokyo" in text


def test_the_store_is_listed_counted_and_cleared(run_pml: Pml, answer: Report) -> None:
    assert "Nothing is stored yet" in run_pml("cache", "list").out
    answer("--mode", "cached")
    answer("--mode", "cached")
    stats = json.loads(run_pml("cache", "stats", "--json").out)
    assert {"segments", "bytes", "hits", "misses", "corrupt"} <= set(stats)
    assert stats["segments"] == stats["misses"] == stats["hits"] > 0
    assert stats["corrupt"] == 0
    listed = json.loads(run_pml("cache", "list", "--json").out)["segments"]
    assert len(listed) == stats["segments"]
    assert sum(segment["bytes"] for segment in listed) == stats["bytes"]
    table = run_pml("cache", "list").out
    assert "plan/tokyo" in table
    assert "(fixed text)" in table
    assert "(50%)" in run_pml("cache", "stats").out
    assert json.loads(run_pml("cache", "clear", "--json").out) == {"removed": stats["segments"], "kept": 0}
    assert json.loads(run_pml("cache", "stats", "--json").out)["segments"] == 0
    assert {use["outcome"] for use in answer("--mode", "cached")["cached"]["segments"]} == {"miss"}


def test_models_shows_what_the_probe_measured(run_pml: Pml, tiny_model: Path) -> None:
    report = json.loads(run_pml("models", "--json").out)
    assert (report["model"], report["family"]) == (str(tiny_model), "llama")
    assert (report["path"], report["relocatable"]) == ("segments", True)
    assert report["checks"]
    assert max(report["checks"].values()) < 1e-3
    text = run_pml("models").out
    assert str(tiny_model) in text
    assert "random:SHAPE" in text
    assert "segment by segment" not in text
    alone = run_pml("models", "--model", f"'{tiny_model}'").out
    assert alone.startswith(f"{tiny_model}: llama"), "nothing general stands before what was asked for"
    assert "random:SHAPE" not in alone
    assert "MiB on disk (safetensors fp32)" in alone or "KiB on disk (safetensors fp32)" in alone


def test_models_looks_at_a_model_without_loading_it(
    run_pml: Pml, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = json.loads(run_pml("models", "--json").out)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is loaded")

    monkeypatch.setattr("engine.model.loading.load", refuse)
    looked = json.loads(run_pml("models", "--look", "--json").out)
    assert looked["model"] == str(tiny_model)
    for name in ("family", "parameters", "bytes_per_token", "context_length", "dtype"):
        assert looked[name] == loaded[name], name
    free = re.compile(r"[\d.]+ GiB of memory are free")  # other programs take and give memory meanwhile
    assert free.sub("", looked["sentence"]) in free.sub("", run_pml("models", "--look").out)
    absent = run_pml("models", "--look", "--model", "owner/name")
    assert (absent.status, "not on this machine" in absent.err) == (1, True)


def test_models_lists_what_a_token_takes_in_the_models_of_the_paper(
    run_pml: Pml,
) -> None:
    rows = json.loads(run_pml("models", "--sizes", "--json").out)["models"]
    (llama,) = (row for row in rows if row["title"] == "Llama 2 7B")
    assert (llama["bytes_per_token"], llama["paper"]) == (1 << 19, 0.5)
    assert "512.0 KiB" in run_pml("models", "--sizes").out
    assert run_pml("models", "--sizes", "--look").status == 2


def test_models_says_why_a_gpu_reads_segment_by_segment(
    run_pml: Pml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.model.model.Model.apart", "it takes no soft cap")
    said = "Prompts read shared segments one by one on this GPU: it takes no soft cap.\n"
    assert said in run_pml("models").out
    assert json.loads(run_pml("models", "--json").out)["apart"] == "it takes no soft cap"


def test_fields_of_the_generation_config_without_effect_are_named(
    run_pml: Pml, place: Path, tiny_model: Path
) -> None:
    folder = shutil.copytree(tiny_model, place / "own")
    (folder / "generation_config.json").write_text('{"num_beams": 4, "suppress_tokens": [3]}')
    said = f"model {str(folder)!r} has fields without effect in generation_config.json: num_beams (4);"
    assert said in run_pml("models", "--model", folder).err
    assert said in json.loads(run_pml("models", "--model", folder, "--json").out)["notes"][0]
    assert json.loads(run_pml("models", "--json").out)["notes"] == []
    (folder / "generation_config.json").write_text("{")
    for command in (("models",), ("run", "prompt.pml", "--schema", "trip.pml")):
        broken = run_pml(*command, "--model", folder)
        assert (broken.status, broken.out) == (1, "")
        assert "generation_config.json of model" in broken.err
        assert "Traceback" not in broken.err


def test_an_argument_over_its_length_names_both_numbers(run_pml: Pml, place: Path) -> None:
    long = PROMPT.replace("3 days", "three weeks in spring")
    (place / "prompt.pml").write_text("\n" + long, encoding="utf-8")
    result = run_pml("run", "prompt.pml", "--schema", "trip.pml")
    assert result.status == 1
    assert "E501" in result.err
    assert "21 tokens" in result.err
    assert "12" in result.err
    assert "prompt.pml:2:" in result.err
    assert "^" in result.err
    checked = run_pml("check", "prompt.pml", "--schema", "trip.pml", "--json")
    assert checked.status == 1
    (fault,) = json.loads(checked.out)["files"][0]["diagnostics"]
    assert (fault["code"], fault["line"]) == ("E501", 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "./nowhere"], "no folder"),
        (["--model", "random:gpt-9"], "random shape"),
        (["--device", "cuda"], "no GPU"),
    ],
)
def test_a_model_that_cannot_be_used_gets_its_sentence(
    options: list[str], words: str, run_pml: Pml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = run_pml("run", "prompt.pml", "--schema", "trip.pml", *options)
    assert result.status == 1
    assert result.out == ""
    assert words in result.err
    assert result.err.startswith("pml: ")
    assert len(result.err.splitlines()) <= 2


def test_a_folder_that_is_no_model(run_pml: Pml, place: Path) -> None:
    result = run_pml("models", "--model", str(place), "--json")
    assert result.status == 1
    assert "has no model" in json.loads(result.out)["error"]


def test_a_run_takes_every_setting(run_pml: Pml) -> None:
    options = ("--scope", "scaffold", "--repair", "link:2", "--placement", "schema", "--top-p", "0.9")
    options += ("--top-k", "5", "--repetition-penalty", "1.2", "--temperature", "0.7", "--stop", "zzz")
    done = run_pml("run", "prompt.pml", "--schema", "trip.pml", "--max-new-tokens", "4", *options, "--json")
    assert done.status == 0, done.err
    report = json.loads(done.out)
    assert (report["scope"], report["repair"], report["placement"]) == ("scaffold", "link:2", "schema")
    assert "repair" in report["cached"]["timeline_ms"]
    assert report["kl_first_token"] < 1e-6


def test_encoding_under_scaffold_is_no_choice(run_pml: Pml) -> None:
    assert run_pml("encode", "trip.pml", "--scope", "scaffold").status == 2


def test_what_is_encoded_behind_its_neighbours_is_found_by_a_run(place: Path, run_pml: Pml) -> None:
    (place / "s.pml").write_text(APART)
    (place / "p.pml").write_text('<prompt schema="s"><a/><b/>Well?</prompt>')
    encoded = run_pml("encode", "s.pml", "--scope", "preceding")
    assert encoded.status == 0, encoded.err
    words = ("run", "p.pml", "--schema", "s.pml", "--mode", "cached", "--max-new-tokens", "1", "--json")
    report = json.loads(run_pml(*words, "--scope", "preceding").out)
    assert {use["outcome"] for use in report["cached"]["segments"]} == {"hit"}
    assert report["cached"]["tokens"]["encoded"] == 0


TRIP = {
    "type": "object",
    "properties": {"n": {"enum": [1, 2]}},
    "required": ["n"],
    "additionalProperties": False,
}


def test_a_format_is_kept_to_on_both_sides_and_checked(run_pml: Pml, answer: Report, place: Path) -> None:
    Path("trip.json").write_text(json.dumps(TRIP), encoding="utf-8")
    most = ("--max-new-tokens", "20")
    report = answer("--json-schema", "trip.json", "--max-new-tokens", "99")
    for side in ("cached", "uncached"):
        assert json.loads(report[side]["text"])["n"] in (1, 2)
    assert report["valid"] == {"cached": True, "uncached": True}
    assert answer("--choice", "yes, no", *most)["cached"]["text"] in ("yes", "no")
    assert re.fullmatch("[a-z]{3}", answer("--regex", "[a-z]{3}", *most)["uncached"]["text"])
    assert answer("--regex", "[a-z]{30}")["valid"] == {"cached": False, "uncached": False}
    assert "valid" not in answer()
    run = ("run", "prompt.pml", "--schema", "trip.pml")
    assert "cached: valid ✓" in run_pml(*run, "--mode", "cached", "--json-schema", "trip.json").out
    told = run_pml(*run, "--regex", "[a-z]{30}", "--max-new-tokens", "2")
    assert "uncached: incomplete: it reached the maximum length. Raise that setting." in told.out


def test_a_format_in_the_prompt_is_kept_to(run_pml: Pml, answer: Report, place: Path) -> None:
    Path("trip.json").write_text(json.dumps(TRIP), encoding="utf-8")
    element = '<answer-format type="json" src="trip.json"/>'
    Path("prompt.pml").write_text(PROMPT.replace("</prompt>", f"{element}</prompt>"), encoding="utf-8")
    report = answer("--max-new-tokens", "99")
    assert report["valid"] == {"cached": True, "uncached": True}
    assert json.loads(report["cached"]["text"])["n"] in (1, 2)
    assert answer("--choice", "yes, no", "--max-new-tokens", "20")["cached"]["text"] in ("yes", "no")

    Path("rows.jsonl").write_text('{"id": 1, "text": "Hello?"}\n', encoding="utf-8")
    told = run_pml(
        *("run", "prompt.pml", "--schema", "trip.pml", "--batch", "rows.jsonl", "--mode", "cached"),
        *("--max-new-tokens", "99"),
    )
    line = json.loads(told.out)
    assert line["cached"]["valid"] is True
    assert json.loads(line["cached"]["text"])["n"] in (1, 2)

    Path("trip.json").write_text('{"not": {}}', encoding="utf-8")
    told = run_pml("run", "prompt.pml", "--schema", "trip.pml")
    assert (told.status, "E215" in told.err) == (1, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--regex", "("), "--regex: The regular expression cannot be enforced: unclosed group"),
        (
            ("--json-schema", "faulty.json"),
            "--json-schema: The JSON schema cannot be enforced: `uniqueItems`",
        ),
        (("--regex", "a", "--choice", "a"), "--regex and --choice exclude each other"),
        (("--choice", ","), "--choice: The choices must be a list of texts"),
    ],
)
def test_a_format_that_cannot_be_kept_to_is_a_usage_error(
    run_pml: Pml, place: Path, options: tuple[str, ...], words: str
) -> None:
    Path("faulty.json").write_text('{"uniqueItems": true}', encoding="utf-8")
    told = run_pml("run", "prompt.pml", "--schema", "trip.pml", *options)
    assert told.status == 2
    assert words in " ".join(told.err.split())
