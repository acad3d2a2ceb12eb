"""The state of one answer: a token a step, whoever steps it, and in whatever order with others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.base.stopwatch import Stopwatch
from engine.engine import Engine
from engine.inference.generation import Sequence
from engine.inference.prefill import Prefill, prefill, whole
from engine.inference.run_settings import RunSettings
from engine.inference.text_stream import TextStream
from engine.store import Store
from tests.drawing import each
from tests.engine.cases import Case, model_of, plan_of, prompt_of, schema_of

SCHEMA = """<schema name="s"><system>You plan.</system><user>Read.
<module name="a">alpha and more of it</module>
<module name="b">beta</module></user><assistant>Done.</assistant></schema>"""
PROMPTS = ("<prompt><a/><b/><user>Well?</user></prompt>", "<prompt><b/><a/><user>And so?</user></prompt>")
PARAMS = RunSettings(max_new_tokens=9, temperature=1.5, seed=4)


@pytest.fixture(params=each(["llama-gqa", "gemma2", "falcon"], "gemma2"))
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    opened = Engine(model_of(request.param), Store.open(tmp_path))
    yield opened
    opened.close()


def prefilled(engine: Engine, number: int, *, cached: bool) -> Prefill:
    schema, prompt = schema_of(SCHEMA), prompt_of(PROMPTS[number])
    if not cached:
        return whole(plan_of(engine, schema, prompt))
    case = Case(engine, schema, prompt)
    return prefill(case.model, case.plan, case.uses, case.placements, "none")


def finished(sequence: Sequence) -> tuple[list[int], str]:
    text = ""
    while sequence.ending is None:
        text += sequence.step().text
    assert text == sequence.text
    return sequence.token_ids, text


def test_a_sequence_answers_as_a_prompt_does(engine: Engine) -> None:
    prompt = engine.schema(SCHEMA).prompt(PROMPTS[0])
    for side in ("cached", "uncached"):
        answer = prompt.answer(PARAMS, mode=side)
        sequence = Sequence(engine.model, prefilled(engine, 0, cached=side == "cached"), PARAMS)
        tokens, text = finished(sequence)
        assert (tuple(tokens), text, sequence.ending) == (answer.token_ids, answer.text, answer.stopped)
        assert sequence.first_logits is not None
        assert answer.first_logits is not None
        assert torch.equal(sequence.first_logits, answer.first_logits)


def test_a_step_is_one_token_with_its_text_and_its_time(engine: Engine) -> None:
    clock = Stopwatch()
    sequence = Sequence(engine.model, prefilled(engine, 0, cached=True), PARAMS, clock)
    assert (sequence.token_ids, sequence.ending, clock.parts) == ([], None, {})
    steps = [sequence.step()]
    assert list(clock.parts) == ["prefill", "sample"]
    counted = clock.total
    while sequence.ending is None:
        assert steps[-1].ending is None
        steps.append(sequence.step())
        assert sequence.logits is not None
        assert sequence.logits.shape == (engine.model.network.config.vocab_size,)
    assert [step.token for step in steps] == sequence.token_ids
    assert steps[-1].ending == sequence.ending
    assert len(sequence.step_ms) == len(steps) - 1
    assert clock.total == counted, "the time to the first token ends there"
    with pytest.raises(AssertionError, match="ended"):
        sequence.step()


def test_the_text_of_a_token_is_in_its_time(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    sequence = Sequence(engine.model, prefilled(engine, 0, cached=False), RunSettings(max_new_tokens=3))
    now = 0.0
    monkeypatch.setattr("engine.inference.generation.time.perf_counter", lambda: now)
    plain = TextStream.add

    def slow(self: Any, token: int) -> str:
        nonlocal now
        now += 5.0
        return plain(self, token)

    monkeypatch.setattr(TextStream, "add", slow)
    finished(sequence)
    assert sequence.step_ms == [5000.0] * (len(sequence.token_ids) - 1)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a sequence whose tokens are given, with what would have ended it."""

    def make(engine: Engine, text: str, params: RunSettings) -> Sequence:
        """In the text | is the token that begins a prompt, and ~ is half a character."""
        spelled = engine.model.tokenize(text)
        half, own = engine.model.tokenize("é")[0], engine.model.tokenizer
        given = {engine.model.tokenize("|")[0]: own.bos_token_id, engine.model.tokenize("~")[0]: half}
        tokens = iter([*(given.get(token, token) for token in spelled), own.eos_token_id])
        monkeypatch.setattr("engine.inference.sampler.Sampler.choose", lambda *_: next(tokens))
        sequence = Sequence(engine.model, prefilled(engine, 0, cached=True), params)
        finished(sequence)
        return sequence

    return make


@pytest.mark.parametrize(
    ("text", "options", "ending", "shown"),
    [
        ("ab", {}, "eos", "ab"),
        ("abcd", {"max_new_tokens": 3}, "length", "abc"),
        ("abcd", {"stop": ("c",)}, "stop", "ab"),
        ("abcd", {"stop": ("c",), "max_new_tokens": 3}, "stop", "ab"),
        ("abcd", {"stop": ("cx",), "max_new_tokens": 3}, "length", "abc"),
        ("abc", {"stop": ("cx",)}, "eos", "abc"),
        ("é", {"max_new_tokens": 1}, "length", "\ufffd"),
        ("ab~", {"stop": ("b\ufffd",)}, "stop", "a"),
        ("ab|cd", {}, "eos", "abcd"),
        ("ab|cd", {"stop": ("<s>",)}, "stop", "ab"),
        ("ab|cd", {"stop": ("</s>",)}, "eos", "abcd"),
        ("|ab", {"stop": ("<s>",)}, "stop", ""),
    ],
)
def test_how_an_answer_ends(
    tmp_path: Path, ended: Any, text: str, options: dict[str, Any], ending: str, shown: str
) -> None:
    engine = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    sequence = ended(engine, text, RunSettings(**options))
    assert (sequence.ending, sequence.text, sequence.cut_short) == (ending, shown, False)
    assert (sequence.stop is not None) == (ending == "stop")
    engine.close()


def test_the_context_window_cuts_an_answer_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(model_of("llama-gqa"), Store.open(tmp_path))
    prompt = prefilled(engine, 0, cached=False)
    monkeypatch.setattr(engine.model, "context_length", prompt.end + 2)
    monkeypatch.setattr("engine.inference.sampler.Sampler.choose", lambda *_: 50)
    sequence = Sequence(engine.model, prompt, RunSettings(max_new_tokens=3))
    finished(sequence)
    assert (sequence.ending, len(sequence.token_ids), sequence.room, sequence.cut_short) == (
        "length",
        2,
        2,
        True,
    )
    engine.close()
