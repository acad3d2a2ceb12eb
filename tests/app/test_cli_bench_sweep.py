"""`pml bench sweep` as a command: its table, its files, and what it refuses. No times."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.cli.bench import sweep
from benchmarks.sweep import AXES
from benchmarks.sweeping import Sweeping

Run = Callable[..., SimpleNamespace]
SMALL = ("--cached", "24", "--modules", "2", "--new", "4", "--repeats", "1")


def test_the_command_names_every_axis() -> None:
    assert tuple(AXES) == sweep.AXES


def test_it_prints_a_table_and_writes_a_file(run_pml: Run, tiny_model: Path, tmp_path: Path) -> None:
    target = tmp_path / "sweep.csv"
    wanted = ("bench", "sweep", "cached", "--at", "8", "--at", "16", *SMALL, "--model", tiny_model)
    done = run_pml(*wanted, "--csv", target)
    assert done.status == 0, done.err
    for words in ("CACHED", "UNCACHED ÷", "floor", "files", "processor "):
        assert words in done.out
    assert len(target.read_text(encoding="utf-8").splitlines()) == 1 + 2 * 4
    again = run_pml(*wanted, "--csv", target)
    assert again.status == 1
    assert "--force" in again.err


def test_it_prints_json(run_pml: Run, tiny_model: Path) -> None:
    done = run_pml("bench", "sweep", "scope", "--at", "isolated", *SMALL, "--model", tiny_model, "--json")
    assert done.status == 0, done.err
    report = json.loads(done.out)
    assert report["sweep"]["values"] == ["isolated"]
    assert [one["name"] for one in report["results"]] == ["uncached", "cached"]


def test_an_interruption_keeps_what_was_measured(
    run_pml: Run, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = Sweeping.measure

    def interrupted(self: Sweeping, value: int | str) -> object:
        if value == 16:
            raise KeyboardInterrupt
        return measure(self, value)

    monkeypatch.setattr(Sweeping, "measure", interrupted)
    done = run_pml(
        *("bench", "sweep", "cached", "--at", "8", "--at", "16", *SMALL, "--model", tiny_model, "--json")
    )
    assert done.status == 130
    assert "these points were measured" in done.err
    report = json.loads(done.out)
    assert report["ended"] == "stopped"
    assert {one["value"] for one in report["results"]} == {8}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("cached", "--at", "far"), "'far'"),
        (("scope", "--at", "wide"), "'wide'"),
        (("modules", "--at", "900"), "cannot be split"),
        (("sideways",), "sideways"),
    ],
)
def test_what_cannot_be_measured_is_an_error_of_usage(
    run_pml: Run, options: tuple[str, ...], said: str
) -> None:
    done = run_pml("bench", "sweep", *options)
    assert done.status == 2
    assert said in done.err
