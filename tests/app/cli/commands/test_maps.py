"""`pml maps`, and `--maps` of `pml embed` and `pml decide`, on a tiny model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from engine.maps.passes import MapPasses
from engine.maps.store import MapStore

pytest.importorskip("usearch")
pytestmark = pytest.mark.usefixtures("place")
Run = Callable[..., SimpleNamespace]

TEXTS = ["It is cold.", "It is warm.", "It is cool.", "Rome, in April", "Oslo, in March"]
EMPTY = '<schema name="trip"/>'
PROMPT = '<prompt schema="trip">It is cold.</prompt>'


@pytest.fixture
def corpus(place: Path) -> str:
    (place / "texts.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    (place / "empty.pml").write_text(EMPTY, encoding="utf-8")
    (place / "plain.pml").write_text(PROMPT, encoding="utf-8")
    return "texts.txt"


def test_a_folder_is_built_listed_and_emptied(run_pml: Run, corpus: str) -> None:
    done = run_pml("maps", "build", corpus, "--maps", "maps", "--json")
    assert done.status == 0, done.err
    report = json.loads(done.out)
    assert (report["entries"], report["new"], report["known"], report["left_out"]) == (5, 5, 0, 0)
    assert "0 new, 5 known" in run_pml("maps", "build", corpus, "--maps", "maps").err
    listed = json.loads(run_pml("maps", "list", "maps", "--json").out)
    assert {entry["tokens"] for entry in listed["entries"]} == {11, 14}
    assert listed["bytes"] == report["bytes"]
    assert "5 texts of" in run_pml("maps", "list", "maps").out
    key = listed["entries"][0]["key"]
    assert "Removed 1 text" in run_pml("maps", "remove", "maps", key).out
    assert "has no maps" in run_pml("maps", "remove", "maps", key).err
    assert "Name keys, or give --all" in run_pml("maps", "remove", "maps").err
    assert json.loads(run_pml("maps", "remove", "maps", "--all", "--json").out)["removed"] == 4
    assert "is no folder of attention maps" in run_pml("maps", "list", "nowhere").err


def test_the_budget_leaves_texts_out(run_pml: Run, corpus: str) -> None:
    whole = json.loads(run_pml("maps", "build", corpus, "--maps", "maps", "--json").out)["bytes"]
    done = run_pml("maps", "build", corpus, "--maps", "small", "--budget", str(whole // 2))
    assert done.status == 0, done.err
    assert "left out: the budget is full" in done.err
    assert "no maps fit" in run_pml("maps", "build", corpus, "--maps", "none", "--budget", "1").err
    assert "must be at least 1" in run_pml("maps", "build", corpus, "--maps", "none", "--budget", "0").err


def test_an_interruption_keeps_the_finished_texts(
    run_pml: Run, corpus: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = MapPasses.record

    def stop(self: MapPasses, tokens: list[int]) -> object:
        if len(tokens) == 14:
            raise KeyboardInterrupt
        return record(self, tokens)

    with monkeypatch.context() as patched:
        patched.setattr(MapPasses, "record", stop)
        done = run_pml("maps", "build", corpus, "--maps", "maps")
    assert done.status == 130
    assert "the maps of 3 new texts are in maps" in done.err
    assert len(MapStore.open(place / "maps").entries) == 3
    assert "has no trained projector" in run_pml("embed", corpus, "--maps", "maps").err
    assert "2 new, 3 known" in run_pml("maps", "build", corpus, "--maps", "maps").err


def test_embeddings_report_what_maps_changed(run_pml: Run, corpus: str, place: Path) -> None:
    run_pml("maps", "build", corpus, "--maps", "maps")
    plain = run_pml("embed", corpus)
    same = run_pml("embed", corpus, "--maps", "maps", "--threshold", "1")
    assert "stored maps for 5 of 5 texts" in same.err
    vectors = [[json.loads(line)["embedding"] for line in run.out.splitlines()] for run in (plain, same)]
    assert np.abs(np.array(vectors[0]) - vectors[1]).max() < 1e-3
    (place / "new.txt").write_text("It is cold.\nIt is damp.\nA longer text of its own", encoding="utf-8")
    options = ("embed", "new.txt", "--maps", "maps", "--threshold", "0", "--compare", "--json")
    report = json.loads(run_pml(*options, "--pooling", "mean", "--out", "new.npy").out)
    assert (report["maps"]["texts"], report["maps"]["hits"]) == (3, 2)
    assert report["compared"]["cosine_least"] < report["compared"]["cosine_mean"] < 1
    assert np.load(place / "new.npy").shape == (3, 32)
    assert "--threshold belongs to --maps" in run_pml("embed", corpus, "--threshold", "0.5").err
    assert "--compare belongs to --maps" in run_pml("embed", corpus, "--compare").err
    assert run_pml("embed", corpus, "--maps", "maps", "--threshold", "1.5").status == 2
    other = run_pml("embed", corpus, "--maps", "maps", "--dtype", "bf16")
    assert "another number format" in other.err


def test_pairs_are_compared_without_maps_too(run_pml: Run, corpus: str, place: Path) -> None:
    run_pml("maps", "build", corpus, "--maps", "maps")
    rows = "".join(f"{text}\tIt is cold.\t{9 - at}\n" for at, text in enumerate(TEXTS))
    (place / "pairs.tsv").write_text(f"a\tb\tscore\n{rows}", encoding="utf-8")
    columns = ("--column", "a", "--column", "b", "--gold", "score")
    done = run_pml("embed", "pairs.tsv", *columns, "--maps", "maps", "--compare")
    assert "without maps: cosine similarity" in done.err
    assert "; ρ " in done.err


def test_decisions_about_plain_text(run_pml: Run, corpus: str, place: Path) -> None:
    asked = ("--schema", "empty.pml", "--question", "Is it far?", "--json")
    plain = json.loads(run_pml("decide", "plain.pml", *asked).out)
    tokens = plain["cached"]["tokens"]["prompt"]
    filler = "x" * (tokens - 2)  # one token a byte; the text with a label is longer
    lengths = [filler + "y" * more for more in range(8)]
    (place / "long.txt").write_text("\n".join(lengths), encoding="utf-8")
    assert run_pml("maps", "build", "long.txt", "--maps", "maps").status == 0
    found = json.loads(run_pml("decide", "plain.pml", *asked, "--maps", "maps").out)
    assert found["maps"]["hits"] == 0
    assert found["maps"]["texts"] == 2
    assert found["agreement"]["kl"] == pytest.approx(0, abs=1e-6)
    want = plain["uncached"]["answers"][0]["probabilities"]
    assert found["cached"]["answers"][0]["probabilities"] == pytest.approx(want, abs=1e-4)
    changed = json.loads(run_pml("decide", "plain.pml", *asked, "--maps", "maps", "--threshold", "0").out)
    assert changed["cached"]["tokens"]["map_hits"] == changed["maps"]["hits"] > 0
    assert changed["agreement"]["largest_difference"] > found["agreement"]["largest_difference"]
    refused = run_pml("decide", "prompt.pml", "--schema", "trip.pml", *asked[2:], "--maps", "maps")
    assert refused.status == 1
    assert "Attention maps serve prompts of plain text" in refused.err
    assert "No such option" in run_pml("run", "plain.pml", "--schema", "empty.pml", "--maps", "maps").err
    (place / "rows.csv").write_text("text\nIt is cold.\n", encoding="utf-8")
    batch = run_pml("decide", "--batch", "rows.csv", *asked[:4], "--maps", "maps", "--threshold", "0")
    assert batch.status == 0, batch.err
    assert "stored maps for" in batch.err
    missing = run_pml("decide", "--batch", "rows.csv", *asked[:4], "--maps", "nowhere")
    assert (missing.status, "is no folder of attention maps" in missing.err) == (1, True)


def test_a_model_with_other_attention_and_a_missing_package(
    run_pml: Run, corpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_pml("maps", "build", corpus, "--maps", "maps")
    monkeypatch.setitem(sys.modules, "usearch.index", None)
    done = run_pml("embed", corpus, "--maps", "maps")
    assert done.status == 1
    assert "pip install 'prompt-cache-studio[maps]'" in done.err
