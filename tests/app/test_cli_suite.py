"""`pml bench suite` as a command: its status, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.suite import running
from benchmarks.suite.parts import NOT_YET
from benchmarks.suite.sampling import Group

Run = Callable[..., SimpleNamespace]


def test_what_cannot_be_measured_is_refused_by_name(run_pml: Run, tmp_path: Path) -> None:
    done = run_pml("bench", "suite", "--only", "T12", "--out", str(tmp_path))
    assert done.status == 2
    assert "T12 is not measured yet: it needs a GPU" in done.err
    assert set(NOT_YET) == {"T12", "T15"}
    unknown = run_pml("bench", "suite", "--only", "T99", "--out", str(tmp_path))
    assert "there is no part 'T99'; there are T1, T2" in unknown.err


def test_a_suite_that_failed_says_so_by_its_status(
    run_pml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group("1.1B bf16", samples={"uncached": [900.0], "cached": [10.0]}).to_json()
    found = {"part": "T1", "scale": "full", "groups": [group], "machine": {}}
    found["under"] = running.circumstances()
    running.write(tmp_path / "T1.json", found)
    monkeypatch.setattr(
        running, "separately", lambda part, *_: {**found, "part": part.name, "error": "broke"}
    )
    whole = run_pml("bench", "suite", "--only", "T1", "--out", str(tmp_path))
    assert whole.status == 0
    assert "missed" in whole.out
    assert "measured before" in whole.err
    broken = run_pml("bench", "suite", "--only", "T2", "--out", str(tmp_path), "--json")
    assert broken.status == 1
    assert json.loads(broken.out)["failed"] == {"T2": "broke"}
    assert "failed: T2" in broken.err


def test_a_tiny_suite_says_that_its_figures_mean_nothing(
    run_pml: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_pml("bench", "suite", "--scale", "tiny", "--only", "store")
    assert done.status == 0
    assert "The scale is tiny" in done.out
    assert [path.name for path in tmp_path.iterdir()] == ["bench-tiny"], "not where figures lie"


@pytest.mark.parametrize("command", ["first", "ttft"])
def test_times_are_of_the_weights_that_were_asked_for(
    run_pml: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("PML_QUANTIZE", "int8")
    sizes = ("--cached", "16", "--modules", "2", "--new", "4", "--repeats", "1")
    found = run_pml("bench", command, *sizes, "--json")
    assert json.loads(found.out)["machine"]["weights"] == "int8"


def test_prompts_are_checked_before_a_model_is_loaded_for_their_guesses(run_pml: Run, tmp_path: Path) -> None:
    prompt = tmp_path / "other.pml"
    prompt.write_text('<prompt schema="travel"><nowhere/></prompt>')
    found = run_pml("bench", "guesses", prompt, "--schema", "sample_schemas/travel.pml", "--model", "none")
    assert found.status == 1
    assert f"{prompt}" in found.err
    assert "nowhere" in found.err
