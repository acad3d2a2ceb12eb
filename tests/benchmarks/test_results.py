"""`results`: goals, other software, charts, and the trials of the store."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.base.case import Group
from benchmarks.base.markdown import between
from benchmarks.speed.kills import WORDS
from benchmarks.suite import results
from benchmarks.suite.results import RESULTS, STORE, SUITE, beside, figures, gathered, pairs
from benchmarks.suite.suite import NOT_YET, write
from engine.base.errors import PromptCacheError

MACHINE = {"processor": "P", "cores": 2, "threads": 2, "torch": "2.13", "python": "3.11"}
PRESENT = {"llama.cpp": {"version": "0.3.36", "absent": ""}}


def group(name: str, medians: dict[str, float], **fields: Any) -> dict[str, Any]:
    samples: dict[str, list[float | None]] = {way: [0.9 * ms, ms, 1.1 * ms] for way, ms in medians.items()}
    params = {"cached": 4096, "modules": 8, "new": 32, **fields.pop("params", {})}
    return Group(name, params, samples, **fields).to_json()


def report(part: str, *groups: dict[str, Any], **fields: Any) -> dict[str, Any]:
    found = {"part": part, "scale": "full", "began": "2026-11-22T07:00:00+00:00", "busy": 0.01}
    return {**found, "groups": list(groups), "machine": MACHINE, "seconds": 1.0, **fields}


def measured(*, slower: float = 1.0, busy: float = 0.01) -> dict[str, dict[str, Any]]:
    """Reports of three parts: llama.cpp is as fast as ours, or so many times slower."""
    ways = {"uncached": 20_000.0, "cached": 100.0, "floor": 80.0}
    others = {"llama.cpp:full": 30_000.0, "llama.cpp:prefix": 100.0 * slower}
    one = group("1.1B bf16", ways | others, peers=PRESENT)
    lengths = [group(f"0.1B fp32, {n} cached", {**ways, **others}, params={"cached": n}) for n in (256, 512)]
    modules = group("time to first token", {"8": 100.0, "64": 111.0})
    return {
        "T1": report("T1", one, busy=busy),
        "T2": report("T2", group("0.1B fp32", ways)),
        "T6": report("T6", modules, group("time per token", {"1": 10.0, "64": 10.0})),
        "lengths": report("lengths", *lengths),
    }


def stored() -> dict[str, object]:
    packed = {"bytes ÷ bf16": 0.516, "KL": 1e-5, "worst KL": 3e-3, "same token": 0.999, "same answer": 0.975}
    values = {
        "kills": {"writers killed": 200, "correct afterwards": 200, **dict.fromkeys(WORDS.values(), 9)},
        "damages": {"files damaged": 1000, "wrong answers": 0, "detected": 1000, "repaired": 1000},
        "processes": {"seconds": 60, "errors": 0, "index and files agree": "yes"},
        "verify": {"seconds per GB": 0.2, "bytes ÷ keys and values": 1.0},
        "trace": {"requests": 1500, "computing, cost ÷ lru": 0.77},
        "compression int8": {**packed, "TTFT from disk ÷ plain": 1.1},
    }
    return {"groups": [{"name": name, "values": found} for name, found in values.items()]}


@pytest.mark.parametrize(
    ("slower", "cell"),
    [(0.5, "**50.0 ms (0.50)**"), (2.0, "200 ms (2.00)"), (1.02, "102 ms (1.02)")],
)
def test_a_comparison_says_who_is_faster(slower: float, cell: str) -> None:
    reports = measured(slower=slower)
    whole = beside(reports)
    assert "| 1.1B bf16 | nothing cached | 20.00 s | 30.00 s (1.50) |" in whole
    assert f"|  | cached in memory | 100 ms | {cell} |" in whole
    assert ("256 cached" in whole) == (slower < 1), "of other lengths only those where others are faster"
    count = sum(pair.ratio["ratio"] < 0.97 for pair in pairs(reports))
    assert f"faster in {count} of {len(list(pairs(reports)))} comparisons" in whole


def test_other_software_that_is_missing_or_failed_is_named() -> None:
    missing = {"llama.cpp": {"version": "", "absent": "it is not installed: pip install it"}}
    one = group("1.1B bf16", {"uncached": 1.0, "cached": 1.0}, peers=missing, notes=["other:full failed: x"])
    text = beside({"T1": report("T1", one)})
    assert text.startswith("No other software was measured.")
    assert "- llama.cpp was not measured: it is not installed: pip install it" in text
    assert "- 1.1B bf16: other:full failed: x" in text


def test_a_difference_that_some_round_denies_is_none() -> None:
    one = group("1.1B bf16", {"uncached": 9.0, "cached": 1.0, "llama.cpp:prefix": 1.0}, peers=PRESENT)
    one["samples_ms"] |= {"cached": [1.0, 1.0, 1.0], "llama.cpp:prefix": [0.9, 1.3, 1.3]}
    (pair,) = pairs({"T1": report("T1", one)})
    assert pair.cell.startswith("~")
    assert not pair.slower


def test_figures_that_were_not_measured_together_say_so() -> None:
    here = {"code": "a", "machine": "m"}
    alike = {"T1": report("T1", under=here), "T2": report("T2", under=here)}
    assert "Some parts ran" not in results.place(alike)
    assert "**Some parts ran " in results.place({**alike, "T3": report("T3", under=here | {"code": "b"})})
    assert results.place({"T1": {"part": "T1", "scale": "full", "groups": [], "machine": {}}})


def test_a_figure_that_is_to_be_just_so_is_missed_on_either_side() -> None:
    for encoded, verdict in ((0, "met"), (1, "missed"), (-64, "missed")):
        one = group("0.1B fp32", {}, values={"beyond the edited module": encoded})
        text = results.goals({"T7": report("T7", one)})
        assert f"| {encoded} | 0 | {verdict} |" in text


def test_the_table_of_goals_stands_first_and_says_what_is_missing() -> None:
    text = results.results_of({**measured(), "T5": report("T5", error="OSError: full")})
    assert text.index("### Goals") < text.index("### Other software")
    assert "| T1 | TTFT, uncached ÷ cached | 1.1B bf16 | 200 | ≥ 110 | met |" in text
    assert "|  |  | 0.1B bf16 | – | ≥ 80 | not measured |" in text, "a repeated name is left out"
    assert "| T6 | 64 modules ÷ 8, same tokens | time to first token | 1.11 | ≤ 1.1 | missed |" in text
    assert "- T5: Failed: OSError: full" in text
    assert "| failed: OSError: full |" in text
    assert "- T9: Not measured." in text
    assert all(f"| {name} | needs {needs} |" in text for name, needs in NOT_YET.items())
    assert "charts/" not in text


def test_a_machine_that_was_not_quiet_is_told() -> None:
    assert "Other programs" not in results.place(measured())
    meanwhile = {"T3": report("T3", others=0.25)}
    assert "T3 (25%)" in results.place(meanwhile)
    loud = results.place(measured(busy=0.4))
    assert "**Other programs used " in loud
    assert "T1 (40%)" in loud
    assert "Measured 2026-11-22 on P, cores: 2, threads: 2" in loud
    tiny = {"T1": report("T1", scale="tiny")}
    assert "The scale is tiny" in results.place(tiny)


def test_what_was_measured_at_a_tiny_scale_is_not_published(tmp_path: Path) -> None:
    write(tmp_path / "T1.json", report("T1", scale="tiny"))
    with pytest.raises(PromptCacheError, match="not published"):
        gathered(tmp_path)


def test_charts_name_their_axes_with_units() -> None:
    drawn = figures(measured())
    assert set(drawn) == {"length-fp32", "length-large"}
    for name, figure in drawn.items():
        assert figure.layout.title.text, name
        assert "ms" in figure.layout.yaxis.title.text
    lengths = drawn["length-fp32"]
    assert lengths.layout.xaxis.title.text == "cached tokens"
    assert lengths.layout.xaxis.type == lengths.layout.yaxis.type == "log"
    lines = {trace.name: (list(trace.x), list(trace.y)) for trace in lengths.data}
    assert lines["ours, cached"] == ([256, 512, 4096], [100.0] * 3), "what T2 has measured is a point too"
    assert lines["llama.cpp, nothing cached"][1] == [30_000.0, 30_000.0]
    looks = {(t.line.color, t.line.dash, t.marker.symbol) for t in lengths.data}
    assert len(looks) == len(lengths.data), "no two lines look alike"
    (whole,) = (list(t.x) for t in drawn["length-large"].data if t.name == "ours, cached")
    assert whole == [4096], "what T1 has measured is a point of the chart of lengths"
    assert all(math.log10(mark) >= 0.5 for mark in lengths.layout.yaxis.tickvals)


def test_the_chart_of_many_prompts() -> None:
    crowds = [
        group(
            f"{count} prompts at once",
            {"batch": 1000.0, "private": 1.0},
            params={"prompts": count, "new": 2},
        )
        for count in (8, 1, 32)
    ]
    drawn = figures({"T11": report("T11", *crowds)})
    lines = {trace.name: (list(trace.x), list(trace.y)) for trace in drawn["batch"].data}
    assert lines == {"together": ([1, 8, 32], [2.0, 16.0, 64.0])}


def test_only_charts_that_were_drawn_are_shown() -> None:
    reports = measured()
    shown = results.results_of(reports, ["length-fp32"])
    assert "](charts/length-fp32.svg)" in shown
    assert "charts/length-large.svg" not in shown


def test_every_chart_is_shown() -> None:
    text = RESULTS.read_text(encoding="utf-8")
    assert [path.name for path in results.PICTURES.iterdir() if f"](charts/{path.name})" not in text] == []


def test_the_document_is_written_from_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_bench: Callable[..., SimpleNamespace]
) -> None:
    copy = tmp_path / RESULTS.name
    copy.write_text(RESULTS.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(results, "RESULTS", copy)
    folder = tmp_path / "bench"
    folder.mkdir()
    with pytest.raises(PromptCacheError, match="has no report"):
        gathered(folder)
    for name, found in measured(slower=0.5).items():
        write(folder / f"{name}.json", found)
    before = between(results.RESULTS.read_text(encoding="utf-8"), STORE)
    assert run_bench("results", folder, "--no-charts").status == 0
    text = results.RESULTS.read_text(encoding="utf-8")
    assert between(text, STORE) == before
    assert "**50.0 ms (0.50)**" in str(between(text, SUITE))
    trials = tmp_path / "store.json"
    trials.write_text(json.dumps(stored()))
    assert run_bench("results", folder, "--no-charts", "--store", trials).status == 0
    text = results.RESULTS.read_text(encoding="utf-8")
    assert "killed while writing a file 9, killed while entering a row 9" in str(between(text, STORE))
    assert "| `int8` | 0.516 | 1e-05 | 0.003 | 99.90% | 97.5% | 1.10 |" in text
