"""T11 looks at the answers: of a batch that answers something else no figure meets a goal. No times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import agreement, growing
from benchmarks.crowd import Crowd, Size
from benchmarks.goals import SAME_TEXT, verdicts
from benchmarks.suite import crowds
from benchmarks.suite.scale import TINY, Scale
from engine.kv_cache.batched_kv_cache import BatchedKVCache
from engine.model.loading import load
from tests.engine.tiny import save_tiny

ASKED = Size(shared=320, modules=4, own=8, new=4)  # modules long enough to be read where they lie
ONLY_BATCHES = replace(TINY, readers=(4, 96), crowd=(320, 8, 4), arrivals=(2, 2, (1.0,)))


def silent(_: str) -> None:
    pass


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row of several in a pass reads a segment."""
    monkeypatch.setattr(BatchedKVCache, "_seen", lambda *_: [])


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    made = Crowd(load("demo"), tmp_path, ASKED, 4, 0, silent, private=2, decoders=2)
    yield made
    made.close()


def test_numbers_that_are_none_are_far_apart() -> None:
    wanted = torch.tensor([[1.0, 2.0, 3.0]])
    assert agreement.distance(wanted + 0.5, wanted) == pytest.approx(0.5)
    assert agreement.mean_distance(wanted + 0.5, wanted) == pytest.approx(0.5)
    assert agreement.mean_distance(wanted * torch.nan, wanted) == float("inf")
    assert agreement.distance(wanted / 0, wanted) == float("inf")
    assert agreement.distance(wanted * torch.nan, wanted) == float("inf")


def test_rounding_is_let_pass_as_the_number_format_is_wide() -> None:
    assert agreement.judged(0.05, "bf16")[SAME_TEXT] == "yes"
    assert agreement.judged(0.05, "fp32")[SAME_TEXT] == "no"
    assert agreement.judged(float("inf"), "bf16")[SAME_TEXT] == "no"
    assert agreement.judged(0.05, "bf16", 0.75)[SAME_TEXT] == "yes"
    assert agreement.judged(0.05, "bf16", 0.7)[SAME_TEXT] == "no"


def test_the_same_prompts_are_answered_by_both_engines(crowd: Crowd) -> None:
    found = agreement.answered(crowd, crowds.CHECKED, 4)
    assert found[SAME_TEXT] == "yes"
    assert found[agreement.ALIKE] == "100%"
    for kind in crowds.CHECKED:
        for ours, theirs in crowd.twins(kind, 2):
            assert (
                ours.tokenized.planned(None).plan.token_ids == theirs.tokenized.planned(None).plan.token_ids
            )


@pytest.mark.usefixtures("blind")
def test_answers_without_what_is_shared_are_others(crowd: Crowd) -> None:
    assert agreement.answered(crowd, ("batch",), 4)[SAME_TEXT] == "no"


def test_a_step_of_many_has_the_logits_of_each() -> None:
    steps = growing.Growing(load("demo"), ASKED, 3, 0)
    assert max(steps.apart(1), steps.apart(300)) <= agreement.BOUNDS["fp32"]


@pytest.mark.usefixtures("blind")
def test_a_step_that_reads_nothing_shared_is_told_apart() -> None:
    assert growing.Growing(load("demo"), ASKED, 3, 0).apart(1) > agreement.ROUGH


@pytest.mark.usefixtures("blind")
def test_a_batch_that_reads_no_segment_meets_no_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowds, "AT_ONCE", (1, 8))
    groups = [group.to_json() for group in crowds.together(ONLY_BATCHES, silent)]
    told = {group["name"]: group["values"].get(SAME_TEXT) for group in groups}
    alone = {"own heads, nothing shared", "grouped heads, nothing shared", "1 prompt"}
    assert {name for name, said in told.items() if said == "yes"} == alone
    assert set(told.values()) == {"yes", "no"}, "each is looked at"
    reports: dict[str, Any] = {"T11": {"groups": groups}}
    found = {(goal.group, verdict) for goal, figure, verdict in verdicts(reports) if figure is not None}
    assert {group for group, verdict in found if verdict != "missed: another text"} <= alone


def test_a_model_that_must_run_alone_has_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowds, "AT_ONCE", (1, 2))
    folder = str(save_tiny(tmp_path / "model", "gptj", chat=False))
    scale: Scale = replace(TINY, large=replace(TINY.large, model=folder), crowd=(64, 8, 4))
    *whole, newcomer = crowds.answers(scale, silent)
    assert whole[0].name == "1 prompt"
    (note,) = newcomer.notes
    assert "answers prompts one by one: " in note
    assert not newcomer.samples
