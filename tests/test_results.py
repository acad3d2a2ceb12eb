"""What `python -m benchmarks.results` writes: goals, other software, charts, and the trials of the store."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import results
from benchmarks.beside import beside, pairs
from benchmarks.charts import CHARTS, figures
from benchmarks.kills import WORDS
from benchmarks.markdown import between
from benchmarks.results import RESULTS, STORE, SUITE, gathered
from benchmarks.suite.parts import NOT_YET, PARTS
from benchmarks.suite.running import write
from benchmarks.suite.sampling import Group
from engine.stopwatch import milliseconds

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
    ways = {"uncached": 20_000.0, "cached": 100.0, "tokens_floor": 80.0}
    others = {"llama.cpp:full": 30_000.0, "llama.cpp:prefix": 100.0 * slower}
    parts = {"limit_ms": 10.0, "part parse": 0.5, "part prefill": 99.0}
    one = group("1.1B bf16", ways | others, peers=PRESENT, values=parts)
    lengths = [
        group(f"0.1B fp32, {n} cached", {**ways, **others}, params={"cached": n}, values=parts)
        for n in (256, 512)
    ]
    modules = group("time to first token", {"8": 100.0, "64": 111.0})
    return {
        "T1": report("T1", one, busy=busy),
        "T2": report("T2", group("0.1B fp32", ways, values=parts)),
        "T6": report("T6", modules, group("time per token", {"1": 10.0, "64": 10.0})),
        "lengths": report("lengths", *lengths),
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


@pytest.mark.parametrize(
    ("slower", "said"),
    [
        (
            0.5,
            "1.1B bf16, the cached tokens there before: **llama.cpp is 2.00 times as fast as ours** (100 ms",
        ),
        (2.0, "1.1B bf16, the cached tokens there before: ours is 2.00 times as fast (100 ms against 200 ms"),
        (1.02, "1.1B bf16, the cached tokens there before: both take the same time within 3% (100 ms"),
    ],
)
def test_a_comparison_says_who_is_faster(slower: float, said: str) -> None:
    reports = measured(slower=slower)
    every = "\n".join(f"- {pair.sentence}" for pair in pairs(reports))
    assert f"- {said}" in every
    assert (
        "1.1B bf16, the whole prompt computed: ours is 1.50 times as fast (20.00 s against 30.00 s" in every
    )
    whole = beside(reports)
    assert (f"- {said}" in whole) == (slower < 1), "it lists where others are faster"
    both = f"| 100 ms | {milliseconds(100 * slower)} |"
    assert f"| T1 | 1.1B bf16 | the cached tokens there before; llama.cpp {both}" in whole
    count = sum(pair.ratio["ratio"] < 0.97 for pair in pairs(reports))
    assert ("None of these comparisons goes to other software." in whole) == (count == 0)
    assert slower >= 1 or f"{count} of {len(list(pairs(reports)))} comparisons go to other software" in whole


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
    assert "neither is faster in every round" in pair.sentence
    assert not pair.slower


def test_figures_that_were_not_measured_together_say_so() -> None:
    here = {"code": "a", "machine": "m"}
    alike = {"T1": report("T1", under=here), "T2": report("T2", under=here)}
    assert "Not of one piece" not in results.place(alike)
    assert "**Not of one piece: " in results.place({**alike, "T3": report("T3", under=here | {"code": "b"})})
    assert "in 0 min." in results.place(alike)
    assert results.place({"T1": {"part": "T1", "scale": "full", "groups": [], "machine": {}}})


def test_a_figure_that_is_to_be_just_so_is_missed_on_either_side() -> None:
    for encoded, verdict in ((0, "met"), (1, "missed"), (-64, "missed")):
        one = group("0.1B fp32", {}, values={"beyond the edited module": encoded})
        text = results.goals({"T7": report("T7", one)})
        assert f"| {encoded} | 0 | {verdict} |" in text


def test_settings_that_were_chosen_for_other_software_are_told() -> None:
    chosen = {"llama.cpp": {**PRESENT["llama.cpp"], "settings": "full without flash attention"}}
    one = group("1.1B bf16", {"uncached": 2.0, "llama.cpp:full": 3.0}, peers=chosen)
    text = beside({"T1": report("T1", one)})
    assert "- llama.cpp, as it is faster: full without flash attention (T1 1.1B bf16)." in text


def test_the_table_of_goals_stands_first_and_says_what_is_missing() -> None:
    text = results.results({**measured(), "T5": report("T5", error="OSError: full")})
    assert text.index("## Goals") < text.index("## Beside other software") < text.index("## T1: ")
    goal = "| T1 | time to first token, uncached ÷ cached | 1.1B bf16 | 200 | ≥ 110 | met |"
    assert f"{goal} `pml bench suite --only T1` |" in text
    assert "| T6 | 64 modules ÷ 8 of the same tokens | time to first token | 1.11 | ≤ 1.1 | missed |" in text
    assert "**Failed**: OSError: full" in text
    assert "| failed: OSError: full |" in text
    assert "## T3: Against the floor\n\nNot measured." in text
    assert all(f"| {name} | needs {needs} |" in text for name, needs in NOT_YET.items())
    assert "| 1.1B bf16 | `cached` | 90.0 ms | 100 ms | 110 ms | 3 |" in text
    assert "part parse" not in text, "parts of a time are in the chart"
    assert all(f": {part.title}" in text or f"## {part.title}" in text for part in PARTS)
    assert "charts/" not in text


def test_a_machine_that_was_not_quiet_is_told() -> None:
    assert "not quiet" not in results.place(measured())
    meanwhile = {"T3": report("T3", others=0.25)}
    assert "T3 (25%)" in results.place(meanwhile)
    loud = results.place(measured(busy=0.4))
    assert "**The machine was not quiet: " in loud
    assert "T1 (40%)" in loud
    assert "Measured 2026-11-22 on P, cores: 2, threads: 2" in loud
    tiny = {"T1": report("T1", scale="tiny")}
    assert "At a tiny scale" in results.place(tiny)


def test_what_was_measured_at_a_tiny_scale_is_not_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "T1.json", report("T1", scale="tiny"))
    monkeypatch.setattr(results, "RESULTS", tmp_path / "RESULTS")
    with pytest.raises(SystemExit):
        results.main([str(tmp_path), "--no-charts"])
    assert "nothing to publish" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["T1.json"]


def test_charts_name_their_axes_with_units() -> None:
    drawn = figures(measured())
    assert set(drawn) == {"parts", "modules", "length-fp32", "length-large"}
    for name, figure in drawn.items():
        assert figure.layout.title.text, name
        assert any(word in figure.layout.yaxis.title.text for word in ("ms", "milliseconds"))
    lengths = drawn["length-fp32"]
    assert lengths.layout.xaxis.title.text == "cached tokens"
    assert lengths.layout.xaxis.type == lengths.layout.yaxis.type == "log"
    lines = {trace.name: (list(trace.x), list(trace.y)) for trace in lengths.data}
    assert lines["ours, cached"] == ([256, 512, 4096], [100.0] * 3), "what T2 has measured is a point too"
    assert lines["llama.cpp, nothing cached"][1] == [30_000.0, 30_000.0]
    assert lines["limit of arithmetic"] == ([256, 512, 4096], [10.0] * 3)
    looks = {(t.line.color, t.line.dash, t.marker.symbol) for t in lengths.data}
    assert len(looks) == len(lengths.data), "no two lines look alike"
    (whole,) = (list(t.x) for t in drawn["length-large"].data if t.name == "ours, cached")
    assert whole == [4096], "what T1 has measured is a point of the chart of lengths"
    assert all(math.log10(mark) >= 0.5 for mark in lengths.layout.yaxis.tickvals)


def test_charts_of_many_prompts() -> None:
    crowds = [
        group(
            f"{count} prompts at once",
            {"batch": 1.0},
            params={"prompts": count},
            values={"tokens per second, batch": 2.0 * count, "tokens per second, private": 1.0},
        )
        for count in (8, 1, 32)
    ]
    steps = [
        group(f"tail {tail}", {"private": 80.0, "batch_reordered": 40.0}, params={"prompts": 8, "tail": tail})
        for tail in (512, 1)
    ]
    values = {
        f"{kind}, a token at {rate} prompts a second, ms": 9.0
        for kind in ("half", "batch")
        for rate in (0.5, 2)
    }
    reports = {
        "T11": report("T11", *crowds, *steps),
        "arrivals": report("arrivals", group("arriving", {}, values=values)),
    }
    drawn = {
        name: {t.name: (list(t.x), list(t.y)) for t in one.data} for name, one in figures(reports).items()
    }
    assert drawn["batch"] == {"together": ([1, 8, 32], [2.0, 16.0, 64.0])}
    assert drawn["growing"] == {
        "nothing shared": ([1, 512], [100.0, 100.0]),
        "together, reordered": ([1, 512], [200.0, 200.0]),
    }
    assert drawn["arrivals"] == {
        "half shared": ([0.5, 2.0], [9.0, 9.0]),
        "together": ([0.5, 2.0], [9.0, 9.0]),
    }


def test_only_charts_that_were_drawn_are_shown() -> None:
    reports = measured()
    shown = results.results(reports, ["modules"])
    (chart,) = (one for one in CHARTS if one.name == "modules")
    assert f"![{chart.words}](charts/modules.svg)" in shown
    assert "charts/parts.svg" not in shown


def test_the_document_is_written_from_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / RESULTS.name
    copy.write_text(RESULTS.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(results, "RESULTS", copy)
    folder = tmp_path / "bench"
    folder.mkdir()
    with pytest.raises(ValueError, match="holds no report"):
        gathered(folder)
    for name, found in measured(slower=0.5).items():
        write(folder / f"{name}.json", found)
    before = between(results.RESULTS.read_text(encoding="utf-8"), STORE)
    results.main([str(folder), "--no-charts"])
    text = results.RESULTS.read_text(encoding="utf-8")
    assert between(text, STORE) == before
    assert "**llama.cpp is 2.00 times as fast as ours**" in str(between(text, SUITE))
    trials = tmp_path / "store.json"
    trials.write_text(json.dumps(stored()))
    results.main([str(folder), "--no-charts", "--store", str(trials)])
    text = results.RESULTS.read_text(encoding="utf-8")
    assert "writing a file 9, entering a row 9" in str(between(text, STORE))
    assert "| `int8` | 0.516 | 1e-05 | 0.003 | 99.90% | 97.5% | 1.10 |" in text
