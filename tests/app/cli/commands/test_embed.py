"""`pml embed` on a tiny model."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.embeddings.embedder import Embedder
from engine.embeddings.similarity import cosines, spearman
from engine.engine import Engine

pytestmark = pytest.mark.usefixtures("place")
Run = Callable[..., SimpleNamespace]

TEXTS = ["It is cold.", "Rome, in April", "A", "It is warm.", "Oslo"]
PAIRS = "a\tb\tscore\n" + "".join(f"{one}\tIt is cold.\t{9 - place}\n" for place, one in enumerate(TEXTS))


def engines(place: Path, tiny_model: Path, texts: list[str] = TEXTS, **options: Any) -> Any:
    with Engine.open(tiny_model, device="cpu", cache_dir=place / "own") as engine:
        return engine.embed(texts, **options)


@pytest.fixture
def texts(place: Path) -> str:
    (place / "texts.txt").write_text("\n\n".join(TEXTS), encoding="utf-8")
    return "texts.txt"


def test_lines_become_jsonl_and_npy(run_pml: Run, place: Path, tiny_model: Path, texts: str) -> None:
    want = engines(place, tiny_model, pooling="mean", template="echo", dimensions=8)
    options = (texts, "--pooling", "mean", "--template", "echo", "--dimensions", "8")
    rows = [json.loads(line) for line in run_pml("embed", *options).out.splitlines()]
    assert [row["index"] for row in rows] == [*range(5)]
    assert np.abs(np.array([row["embedding"] for row in rows]) - want).max() < 1e-5
    done = run_pml("embed", *options, "--out", "x.npy", "--json")
    assert done.status == 0, done.err
    report = json.loads(done.out)
    assert (report["rows"], report["dimensions"], report["output"]) == (5, 8, "x.npy")
    found = np.load(place / "x.npy")
    assert found.dtype == np.float32
    assert np.abs(found - want).max() < 1e-5
    assert "already exists" in run_pml("embed", *options, "--out", "x.npy").err
    assert run_pml("embed", *options, "--out", "x.npy", "--force").status == 0


def test_pairs_are_compared_with_their_scores(run_pml: Run, place: Path, tiny_model: Path) -> None:
    (place / "pairs.tsv").write_text(PAIRS, encoding="utf-8")
    columns = ("--column", "a", "--column", "b", "--gold", "score")
    done = run_pml("embed", "pairs.tsv", *columns, "--out", "x.jsonl", "--json", "--no-normalize")
    first = engines(place, tiny_model, normalize=False)
    second = engines(place, tiny_model, ["It is cold."] * 5, normalize=False)
    rows = [json.loads(line)["embeddings"] for line in (place / "x.jsonl").read_text("utf-8").splitlines()]
    assert np.abs(np.array(rows) - np.stack([first, second], 1)).max() < 1e-4
    rho = spearman(cosines(first, second), [9, 8, 7, 6, 5])
    assert rho is not None
    assert json.loads(done.out)["spearman"] == pytest.approx(rho)
    assert f"Spearman's ρ of 5 pairs: {rho:.4f}" in run_pml("embed", "pairs.tsv", *columns).out
    (place / "one.tsv").write_text("a\tb\tscore\nIt is hot.\tIt is cold.\t9\n", encoding="utf-8")
    assert (
        "ρ of 1 pair: undefined, because it needs at least two" in run_pml("embed", "one.tsv", *columns).out
    )
    assert run_pml("embed", "pairs.tsv", *columns[:4], "--out", "x.npy").status == 0
    assert np.load(place / "x.npy").shape == (5, 2, 32)


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("x.csv", 'id,text\n1,"It is cold."\n2,"Rome, in April"\n', ()),
        ("x.csv", 'It is cold.;x\n"Rome, in April";2\n', ("--column", "1")),
        ("x.jsonl", '{"q": "It is cold."}\n\n{"q": "Rome, in April", "n": 1}\n', ("--column", "q")),
        ("-", "It is cold.\nRome, in April", ()),
    ],
)
def test_each_kind_of_rows_gives_the_same_embeddings(
    run_pml: Run,
    place: Path,
    tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    content: str,
    options: tuple[str, ...],
) -> None:
    if name == "-":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    else:
        (place / name).write_text(content, encoding="utf-8")
    done = run_pml("embed", name, *options)
    found = np.array([json.loads(line)["embedding"] for line in done.out.splitlines()])
    assert np.abs(found - engines(place, tiny_model, TEXTS[:2])).max() < 1e-5


def test_an_interrupted_run_resumes(
    run_pml: Run, place: Path, texts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cli.embeddings.embed._CHUNK", 2)
    embed, asked = Embedder.embed, []

    def recorded(embedder: Embedder, some: Any, progress: Any = None) -> Any:
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append([*some])
        return embed(embedder, some, progress)

    with monkeypatch.context() as patched:
        patched.setattr(Embedder, "embed", recorded)
        stopped = run_pml("embed", texts, "--out", "x.npy")
    assert stopped.status == 130
    assert "4 of 5 texts are in x.npy.part. The same command resumes there." in stopped.err
    assert not (place / "x.npy").exists()
    partial = place / "x.npy.part"
    partial.write_bytes(partial.read_bytes()[:-5])  # the program ended in the middle of a write
    other = run_pml("embed", texts, "--out", "x.npy", "--pooling", "mean")
    assert other.status == 1
    assert "x.npy.part belongs to a run with other texts, options or model" in other.err
    asked.clear()
    with monkeypatch.context() as patched:
        patched.setattr(Embedder, "embed", recorded)
        resumed = run_pml("embed", texts, "--out", "x.npy")
    assert resumed.status == 0, resumed.err
    assert asked == [TEXTS[3:]]
    assert "3 texts embedded before" in resumed.err
    assert not partial.exists()
    run_pml("embed", texts, "--out", "whole.npy")
    assert np.abs(np.load(place / "x.npy") - np.load(place / "whole.npy")).max() < 1e-5
    partial.write_bytes(b"pml embed of something else\n")
    assert run_pml("embed", texts, "--out", "x.npy", "--force").status == 0


@pytest.mark.parametrize(
    ("content", "options", "status", "says"),
    [
        ("", (), 1, "x.csv has no rows"),
        ("text,b\na,b\n,c\n", (), 1, "x.csv, line 3: column 'text' has no text"),
        ("a,b\n1,2\n", ("--column", "c"), 1, "has no column 'c'. Its first line has 'a', 'b'"),
        (
            "a,b,c\n1,2,x\n",
            ("--column", "a", "--column", "b", "--gold", "c"),
            1,
            "is 'x'; it must be a number",
        ),
        ("a,b,c\n1,2,nan\n", ("--column", "a", "--column", "b", "--gold", "c"), 1, "it must be a number"),
        ('{"text": "a"}\n{"text": 5}\n', (), 1, "line 2: column 'text' has no text"),
        ('{"text": "a"}\n{"text"\n', (), 1, "x.csv, line 2: invalid JSON"),
        (f"a\n\n{'b' * 40_000}\n", (), 1, "x.csv, line 3 has 40000 tokens"),
        (f"{'b' * 140_000}\n", (), 1, "x.csv, line 1 has 140000 tokens"),
        (f"a,b\n1,{'b' * 40_000}\n", ("--column", "a", "--column", "b"), 1, "line 2: column 'b' has 40000"),
        ("a,b\n1,2\n", ("--column", "a", "--column", "c"), 1, "has no column 'c'"),
        ("a,b,c\n1,2,3\n", ("--column", "a", "--gold", "c"), 2, "--gold requires two"),
        ("a\n", ("--out", "x.txt"), 2, "must end with .npy"),
        ("a\n", ("--out", "no/x.npy"), 2, "its folder does not exist"),
        ("a\n", ("--dimensions", "33"), 1, "from 1 to 32"),
        ("a\n", ("--template", "trip.pml"), 1, "has no parameter for the text"),
    ],
)
def test_bad_input_says_where_and_why(
    run_pml: Run, place: Path, content: str, options: tuple[str, ...], status: int, says: str
) -> None:
    (place / "x.csv").write_bytes(content.encode())
    done = run_pml("embed", "x.csv", *options)
    assert says in done.err
    assert done.status == status


def test_parquet_has_a_column_of_lists(run_pml: Run, place: Path, texts: str) -> None:
    try:
        from pyarrow import parquet
    except ImportError:  # an optional package
        assert "requires pyarrow" in run_pml("embed", texts, "--out", "x.parquet").err
        return
    run_pml("embed", texts, "--out", "x.parquet")
    run_pml("embed", texts, "--out", "x.npy")
    found = parquet.read_table(place / "x.parquet")["embedding"].to_pylist()
    assert np.array_equal(np.array(found, np.float32), np.load(place / "x.npy"))
