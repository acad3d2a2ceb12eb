"""The measurement of attention maps at a tiny size. No times."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.maps.report import THRESHOLDS
from benchmarks.maps.tasks import Labelled

pytest.importorskip("usearch")
Run = Callable[..., SimpleNamespace]

PAIRS = "".join(
    f"It is {one}.,It is {two}.,{at}.0\n" for at, (one, two) in enumerate(["ab", "cd", "ef", "gh"])
)
SICK = 'sentence_A\tsentence_B\trelatedness_score\nIt is a.\tIt is b.\t3.3\nIt is i.\tIt is "j.\t1.5\n'
CLINC = [
    ("train", "go on", "go"),
    ("train", "go in", "go"),
    ("train", "sit", "stay"),
    ("test", "go up", "go"),
]


def test_maps(run_bench: Run, model: str, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text(PAIRS, encoding="utf-8")
    (tmp_path / "sick.txt").write_text(SICK, encoding="utf-8")
    lines = (json.dumps(dict(zip(("split", "text", "label"), row, strict=True))) for row in CLINC)
    (tmp_path / "clinc.jsonl").write_text("\n".join(lines), encoding="utf-8")
    files = ("--train", tmp_path / "pairs.csv", "--sts", tmp_path / "pairs.csv")
    files = (*files, "--sick", tmp_path / "sick.txt", "--clinc", tmp_path / "clinc.jsonl")
    small = ("--corpus", "8", "--rows", "8", "--rounds", "1", "--model", model)
    done = run_bench("maps", *files, *small, "--json")
    assert done.status == 0, done.err
    report = json.loads(done.out)
    assert report["corpus"]["texts"] == 8
    assert set(report["tasks"]) == {"STS-B", "SICK", "CLINC"}
    stored = report["tasks"]["STS-B"]
    assert [one["threshold"] for one in stored["by_threshold"]] == [*THRESHOLDS, 0.0]
    rates = [one["hit_rate"] for one in stored["by_threshold"]]
    assert rates == [*sorted(rates[:-1], reverse=True), 1.0]
    assert rates[-2] >= 0.5  # most texts are in the corpus
    exact = stored["by_threshold"][-2]
    assert exact["quality"] == pytest.approx(stored["plain"]["quality"])
    assert set(exact["controls"]) == {"random map", "mean map", "nearest by embedding", "oracle"}
    assert {"LazyFormer", "SAN", "AttnCache-f 0.99"} == set(stored["others"])
    for row in stored["rows"]:
        assert {"plain", "AttnCache", "search", "load"} <= set(row["ms"])
        assert row["similarity"] <= 1
    assert report["by_length"][0]["tokens"] == 16
    assert report["by_length"][0]["bytes"] < report["by_length"][-1]["bytes"]
    assert set(report["by_corpus"]["CLINC 0.99"]) == {"1", "2", "4", "8"}
    words = run_bench("maps", *files, *small, "--no-by-layer").out
    assert "LazyFormer" in words
    assert "the paper, STS, Llama-2-7B" in words
    nothing = run_bench("maps", *files[:2], *small)
    assert "give --sts, --sick or --clinc" in nothing.err
    wrong = run_bench("maps", *files[:2], "--sts", tmp_path / "sick.txt", *small)
    assert "has a row without two sentences and a score" in wrong.err


def test_the_nearest_mean_of_examples_labels_a_text() -> None:
    task = Labelled("x", [("t", "b"), ("u", "a")], ("a", "a", "b"), ("1", "2", "3"))
    examples = np.array([[1, 0], [1, 0.2], [0, 1]], np.float32)
    assert task.quality(np.array([[0.1, 5], [3, 0]], np.float32), examples) == 1.0
    assert task.quality(np.array([[5, 0.1], [3, 0]], np.float32), examples) == 0.5
