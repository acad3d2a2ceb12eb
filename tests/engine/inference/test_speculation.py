"""Several tokens a pass: the text of one token a pass, for fewer passes, and never for many more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.attention.kernels import AttentionParams
from engine.base.events import Delta, Finished
from engine.base.segment import Placement, Segment
from engine.engine import Engine
from engine.inference.generation import Sequence
from engine.inference.prefill import Prefill, prefill, whole
from engine.inference.run_settings import RunSettings
from engine.inference.sampler import Sampler
from engine.inference.speculation import FEW, MANY, ROW_COST, Speculation
from engine.inference.text_stream import TextStream
from engine.kv_cache.protocol import KVCache, Rowwise
from engine.kv_cache.segment_kv_cache import SegmentKVCache
from engine.model.batch_invariance import RowRounding
from engine.model.model import Model
from engine.model.network import Network
from engine.store import Store
from tests.drawing import EVERY, each
from tests.engine.cases import Case, apart, model_of, plan_of, prompt_of, schema_of
from tests.engine.tiny import FAMILIES, tiny_network

SCHEMA = """<schema name="s"><system>You quote.</system><user>Read.
<module name="a">alpha beta gamma alpha beta gamma alpha</module>
<module name="b">beta alpha beta gamma delta</module>
<module name="c">gamma delta alpha</module></user><assistant>Done.</assistant></schema>"""
PROMPT = "<prompt><a/><b/><c/><user>alpha beta?</user></prompt>"


@pytest.fixture(params=each(FAMILIES, "llama-gqa", "mistral-swa", "gpt2", "bloom"))
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(model_of(request.param), Store.open(tmp_path))
    yield opened
    opened.close()


@pytest.fixture
def llama(tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    yield opened
    opened.close()


def prefilled(engine: Engine, *, cached: bool) -> Prefill:
    schema, prompt = schema_of(SCHEMA), prompt_of(PROMPT)
    if not cached:
        return whole(plan_of(engine, schema, prompt))
    case = Case(engine, schema, prompt)
    return prefill(case.model, case.plan, case.uses, case.placements, "none")


def answered(model: Model, prompt: Prefill, **settings: Any) -> Sequence:
    sequence = Sequence(model, prompt, RunSettings(**settings))
    while sequence.ending is None:
        sequence.step()
    return sequence


def told(sequence: Sequence) -> tuple[Any, ...]:
    return sequence.token_ids, sequence.text, sequence.ending


SETTINGS: list[dict[str, Any]] = [
    {"max_new_tokens": 24},
    {"max_new_tokens": 11, "repetition_penalty": 1.3},
    {"max_new_tokens": 20, "repetition_penalty": 0.7},
]


def test_at_temperature_0_the_text_is_that_of_one_token_a_pass(engine: Engine) -> None:
    accepted = 0
    for cached, settings in zip((True, False, True), SETTINGS, strict=True):
        prompt = prefilled(engine, cached=cached)
        plain = answered(engine.model, prompt, speculate="off", **settings)
        guessed = answered(engine.model, prompt, **settings)
        assert told(guessed) == told(plain)
        assert (plain.passes, plain.guessed["drafted"]) == (len(plain.token_ids) - 1, 0)
        accepted += guessed.guessed["accepted"]
    assert accepted, "nothing was tried"


@pytest.mark.parametrize("ending", ["stop", "eos", "length"])
def test_an_answer_ends_where_it_ends_with_one_token_a_pass(
    ending: str, llama: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = prefilled(llama, cached=True)
    plain = answered(llama.model, prompt, speculate="off", max_new_tokens=40)
    for place in range(6, 14 if EVERY else 9):
        settings: dict[str, Any] = {"max_new_tokens": 40}
        if ending == "stop":
            settings["stop"] = (plain.text[place : place + 2],)
        elif ending == "length":
            settings["max_new_tokens"] = place
        else:
            monkeypatch.setattr(Model, "end_tokens", frozenset({plain.token_ids[place]}))
        pair = [answered(llama.model, prompt, speculate=which, **settings) for which in ("off", "on")]
        assert told(pair[0]) == told(pair[1])
        assert pair[1].ending == ending


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_where_rounding_may_decide_the_text_is_still_the_same(
    llama: Engine, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every choice of a pass of several rows is in doubt, so all tokens are computed again by themselves."""
    model = Model("m", tiny_network("llama-gqa").to(dtype), llama.model.tokenizer, "f")
    monkeypatch.setattr(RowRounding, "bound", 1e9)
    prompt = prefilled(llama, cached=False)
    plain = answered(model, prompt, max_new_tokens=30, speculate="off")
    guessed = answered(model, prompt, max_new_tokens=30, speculate="on")
    assert told(guessed) == told(plain)
    assert guessed.guessed["drafted"]
    assert 0 < guessed.repeated <= len(guessed.token_ids)
    assert plain.logits is not None
    assert guessed.logits is not None
    assert torch.equal(guessed.logits, plain.logits), "the last choice is that of single tokens"


def test_a_doubt_late_in_an_answer_holds_no_turn_for_longer_than_a_pass(
    llama: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tokens since the first guess are computed again, one a step: it can be stopped meanwhile."""
    prompt = prefilled(llama, cached=False)
    plain = answered(llama.model, prompt, speculate="off", max_new_tokens=120)
    sequence = Sequence(llama.model, prompt, RunSettings(max_new_tokens=120, speculate="on"))
    doubtful, sure = False, Sampler.sure
    monkeypatch.setattr(Sampler, "sure", lambda *given: not doubtful and sure(*given))
    silent = []
    while sequence.ending is None:
        doubtful = doubtful or len(sequence.token_ids) > 80
        before = sequence.passes, len(sequence.token_ids)
        step = sequence.step()
        assert sequence.passes - before[0] <= 1
        assert (step.token is None) == (len(sequence.token_ids) == before[1])
        if step.token is None:
            silent.append(before[1])
    assert len(silent) > 20, "nothing was tried"
    assert sequence.repeated <= len(sequence.token_ids)
    assert len(sequence.step_ms) == len(sequence.token_ids) - 1
    assert told(sequence) == told(plain)


def test_an_answer_that_computes_tokens_again_can_be_stopped_and_has_its_text(
    llama: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RowRounding, "bound", 1e9)
    prompt = llama.schema(SCHEMA).prompt(PROMPT)
    events = list(prompt.stream(max_new_tokens=40, speculate="on"))
    texts = [event.text for event in events if isinstance(event, Delta)]
    (answer,) = [event.answer for event in events if isinstance(event, Finished)]
    assert "" in texts, "nothing was tried"
    assert "".join(texts) == answer.text


def test_tokens_behind_a_stop_text_are_not_counted_as_guessed_right(
    llama: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = prefilled(llama, cached=True)
    plain = answered(llama.model, prompt, speculate="off", max_new_tokens=40)
    monkeypatch.setattr(Speculation, "draft", lambda _, answer, __: plain.token_ids[len(answer) :][:MANY])

    def stopping(stream: TextStream, _: int) -> str:
        stream.stopped = True
        return ""

    found = Sequence(llama.model, prompt, RunSettings(max_new_tokens=40, speculate="on"))
    for _ in range(3):
        found.step()
    monkeypatch.setattr(TextStream, "add", stopping)
    assert found.step().ending == "stop"
    assert found.guessed == {"drafted": MANY, "accepted": 3, "repeated": 0}


@pytest.mark.parametrize("family", each(["llama-gqa", "gemma2", "gpt2"], "gpt2"))
def test_in_bf16_the_text_is_the_same(family: str, llama: Engine) -> None:
    model = Model("m", tiny_network(family).to(torch.bfloat16), llama.model.tokenizer, "f")
    prompt = prefilled(llama, cached=False)
    for settings in SETTINGS:
        plain, *others = (
            answered(model, prompt, speculate=which, **settings) for which in ("off", "auto", "on")
        )
        assert [told(one) for one in others] == [told(plain)] * 2


def test_draws_are_those_of_one_token_a_pass(llama: Engine) -> None:
    """A guess is accepted where the draw is that token: the distribution is untouched, and so is the seed."""
    prompt = prefilled(llama, cached=True)
    accepted = 0
    for seed in range(6) if EVERY else (1, 3):
        settings = {"max_new_tokens": 30, "temperature": 0.2, "top_k": 4, "seed": seed}
        plain, auto, on = (
            answered(llama.model, prompt, speculate=which, **settings) for which in ("off", "auto", "on")
        )
        assert told(on) == told(plain)
        assert auto.speculation is None
        accepted += on.guessed["accepted"]
    assert accepted


@pytest.mark.parametrize("guess", range(3))
def test_whatever_is_guessed_the_distribution_stays(
    guess: int, llama: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs of tokens, each drawn by the logits that belong to the one before it, over many seeds."""
    after = torch.tensor([[2.0, 1.0, 0.5], [0.1, 0.7, 2.0], [0.0, 0.0, 0.0]])

    def forward(_: Network, token_ids: Any, positions: Any, kv: KVCache, keep: int, **__: Any) -> Any:
        kv.begin(positions)
        kv.commit()
        return after[list(token_ids)][-keep:]

    monkeypatch.setattr(Network, "forward", forward)
    monkeypatch.setattr(Speculation, "draft", lambda *_: [guess, 1, 2])
    monkeypatch.setattr(Model, "end_tokens", frozenset())
    prompt, pairs = Prefill((), [0], [0], [0], 1), torch.zeros(3, 3)
    for seed in range(1500 if EVERY else 500):
        params = RunSettings(max_new_tokens=9, temperature=1.0, speculate="on", seed=seed)
        sequence = Sequence(llama.model, prompt, params)
        steps = [sequence.step() for _ in range(3)]
        pairs[steps[1].token, steps[2].token] += 1
    share = torch.softmax(after, -1)
    assert (pairs / pairs.sum() - (share[0] @ share)[:, None] * share).abs().max() < 0.05


def test_the_keys_of_refused_guesses_are_forgotten(engine: Engine) -> None:
    """What a cache has forgotten leaves no trace: not in the logits, and not in the windows."""
    prompt = prefilled(engine, cached=True)
    network = engine.model.network
    found = []
    for refused in ([], [80, 81, 82]):
        kv = network.kv_cache(prompt.placements, len(prompt.token_ids) + 10)
        network.forward(prompt.token_ids, prompt.positions, kv)
        kv.fold()
        for place, token in enumerate([70, 71, 72, 73, 74], prompt.end):
            rows = [token, *refused]
            logits = network.forward(rows, range(place, place + len(rows)), kv, len(rows), rowwise=Rowwise())
            kv.truncate(kv.length - len(refused))
        found.append((logits[0], *kv.tail))
    for plain, several in zip(*found, strict=True):
        assert plain.shape == several.shape
        assert apart(plain, several) <= 1e-4


@pytest.mark.parametrize("window", [None, 3])
def test_rows_one_by_one_attend_by_the_products_of_single_passes(window: int | None) -> None:
    generator = torch.Generator().manual_seed(1)

    def drawn(heads: int, rows: int) -> torch.Tensor:
        return torch.randn(heads, rows, 8, generator=generator)

    segment = Segment("s", (1,) * 5, drawn(2, 5)[None], drawn(2, 5)[None])
    states = drawn(4, 6), drawn(2, 6), drawn(2, 6)
    rules = AttentionParams(0.3, window=window, softcap=4.0)
    found = []
    for cut in ([1] * 6, [2, 4], [2, 3, 1]):
        kv = SegmentKVCache([Placement(segment, 0, 5, 0)], rotaries=(None,), capacity=6)
        out, at = [], 0
        for rows in cut:
            kv.begin(range(5 + at, 5 + at + rows), rowwise=Rowwise())
            query, key, value = (one[:, at : at + rows] for one in states)
            out.append(kv.attend(0, query, key, value, rules))
            kv.commit()
            at += rows
        found.append(torch.cat(out, 1))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_guesses_that_fail_cost_a_small_share() -> None:
    guesses = Speculation([1, 2, 3, 4, 5, 1, 2])
    answer, rows = [1, 2], 0
    while len(answer) < 2000:
        drafted = guesses.draft(answer, 100)
        rows += len(drafted)
        answer += [9, 1, 2]
        if drafted:
            guesses.judge(len(drafted), 0, len(answer))
    assert rows == guesses.drafted > FEW
    assert rows * ROW_COST <= 0.02 * len(answer)


def test_guesses_grow_where_they_hold_and_leave_room() -> None:
    guesses = Speculation([1, 2, 3, 4, 5, 6, 7, 8] * 4)
    assert len(guesses.draft([1, 2], 100)) == FEW
    guesses.judge(FEW, FEW, 6)
    assert len(guesses.draft([1, 2, 3, 4, 5, 6], 100)) == MANY
    assert len(guesses.draft([1, 2, 3, 4, 5, 6], MANY - 1)) == FEW
    assert guesses.draft([1, 2, 3, 4, 5, 6], FEW - 1) == []
    guesses.judge(MANY, 1, 8)
    assert len(guesses.draft([1, 2, 3, 4, 5, 6, 7, 8], 100)) == FEW


def test_tokens_computed_again_stop_the_guessing_for_as_long_as_they_cost() -> None:
    guesses = Speculation([1, 2, 3, 4, 5, 6, 7, 8] * 4)
    answer = [1, 2, 3, 4]
    assert guesses.draft(answer, 100)
    guesses.judge(FEW, 2, 6)
    guesses.repeat(6, 6)
    assert guesses.draft([*answer, 5, 6], 100) == []
    assert guesses.draft([1, 2, 3, 4, 5, 6, 7, 8] * 16, 100)


def test_an_answer_says_what_was_guessed(llama: Engine) -> None:
    prompt = llama.schema(SCHEMA).prompt(PROMPT)
    plain = prompt.answer(max_new_tokens=40, speculate="off")
    guessed = prompt.answer(max_new_tokens=40)
    assert guessed.text == plain.text
    assert plain.passes == plain.tokens["generated"] - 1
    assert (plain.tokens["drafted"], plain.tokens["accepted"], plain.tokens["repeated"]) == (0, 0, 0)
    assert 0 < guessed.tokens["accepted"] <= guessed.tokens["drafted"]
    assert guessed.passes < plain.passes
    assert guessed.to_json()["passes"] == guessed.passes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_scores_far_from_zero_are_rounded_by_their_size(llama: Engine, dtype: torch.dtype) -> None:
    """A number that all of them share changes no choice, and makes what distinguishes them coarser."""
    rows = RowRounding(Model("m", tiny_network("llama-gqa").to(dtype), llama.model.tokenizer, "f").network)
    scores = torch.linspace(-3, 3, 97)
    assert rows.of(scores) == pytest.approx(rows.bound * float(scores.std()))
    assert rows.of(scores + 1e5) >= 1e5 * torch.finfo(dtype).eps > rows.of(scores)
