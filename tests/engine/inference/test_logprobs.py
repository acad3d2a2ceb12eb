"""Log-probabilities of prompts and answers equal those of one pass over all tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.base.errors import SettingsError
from engine.base.events import Delta
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.prompt.window import TooLongError
from engine.store import Store
from tests.engine.cases import model_of

TOKENS = [5, 9, 200, 17, 3] * 60  # more than the rows of a pass


def table_of(engine: Engine, tokens: list[int]) -> torch.Tensor:
    network = engine.model.network
    kv = network.kv_cache((), len(tokens))
    logits = network.forward(tokens, range(len(tokens)), kv, keep=len(tokens))
    return torch.log_softmax(logits.float(), -1)


def test_a_prompt_and_its_continuation_are_scored(tmp_path: Path) -> None:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        whole = engine.continue_tokens(TOKENS, max_new_tokens=5, scored=True, logprobs=3)
        only = engine.continue_tokens(TOKENS, answer=False, scored=True, logprobs=3)
        plain = engine.continue_tokens(TOKENS, max_new_tokens=5)
        tokens = [*TOKENS, *whole.token_ids]
        table = table_of(engine, tokens)
    assert [one.token for one in (*whole.scores, *whole.logprobs)] == tokens[1:]
    for row, one in zip(table, (*whole.scores, *whole.logprobs), strict=False):
        assert one.logprob == pytest.approx(float(row[one.token]), abs=1e-4)
        values, _ = row.topk(3)
        assert [logprob for _, logprob in one.top] == pytest.approx(values.tolist(), abs=1e-4)
    assert only.scores == whole.scores
    assert (only.text, only.token_ids, only.stopped) == ("", (), "length")
    assert (plain.token_ids, plain.scores, plain.logprobs) == (whole.token_ids, (), ())


def test_an_answer_of_the_batch_has_those_of_its_tokens(tmp_path: Path) -> None:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        prompt = engine.schema('<schema name="s">One two three four.</schema>').prompt(
            "<prompt> Five</prompt>"
        )
        ticket = engine.submit(prompt, logprobs=2, max_new_tokens=12)
        given = [one for event in ticket.events() if isinstance(event, Delta) for one in event.logprobs]
        answer = ticket.result()
        read = prompt.reading(answer.token_ids, RunSettings(), "uncached").log_probabilities
    assert given == list(answer.logprobs)
    assert [one.token for one in given] == list(answer.token_ids)
    for row, one in zip(read, given, strict=True):
        assert one.logprob == pytest.approx(float(row[one.token]), abs=2e-3)
        assert one.top[0][0] == int(row.argmax())


@pytest.mark.parametrize(
    ("tokens", "error", "says"),
    [
        ([], SettingsError, "no tokens"),
        ([1, -1], SettingsError, "Token 1 of the prompt is -1"),
        ([10**9], SettingsError, "must be 0 to"),
        ([1] * 100_000, TooLongError, "reads at most"),
    ],
)
def test_tokens_that_cannot_be_read_say_why(tokens, error, says, tmp_path: Path) -> None:
    with (
        Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine,
        pytest.raises(error, match=says),
    ):
        engine.continue_tokens(tokens)
