"""A network that is told what to answer: it does, and guesses are kept as often as they are right."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.told import ToldAnswer
from engine.base.errors import PromptCacheError
from engine.engine import Engine
from engine.model.loading import load

TEXT = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]


def test_an_answer_that_quotes_takes_few_passes_and_others_one_each() -> None:
    model = load("demo", dtype="bf16")
    quoting = ToldAnswer(model, model.tokenizer, [*TEXT, 3], TEXT[:14])
    assert quoting.time("off") > 0
    assert quoting.passes == 13
    assert quoting.time("on") > 0
    assert quoting.passes <= 6
    other = ToldAnswer(model, model.tokenizer, [*TEXT, 3], [30, 40, 31, 50, 32, 60, 33])
    other.time("on")
    assert other.passes == 6


def test_it_says_as_the_bundled_model_does_by_itself(tmp_path: Path) -> None:
    with Engine.open("demo", cache_dir=tmp_path) as engine:
        schema = engine.schema(Path("sample_schemas/documents.pml"))
        prompt = schema.prompt(Path("sample_schemas/documents.prompt.2.pml"))
        answer = prompt.answer(mode="uncached", max_new_tokens=24, speculate="on")
        tokens = list(prompt.tokenized.planned(None).plan.token_ids)
        told = ToldAnswer(engine.model, engine.model.tokenizer, tokens, answer.token_ids)
        told.time("on")
    assert told.passes == pytest.approx(answer.passes, abs=answer.tokens["repeated"] + 1)


def test_what_is_too_short_or_another_models_is_refused() -> None:
    model = load("demo")
    with pytest.raises(PromptCacheError, match="a prompt of 9 tokens"):
        ToldAnswer(model, model.tokenizer, TEXT[:8], [1, 2])
    with pytest.raises(PromptCacheError, match="has no token 99999"):
        ToldAnswer(model, model.tokenizer, TEXT, [1, 99999])
