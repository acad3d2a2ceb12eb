"""The measured tables of README.md and benchmarks/RESULTS.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import results
from benchmarks.kills import WORDS
from benchmarks.markdown import between
from benchmarks.results import README, RESULTS, STORE, TIMES
from benchmarks.ttft import RATIOS
from benchmarks.turns import ratio

ROWS = {
    "uncached": 20_000.0,
    "cached": 250.0,
    "cached_with_schema": 270.0,
    "files_later": 260.0,
    "files_first": 300.0,
    "files_cold": 400.0,
    "cached link:8": 280.0,
    "tokens_uncached": 19_000.0,
    "tokens_cached": 220.0,
    "tokens_copy": 195.0,
    "tokens_concat": 230.0,
    "tokens_floor": 130.0,
}


def report() -> dict[str, object]:
    samples = {name: [ms - 10, ms, ms + 10] for name, ms in ROWS.items()}
    machine = {"processor": "P", "cores": 2, "threads": 2, "device": "cpu", "torch": "2", "python": "3"}
    return {
        "results": [{"name": n, "samples_ms": s, "median_ms": s[1]} for n, s in samples.items()],
        "ratios": {f"{a}/{b}": ratio(samples, a, b) for a, b in RATIOS},
        "tokens": {"prompt": 4128, "from_cache": 4096, "computed": 32},
        "machine": machine,
    }


def stored() -> dict[str, object]:
    packed = {"bytes_by_bf16": 0.516, "kl_answer": 1e-5, "kl_worst": 3e-3, "answer_agreement": 0.999}
    died = dict.fromkeys(WORDS.values(), 9)
    packed |= {"same_answer": 0.975, "ttft_from_disk_by_plain": 1.1}
    return {
        "results": [
            {"name": "kills", "kills": 200, "right": 200, "half_written": 40, **died},
            {"name": "damages", "damages": 1000, "served_wrong": 0, "noticed": 1000, "mended": 1000},
            {"name": "processes", "seconds": 60, "failed": 0, "corrupt": 0, "clean": True},
            {"name": "verify", "seconds_per_gb": 0.2, "bytes_by_theory": 1.0},
            {"name": "trace", "requests": 1500, "cost_by_lru": 0.77},
            {"name": "compression plain"},
            {"name": "compression int8", **packed},
        ]
    }


def test_copy_stands_beside_what_it_beats_and_each_ratio_stands_once() -> None:
    table = results.readme(report(), report())
    assert "the paper's method | 195 ms (÷ 97) | 195 ms (÷ 97) |" in table
    assert "| segments in memory | 250 ms (÷ 80) | 250 ms (÷ 80) |" in table
    assert "digests are checked) | 300 ms" in table
    whole = results.times(report(), report())
    for over, under in RATIOS:
        assert whole.count(f"| {over} ÷ {under} |") == 1
    assert "| tokens_copy ÷ tokens_cached | 0.89 (0.88 to 0.89) |  | 0.89 (0.88 to 0.89) | 1.2 |" in whole


def test_the_documents_are_written_from_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, path in (("README", README), ("RESULTS", RESULTS)):
        copy = tmp_path / path.name
        copy.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        monkeypatch.setattr(results, name, copy)
    measured = []
    for name, found in (("a", report()), ("b", report()), ("c", stored())):
        measured.append(str(tmp_path / f"{name}.json"))
        Path(measured[-1]).write_text(json.dumps(found))
    before = between(results.RESULTS.read_text(encoding="utf-8"), STORE)
    results.main(measured[:2])
    assert between(results.RESULTS.read_text(encoding="utf-8"), STORE) == before
    results.main(measured)
    text = results.RESULTS.read_text(encoding="utf-8")
    assert "writing a file 9, entering a row 9" in str(between(text, STORE))
    assert "| `int8` | 0.516 | 1e-05 | 0.003 | 99.90% | 97.5% | 1.10 |" in text
    assert "`files_first`" in str(between(text, TIMES))
    assert "250 ms" in str(between(results.README.read_text(encoding="utf-8"), TIMES))
