"""What a cached answer loses, from the command line: one prompt and whole suites, with a tiny model."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.studio.history import RunStore
from engine.base.errors import ModelError
from engine.files.places import user_data
from tests.app.conftest import PROMPT, SCHEMA

pytestmark = pytest.mark.usefixtures("place")


def test_fidelity_in_words_and_as_json(
    run_pml: Callable[..., SimpleNamespace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    words = run_pml("fidelity", "prompt.pml", "--schema", "trip.pml", "--max-new-tokens", "4")
    assert words.status == 0, words.err
    assert "first token likeliest (KL " in words.out
    assert "plan/tokyo" in words.out
    done = run_pml("fidelity", "prompt.pml", "--schema", "trip.pml", "--max-new-tokens", "4", "--json")
    report = json.loads(done.out)
    assert [module["path"] for module in report["modules"]] == ["", "plan", "plan/tokyo"]
    assert {"kl_first_token", "answer_agreement", "remedies", "advice"} <= set(report)
    assert {"flips", "kl_worst", "kl_mean", "tokens_read", "read_to_end"} <= set(report)
    assert report["tokens_read"] == 4 or report["read_to_end"]
    assert not done.err
    (run,) = RunStore(user_data()).summaries()
    assert (run["state"], run["schema"]) == ("measured", "trip")
    assert run["fidelity"] is not None
    assert run["fidelity"]["advice"] == report["advice"]
    faulty = run_pml(
        "fidelity", "prompt.pml", "--schema", "trip.pml", "--placement", "schema", "--repair", "x"
    )
    assert faulty.status == 2


def test_quality_over_a_folder_and_a_file(run_pml: Callable[..., SimpleNamespace], tmp_path: Path) -> None:
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "trip.pml").write_text(SCHEMA, encoding="utf-8")
    (folder / "trip.prompt.1.pml").write_text(PROMPT, encoding="utf-8")
    done = run_pml("bench", "quality", str(folder), "--scope", "scaffold", "--json")
    assert done.status == 0, done.err
    names = {result["name"]: result for result in json.loads(done.out)["files"]["prompts"]["results"]}
    assert set(names) == {"uncached", "scaffold", "default"}
    assert names["scaffold"]["same_answer"] == 1
    assert "score" not in names["scaffold"]
    file = tmp_path / "q.jsonl"
    file.write_text(
        '{"input": "What?", "context": "Some text.", "answers": ["x"], "metric": "f1"}\n', encoding="utf-8"
    )
    table = run_pml(
        "bench", "quality", str(file), "--scope", "isolated", "--repair", "none", "--repair", "link:2"
    )
    assert table.status == 0, table.err
    assert "isolated link:2" in table.out
    assert "1 prompts" in table.out
    assert "WON/LOST/TIED" in table.out
    assert "0 / 0 / 1" in table.out
    assert run_pml("bench", "quality", str(tmp_path / "none")).status == 2


def test_quality_writes_tables_and_charts_into_a_folder(
    run_pml: Callable[..., SimpleNamespace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks import editor, quality

    monkeypatch.setattr(editor, "chromium", lambda: None)  # without one the charts are a page
    files = []
    for name in ("one", "two"):
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text(
            '{"input": "What?", "context": "Some text.", "answers": ["x"], "metric": "f1"}\n',
            encoding="utf-8",
        )
    given = ("bench", "quality", *files, "--scope", "isolated", "--out", tmp_path / "out")
    done = run_pml(*given)
    assert done.status == 0, done.err
    assert "all files, 2 prompts" in done.out
    assert "FIRST TOKEN SAME" in done.out
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {
        "samples.jsonl",
        "quality.json",
        "quality.md",
        "charts.html",
    }
    measured = json.loads((out / "quality.json").read_text(encoding="utf-8"))
    assert measured["files"]["two"]["results"][1]["samples"][0]["ttft_ms"] > 0
    assert "## All files" in (out / "quality.md").read_text(encoding="utf-8")
    page = (out / "charts.html").read_text(encoding="utf-8")
    assert all(
        title in page for title in ("Score by variant", "by share of tokens computed", "Time to first")
    )

    told = run_pml(*given, "--json")
    assert json.loads(told.out)["all"] == measured["all"]

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(quality, "run", interrupted)
    stopped = run_pml(*given)
    assert stopped.status == 130
    assert "the same command goes on from there" in stopped.err


def test_the_suite_of_the_bundled_model_is_measured_world_by_world(
    run_pml: Callable[..., SimpleNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks import quality

    plain, measured = quality.run, []
    monkeypatch.setattr(
        quality, "run", lambda *a, **named: measured.append(plain(*a, **named)) or measured[-1]
    )
    given = ("bench", "quality", "--suite", "demo", "--limit", "1", "--scope", "scaffold", "--model", "demo")
    done = run_pml(*given, "--json")
    assert done.status == 0, done.err
    report = json.loads(done.out)
    assert list(report["files"]) == ["documents", "travel", "learning", "code"]
    for world in report["files"].values():
        uncached, scaffold, _ = world["results"]
        assert scaffold["score"] == uncached["score"]
        assert scaffold["same_answer"] == 1
        assert sum(group["prompts"] for group in uncached["by_documents"].values()) == 1
    monkeypatch.setattr(quality, "run", lambda *_, **__: measured.pop(0))
    shown = run_pml(*given)
    assert shown.status == 0, shown.err
    assert "learning\n" in shown.out
    assert "modules: 1 " in shown.out
    assert "weights chosen on these" in shown.out or "the others" in shown.out
    assert "all files, 4 prompts" in shown.out
    assert [result["prompts"] for result in report["all"]] == [4, 4, 4]
    both = run_pml("bench", "quality", "some.jsonl", "--suite", "demo")
    assert both.status == 2
    assert "leave out PATH" in both.err


@pytest.mark.parametrize("what", ["quality", "store"])
def test_the_layout_of_weights_that_is_asked_for_is_measured(
    what: str, run_pml: Callable[..., SimpleNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    measurement = importlib.import_module(f"benchmarks.{what}")
    asked: list[dict[str, str]] = []

    def load(_model: str, **options: str) -> None:
        asked.append(options)
        raise ModelError("seen enough")

    monkeypatch.setattr(measurement, "load", load)
    assert run_pml("bench", what, "--weights", "plain", "--dtype", "fp32").status == 1
    (options,) = asked
    assert options.pop("quantize", "none") == "none"
    assert options == {"device": "cpu", "dtype": "fp32", "weights": "plain"}
