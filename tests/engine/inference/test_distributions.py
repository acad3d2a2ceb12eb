"""Distributions: what is no number ends in words, on either side and at any token, and never looks equal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.base.errors import ModelError
from engine.base.events import Answer
from engine.engine import Engine
from engine.fidelity.comparison import compare, first_token_divergence
from engine.fidelity.teacher_forcing import Reading
from engine.inference.run_settings import RunSettings
from engine.model.network import Network
from engine.store import Store
from tests.engine.cases import model_of

SCHEMA = '<schema name="s"><user>Read. <module name="a">alpha</module></user></schema>'
PROMPT = "<prompt><a/><user>What?</user></prompt>"
LOST = "invalid number at token {} of the answer.*--dtype fp32 or bf16.*verify the cache"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    yield opened
    opened.close()


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What stands in one logit of the last row, or in all, by pass: counted from 1 since it was first set."""
    faults: dict[str, float] = {}
    forward, passes = Network.forward, iter(range(1, 10_000))

    def broken(self: Network, *args: Any, **options: Any) -> torch.Tensor:
        logits = forward(self, *args, **options).clone()
        number = next(passes) if faults else 0
        for place, value in faults.items():
            if place in (f"one {number}", "one *"):
                logits[-1, 7] = value
            if place in (f"all {number}", "all *"):
                logits[-1] = value
        return logits

    monkeypatch.setattr(Network, "forward", broken)
    return faults


def test_a_token_that_both_sides_rule_out_hides_nothing() -> None:
    uncached = torch.tensor([1.0, 2.0, -math.inf, 3.0])
    cached = torch.tensor([1.0, 11.0, -math.inf, 3.0])
    assert first_token_divergence(uncached, uncached) == 0
    want = first_token_divergence(cached[[0, 1, 3]], uncached[[0, 1, 3]])
    assert first_token_divergence(cached, uncached) == pytest.approx(want)
    assert want > 1
    found = Reading.of_logits(cached[None]).divergence(Reading.of_logits(uncached[None]))
    assert found.tolist() == pytest.approx([want], rel=1e-5)


def test_a_token_that_one_side_rules_out_counts_much_and_stays_a_number() -> None:
    plain, without = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, -math.inf, 3.0])
    assert 100 < first_token_divergence(without, plain) < math.inf
    assert 0 < first_token_divergence(plain, without) < 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_never_compared(value: float) -> None:
    good, bad = torch.tensor([1.0, 2.0]), torch.full((2,), value)
    for cached, uncached in ((good, bad), (bad, good), (bad, bad)):
        answers = (
            Answer("", (1,), 1.0, 1.0, {}, {}, (), "eos", first_logits=one) for one in (cached, uncached)
        )
        with pytest.raises(ModelError, match=LOST.format(1)):
            compare(*answers)
    with pytest.raises(ModelError, match=LOST.format(2)):
        Reading.of_logits(torch.stack([good, bad]))


@pytest.mark.parametrize("speculate", ["off", "on"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("mode", ["cached", "uncached"])
def test_an_answer_ends_in_words_at_the_token_that_is_no_number(
    engine: Engine, lost: dict[str, float], mode: Any, temperature: float, speculate: Any
) -> None:
    prompt = engine.schema(SCHEMA).prompt(PROMPT)
    settings = RunSettings(max_new_tokens=4, temperature=temperature, speculate=speculate)
    lost["one *"] = math.nan
    with pytest.raises(ModelError, match=LOST.format(1)):
        prompt.answer(settings, mode=mode)


def test_a_later_token_that_is_no_number_is_named(engine: Engine, lost: dict[str, float]) -> None:
    prompt = engine.schema(SCHEMA).prompt(PROMPT)
    lost["all 3"] = -math.inf
    with pytest.raises(ModelError, match=LOST.format(3)):
        prompt.answer(RunSettings(max_new_tokens=4, speculate="off"), mode="uncached")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_fidelity_measurement_ends_in_words(engine: Engine, lost: dict[str, float], number: int) -> None:
    """Two passes of the uncached answer, and a third that reads it."""
    prompt = engine.schema(SCHEMA).prompt(PROMPT)
    prompt.answer(RunSettings(max_new_tokens=1))
    lost[f"one {number}"] = math.nan
    with pytest.raises(ModelError, match="invalid number at token"):
        prompt.fidelity(RunSettings(max_new_tokens=2))
