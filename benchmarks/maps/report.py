"""Figures and tables of the attention maps: quality, hits, times, and the paper's own figures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from app.base.sizes import size
from app.cli.base.output import table
from benchmarks.base.case import place
from benchmarks.maps.measure import CONTROLS, Row
from benchmarks.maps.tasks import Task
from engine.embeddings.embedder import Vectors

THRESHOLDS = (0.95, 0.97, 0.98, 0.99, 0.995, 1.0)
PAPER = {
    "STS, mean of 7 tasks, Llama-2-7B, CPU": {
        "full model": {"quality": 0.6860, "speedup": 1.0},
        "SAN": {"quality": 0.3034, "speedup": 1.45, "gamma": 0.85},
        "LazyFormer": {"quality": 0.3448, "speedup": 1.39, "gamma": 0.87},
        "AttnCache-f": {"quality": 0.5039, "speedup": 1.14, "gamma": 1.30},
        "AttnCache, threshold 0.99": {"quality": 0.6775, "speedup": 1.19, "gamma": 0.04},
    },
    "claims, CPU": {"speedup": 1.2, "attention_speedup": 2.0, "hit_rate at 0.99 (STS15)": 0.30},
    "MMLU by shots, Llama-3-3B, CPU": [
        {"tokens": tokens, "baseline": full, "AttnCache": ours, "speedup": speedup}
        for tokens, full, ours, speedup in (
            (93.85, 28.70, 29.57, 1.22),
            (178.86, 40.87, 38.26, 1.23),
            (284.79, 41.74, 42.61, 1.19),
            (393.12, 40.00, 39.13, 1.27),
            (490.28, 43.48, 41.74, 1.25),
            (560.28, 47.83, 46.96, 1.24),
        )
    ],
}


def _result(
    task: Task, rows: Sequence[Row], examples: Vectors, way: Callable[[Row], str], ms: Callable[[Row], float]
) -> dict[str, Any]:
    """Quality, speed-up and γ of one way; `way` names the vector of each row."""
    vectors = np.stack([row.vectors.get(way(row), row.vectors["plain"]) for row in rows])
    full = task.quality(np.stack([row.vectors["plain"] for row in rows]), examples)
    quality = task.quality(vectors, examples)
    plain = sum(row.ms["plain"] for row in rows)
    speedup = plain / max(sum(map(ms, rows)), 1e-9)
    gamma = (full - quality) / (speedup - 1) if speedup > 1 else None
    return {"quality": quality, "lost": full - quality, "speedup": speedup, "gamma": gamma}


def _cost(row: Row, threshold: float) -> float:
    """Milliseconds of a text at a threshold, with the search, and the loading of a hit."""
    if is_hit(row, threshold):
        return row.ms["AttnCache"]
    return row.ms["search"] + row.ms["plain"]


def is_hit(row: Row, threshold: float) -> bool:
    return row.similarity is not None and row.similarity >= threshold


def _hits(rows: Sequence[Row], threshold: float) -> float:
    return sum(is_hit(row, threshold) for row in rows) / len(rows)


def figures(task: Task, rows: Sequence[Row], examples: Vectors) -> dict[str, Any]:
    """The figures of one task."""
    found: dict[str, Any] = {"texts": len(rows), "equal_length": _hits(rows, 0.0)}
    plain: Callable[[Row], str] = lambda _: "plain"  # noqa: E731
    found["plain"] = _result(task, rows, examples, plain, lambda row: row.ms["plain"])
    found["by_threshold"] = [
        {
            "threshold": at,
            "hit_rate": _hits(rows, at),
            "oracle_hit_rate": sum((row.best or 0.0) >= at for row in rows) / len(rows),
            **_result(task, rows, examples, _at("AttnCache", at), lambda row, at=at: _cost(row, at)),  # type: ignore[misc]
            "controls": {
                name: _result(task, rows, examples, _at(name, at), lambda row: row.ms["plain"])["quality"]
                for name in CONTROLS
            },
        }
        for at in (*THRESHOLDS, 0.0)
    ]
    others = [name for name in rows[0].ms if name not in ("plain", "AttnCache", "search", "load")]
    found["others"] = {
        name: {
            **_result(task, rows, examples, lambda _, name=name: name, lambda row, name=name: row.ms[name]),  # type: ignore[misc]
            "layer_hits": statistics.mean(row.layer_hits.get(name, 0) for row in rows),
        }
        for name in others
        if not name.endswith(", attention")
    }
    names = sorted({name for row in rows for name in row.ms})
    found["median_ms"] = {
        name: statistics.median(row.ms[name] for row in rows if name in row.ms) for name in names
    }
    found["rows"] = [row.to_json() for row in rows]
    return found


def _at(name: str, threshold: float) -> Callable[[Row], str]:
    return lambda row: name if is_hit(row, threshold) else "plain"


def speedups(rows: Sequence[Row], similarities: Sequence[float], threshold: float) -> dict[str, float]:
    """Hit rate and speed-up of another corpus, from the times of the rows and its similarities."""
    plain = sum(row.ms["plain"] for row in rows)
    hits = [
        found >= threshold and "AttnCache" in row.ms for row, found in zip(rows, similarities, strict=True)
    ]
    costs = (
        row.ms["AttnCache"] if hit else row.ms["search"] + row.ms["plain"]
        for row, hit in zip(rows, hits, strict=True)
    )
    return {"hit_rate": sum(hits) / len(hits), "speedup": plain / max(sum(costs), 1e-9)}


def words(report: dict[str, Any]) -> str:
    """The report as tables."""
    parts = []
    for name, task in report["tasks"].items():
        rows = [["plain", "", "", _share(task["plain"]["quality"]), "1.00", "", *[""] * len(CONTROLS)]]
        for one in task["by_threshold"]:
            controls = [_share(one["controls"][control]) for control in CONTROLS]
            title = f"AttnCache {one['threshold']}" if one["threshold"] else "AttnCache, any"
            rates = [f"{one['hit_rate']:.0%}", f"{one['oracle_hit_rate']:.0%}"]
            rows.append([title, *rates, *_measured(one), *controls])
        for title, one in task["others"].items():
            rows.append([title, "", "", *_measured(one), *[""] * len(CONTROLS)])
        head = ["", "HITS", "ORACLE HITS", "QUALITY", "SPEED-UP", "γ", *(one.upper() for one in CONTROLS)]
        ms = ", ".join(f"{part} {value:.2f}" for part, value in task["median_ms"].items())
        ms += f", plain in packed passes {task['packed_ms']:.2f}"
        parts.append(f"{name}, {task['texts']} texts\n{table(head, rows)}\nmedian ms: {ms}")
    lengths = [
        [
            str(one["tokens"]),
            size(one["bytes"]),
            *(f"{statistics.median(one['ms'][side]):.1f}" for side in ("plain", "mapped")),
            *(f"{statistics.median(one['attention_ms'][side]):.1f}" for side in ("plain", "mapped")),
            f"{statistics.median(one['ms']['plain']) / statistics.median(one['ms']['mapped']):.2f}",
        ]
        for one in report["by_length"]
    ]
    if lengths:
        head = ["TOKENS", "ENTRY", "PLAIN MS", "MAPPED MS", "ATTENTION", "MAPPED", "SPEED-UP"]
        parts.append(table(head, lengths, left=0))
    for at, one in report["by_corpus"].items():
        cells = [[count, f"{of['hit_rate']:.0%}", f"{of['speedup']:.3f}"] for count, of in one.items()]
        parts.append(f"threshold {at}\n{table(['CORPUS', 'HITS', 'SPEED-UP'], cells)}")
    paper = PAPER["STS, mean of 7 tasks, Llama-2-7B, CPU"]
    assert isinstance(paper, dict)
    cells = [[name, *_measured({"gamma": None, **one})] for name, one in paper.items()]
    parts.append("the paper, STS, Llama-2-7B\n" + table(["", "QUALITY", "SPEED-UP", "γ"], cells))
    return "\n\n".join([*parts, f"model {report['model']}, {place(report)}"])


def _measured(one: Mapping[str, Any]) -> list[str]:
    gamma = one["gamma"]
    return [_share(one["quality"]), f"{one['speedup']:.3f}", "" if gamma is None else f"{gamma:.2f}"]


def _share(value: float) -> str:
    return f"{100 * value:.2f}"
