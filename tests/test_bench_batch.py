"""`pml bench batch`: what is asked, whose turn it is, what is counted. No times."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks import arrivals, batch, growing
from benchmarks.crowd import Crowd, Endless, Size
from benchmarks.turns import Way
from engine.base.errors import PromptCacheError
from engine.model.loading import load
from engine.prepared import PreparedPrompt
from tests.engine.tiny import save_tiny, tiny_model

SMALL = Size(shared=40, modules=4, own=8, new=4)
WHOLE = ("batch", "batch_reordered", "batch_plain", "private")


def silent(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("model"), chat=False))


@pytest.fixture(scope="module")
def report(folder: str) -> dict[str, Any]:
    return batch.run(folder, SMALL, prompts=(1, 3, 3), repeats=1, private=True, growing=True)


def crowd_in(place: Path, folder: str, seed: int = 0) -> Crowd:
    return Crowd(load(folder), place, SMALL, 3, seed, silent, private=3, decoders=3)


@pytest.fixture
def crowd(folder: str, tmp_path: Path) -> Iterator[Crowd]:
    made = crowd_in(tmp_path, folder)
    yield made
    made.close()


def test_a_report_has_every_kind_at_every_number_of_prompts(report: dict[str, Any]) -> None:
    *whole, alone, among = report["results"]
    assert [(one["name"], one["params"]["prompts"]) for one in whole] == [
        ("one_by_one", 3),
        *((kind, count) for count in (1, 3) for kind in WHOLE),
    ]
    assert (alone["name"], among["name"]) == ("newcomer_alone", "newcomer")
    assert all(len(one["samples_ms"]) == 1 for one in report["results"])
    first, *_, last = whole
    for one in whole:
        assert one["params"].items() >= {"shared": 40, "modules": 4, "own": 8, "new": 4, "seed": 0}.items()
        tokens = 4 * one["params"]["prompts"]
        assert one["tokens_per_s"] == pytest.approx(tokens / (one["median_ms"] / 1000))
        counted = one is not first and one["name"] != "private"
        assert bool(one["peak_bytes"]) == counted, "nobody counts, or copies would count twice"
    named = {f"one_by_one/{kind} {count}" for count in (1, 3) for kind in WHOLE}
    assert set(report["ratios"]) == {*named, "newcomer/alone"}
    faster = last["tokens_per_s"] / first["tokens_per_s"]
    assert report["ratios"]["one_by_one/private 3"]["ratio"] == pytest.approx(faster)
    assert report["among"] == 16
    assert set(report["decoders"]) == {"step", "gap"}
    assert report["arrivals"] is None
    assert report["alone"] == ""
    assert {"processor", "threads", "weights"} <= set(report["machine"])


def test_steps_are_timed_by_what_is_each_prompts_own(report: dict[str, Any]) -> None:
    found = report["growing"]
    assert found["prompts"] == 3
    assert found["tails"] == [1, 10, 20, 30, 40]
    for figures in (found["tokens_per_s"], found["bytes"]):
        assert set(figures) == {"one_by_one", "private", "batch", "batch_reordered"}
        assert all(len(one) == 5 and min(one) > 0 for one in figures.values())
    assert found["bytes"]["batch"] == found["bytes"]["batch_reordered"]


def test_long_tails_are_whose_they_are_and_what_is_shared_is_there_once(folder: str) -> None:
    model = load(folder)
    steps = growing.Growing(model, Size(shared=600, modules=2), 3, 0)
    for kind in ("private", "batch"):
        way = steps.way(kind, 300)
        way.prepare()
        way.run()
    room = 3 * (1 + model.rows.idle)  # each has some for the row that is computed
    size = model.bytes_per_token
    assert steps.held == {
        "private 300": (3 * 900 + room) * size,
        "batch 300": (600 + 3 * 300 + room) * size,
    }


def test_the_ways_take_turns(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    way = Crowd.way

    def logged(crowd: Crowd, kind: str, count: int) -> Way:
        made = way(crowd, kind, count)

        def run() -> float:
            log.append(made.name)
            return made.run()

        return replace(made, run=run)

    monkeypatch.setattr(Crowd, "way", logged)
    batch.run(folder, SMALL, prompts=(2,), repeats=2)
    assert log[::2] == log[1::2], "each after one to warm up"
    first, second = log[:8:2], log[8::2]
    assert sorted(first) == sorted(second) == sorted(["one_by_one 2", *(f"{kind} 2" for kind in WHOLE[:3])])
    assert first != second


def test_every_prompt_ends_with_a_text_that_none_had_before(crowd: Crowd) -> None:
    for kind in (*WHOLE, "one_by_one", "one_by_one_reordered", "private_reordered"):
        found = [one.tokenized.planned(None).plan.token_ids for one in crowd.prompts(kind, 8)]
        found += [one.tokenized.planned(None).plan.token_ids for one in crowd.prompts(kind, 8)]
        assert len({ids[-6:] for ids in map(tuple, found)}) == 16, kind
        starts = {ids[:30] for ids in map(tuple, found)}
        if kind.startswith("private"):
            assert len(starts) >= 3, "modules of its own for each of three"
        else:
            assert (len(starts) > 4) == kind.endswith("_reordered"), kind


def test_half_of_the_modules_are_shared(crowd: Crowd) -> None:
    for kind in ("half", "half_reordered"):
        read = [keys_of(prompt) for prompt in crowd.prompts(kind, 3)]
        common = set.intersection(*read)
        assert len(common) == len(read[0]) / 2
        assert len(set.union(*read) - common) == 3 * len(read[0]) / 2, "each has others of its own"
        assert common < keys_of(crowd.prompts("batch", 1)[0])


def keys_of(prompt: PreparedPrompt) -> set[str]:
    slices = prompt.tokenized.planned("anchored").slices
    return {one.recipe.key for one in slices if one is not None}


@pytest.mark.parametrize(
    ("times", "rate", "between"),
    [
        ([1.0, 3.0], 1.5, (1.0, 2.0)),
        ([1.0, 2.0], 2.0, (2.0, None)),
        ([3.0, 4.0], 0.0, (0.0, 1.0)),
        ([1.0, 1.5], 2.0, (2.0, None)),
        ([None, 1.5], 2.0, (2.0, None)),
        ([3.0, None], 0.0, (0.0, 1.0)),
    ],
)
def test_the_rate_that_is_kept_up_with_lies_between_those_measured(
    times: list[float | None], rate: float, between: tuple[float, float | None]
) -> None:
    assert arrivals.kept((1.0, 2.0), times, 2.0) == pytest.approx(rate)
    assert arrivals.between((1.0, 2.0), times, 2.0) == between


def test_prompts_are_drawn_by_the_seed(folder: str, tmp_path: Path) -> None:
    found = []
    for number, seed in enumerate((1, 1, 2)):
        place = tmp_path / str(number)
        place.mkdir()
        crowd = crowd_in(place, folder, seed)
        prompts = crowd.prompts("batch_reordered", 2)
        found.append([one.tokenized.planned(None).plan.token_ids for one in prompts])
        crowd.close()
    assert found[0] == found[1] != found[2]


def test_what_is_shared_takes_its_memory_once(crowd: Crowd) -> None:
    peaks = {}
    for kind in ("batch", "private"):
        for _ in range(2):  # what is read lies in memory the second time
            crowd.log.clear()
            prompts = crowd.prompts(kind, 3)
            with crowd.batch.computing.step():  # so that all are there when the first pass begins
                tickets = [crowd.submit(kind, one, 4) for one in prompts]
            for ticket in tickets:
                ticket.result(60)
        peaks[kind] = crowd.log.peak
    apart = 2 * 40 * crowd.model.bytes_per_token
    assert peaks["private"] - peaks["batch"] == pytest.approx(apart, rel=0.2)


def test_an_answer_that_ended_early_is_refused_in_words(
    crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Endless, "end_tokens", frozenset(range(320)))
    for kind in ("batch", "one_by_one"):
        way = crowd.way(kind, 2)
        way.prepare()
        with pytest.raises(PromptCacheError, match=f"{kind}: an answer ended after 1 of 4 tokens"):
            way.run()
    with pytest.raises(PromptCacheError, match="ended before a newcomer came"):
        crowd.newcomers()[1].run()
    with pytest.raises(PromptCacheError, match="no answer: The prompt was cancelled"):
        crowd.require_whole("batch", PromptCacheError("The prompt was cancelled"))


def test_numbers_that_cannot_be_run_are_refused(folder: str) -> None:
    for wrong in ({"shared": 3, "modules": 4}, {"own": 0}, {"new": 1}):
        with pytest.raises(PromptCacheError, match="at least"):
            replace(SMALL, **wrong)
    for numbers in ({"prompts": (0,)}, {"prompts": ()}, {"repeats": 0}):
        with pytest.raises(PromptCacheError, match="--prompts and --repeats"):
            batch.run(folder, SMALL, **numbers)  # type: ignore[arg-type]
    with pytest.raises(PromptCacheError, match="tokens do not fit the model's"):
        batch.run(folder, Size())


def test_a_model_that_takes_one_prompt_at_a_time_says_so(tmp_path: Path) -> None:
    report = batch.run(
        str(save_tiny(tmp_path / "model", "gptj", chat=False)), SMALL, prompts=(2,), repeats=1, growing=True
    )
    assert report["alone"]
    assert [one["name"] for one in report["results"]] == ["one_by_one", *WHOLE[:3]]
    assert report["decoders"] is None
    assert report["growing"] is None
    assert growing.by_tail(tiny_model("gptj", chat=False), SMALL, 2, 1, 0, silent) is None


# Prompts that arrive by themselves


def test_arrivals_are_drawn_by_the_seed() -> None:
    times = arrivals.due(2.0, 2000, 1)
    assert times == arrivals.due(2.0, 2000, 1) != arrivals.due(2.0, 2000, 2)
    assert times[0] == 0
    assert times == sorted(times)
    between = statistics.mean(b - a for a, b in pairwise(times))
    assert between == pytest.approx(1 / 2.0, rel=0.1)
    twice = [2 * time for time in arrivals.due(4.0, 2000, 1)]
    assert times == pytest.approx(twice), "another rate is the same arrivals, closer to each other"


def test_every_system_answers_what_arrives(crowd: Crowd) -> None:
    found = arrivals.by_rate(crowd, 0, silent, rates=(1.0, 2.0), count=3)
    one, other = found["per_second"]
    assert one == pytest.approx(1000 / (4 * found["alone_ms"]))
    assert other == pytest.approx(2 * one)
    assert set(found["ms_per_token"]) == set(found["keeps_up"]) == set(arrivals.KINDS)
    for kind, (low, high) in found["ms_per_token"].items():
        assert high if kind.startswith(("half", "batch")) else low, "each is asked at its first rate"


def test_a_system_is_asked_where_it_may_keep_up(crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times as drawn up here: from which rate on a system takes longer."""
    asked: list[tuple[str, float]] = []
    most = {"one_by_one": 0.2, "private": 2.0, "half": 1.0, "half_reordered": 3.0}

    def arriving(_: Crowd, kind: str, times: list[float]) -> float:
        if len(times) == 1:
            return 10.0
        rate = 0.1 / (times[1] - times[0])
        asked.append((kind, round(rate, 3)))
        return 10.0 if rate <= most.get(kind, 9.0) else 30.0

    monkeypatch.setattr(arrivals, "arriving", arriving)
    monkeypatch.setattr(arrivals, "due", lambda rate, count, seed: [n * 2.5 / rate for n in range(count)])
    rates = (0.5, 1.0, 2.0, 3.0, 6.0)  # of prompts of four tokens, 25 a second by themselves
    found = arrivals.by_rate(crowd, 0, silent, rates=rates, count=2)
    assert found["per_second"] == pytest.approx([25 * rate for rate in rates])
    by_kind = {kind: [rate for one, rate in asked if one == kind] for kind in arrivals.KINDS}
    assert by_kind == {
        "one_by_one": [1.0, 0.5],
        "private": [1.0, 2.0, 3.0],
        "half": [2.0, 1.0],
        "half_reordered": [2.0, 3.0, 6.0],
        "batch": [2.0, 3.0, 6.0],
        "batch_reordered": [2.0, 3.0, 6.0],
    }
    assert found["ms_per_token"]["half"] == [None, 10.0, 30.0, None, None]
    assert found["between"]["one_by_one"] == (0.0, pytest.approx(12.5))
    assert found["between"]["private"] == pytest.approx((50.0, 75.0))
    assert found["between"]["batch"] == (pytest.approx(150.0), None)
    kept = {"one_by_one": 0.0, "private": 62.5, "half": 37.5, "half_reordered": 112.5}
    assert found["keeps_up"] == pytest.approx(dict.fromkeys(arrivals.KINDS, 150.0) | kept)
