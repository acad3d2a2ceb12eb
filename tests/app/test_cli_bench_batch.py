"""`pml bench batch` as a command: its tables, its JSON, and what it refuses. No times."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import batch
from benchmarks.arrivals import by_rate

Run = Callable[..., SimpleNamespace]
SMALL = ("--shared", "40", "--modules", "2", "--own", "8", "--new", "3", "--repeats", "1")


@pytest.mark.usefixtures("place")
def test_it_prints_json(run_pml: Run) -> None:
    done = run_pml("bench", "batch", *SMALL, "--prompts", "2", "--prompts", "3", "--json")
    assert done.status == 0, done.err
    report = json.loads(done.out)
    whole = [(one["name"], one["params"]["prompts"]) for one in report["results"] if "tokens_per_s" in one]
    kinds = ("batch", "batch_reordered", "batch_plain")
    assert whole == [("one_by_one", 3), *((kind, count) for count in (2, 3) for kind in kinds)]
    assert "one_by_one/batch_plain 3" in report["ratios"]
    assert report["arrivals"] is None
    assert report["growing"] is None


@pytest.mark.usefixtures("place")
def test_it_says_all_of_it_in_words(run_pml: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "by_rate", partial(by_rate, rates=(1.0, 2.0), count=2))
    wanted = ("--prompts", "2", "--private", "--arrivals", "--growing")
    done = run_pml("bench", "batch", *SMALL, *wanted)
    assert done.status == 0, done.err
    for words in ("× ONE BY ONE", "LEAST ×", "MOST ×", "KEYS AND VALUES", "KEEPS UP WITH", "OWN TOKENS"):
        assert words in done.out
    for kind in ("half_reordered", "batch_plain", "private"):
        assert kind in done.out
    assert re.search(r"A newcomer's first token takes \d+\.\d\d times as long", done.out), "of one repeat"
    assert "times as long among 16 answers as alone" in done.out
    assert "KiB" in done.out
    assert "processor " in done.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--shared", "3", "--modules", "4"), "--shared at least --modules"),
        (("--prompts", "0"), "--prompts"),
        (("--new", "1"), "--new"),
        (("--repeats", "0"), "--repeats"),
    ],
)
def test_numbers_that_cannot_be_run_are_errors_of_usage(
    run_pml: Run, options: tuple[str, ...], said: str
) -> None:
    done = run_pml("bench", "batch", *options, "--model", "none")
    assert done.status == 2, "before a model is looked for"
    assert said in done.err


def test_what_does_not_fit_the_model_is_a_fault_in_words(run_pml: Run, place: Path) -> None:
    done = run_pml("bench", "batch", "--shared", "40000", "--repeats", "1")
    assert done.status == 1
    assert "tokens do not fit the model's" in done.err
