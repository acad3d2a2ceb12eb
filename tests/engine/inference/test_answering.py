"""The time to the first token, with all that the prompt waits for in it; and how an answer's text begins."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import engine.base.stopwatch
from engine.cache.fetched import Fetched
from engine.engine import Engine
from engine.inference import generate
from engine.inference.run_settings import RunSettings
from engine.inference.sampler import Sampler
from engine.model.model import Model
from engine.store import Store
from tests.engine.cases import model_of
from tests.engine.prompt.chat_templates import FAMILIES, tokenizer
from tests.engine.tiny import tiny_network

SCHEMA = '<schema name="s">Read. <module name="a">alpha</module> <module name="b">beta</module></schema>'
PROMPT = "<prompt><b/><a/>What?</prompt>"


@pytest.mark.parametrize(
    ("repair", "part"), [("none", "load"), ("link:2", "repair"), ("blend:0.5", "repair")]
)
def test_placing_segments_and_choosing_what_is_repaired_are_in_the_time_to_the_first_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repair: Any, part: Any
) -> None:
    """On a clock that moves only there."""
    now = 0.0
    place, prefill = Fetched.place, generate.prefill

    def slow_place(*given: Any) -> Any:
        nonlocal now
        now += 3
        return place(*given)

    def slow_prefill(*given: Any) -> Any:
        nonlocal now
        now += 5
        return prefill(*given)

    with Engine(model_of("llama-gqa", chat=False), Store.open(tmp_path)) as opened:
        prompt = opened.schema(SCHEMA).prompt(PROMPT)
        prompt.answer(RunSettings(max_new_tokens=1))
        monkeypatch.setattr(engine.base.stopwatch, "time", SimpleNamespace(perf_counter=lambda: now))
        monkeypatch.setattr(Fetched, "place", slow_place)
        monkeypatch.setattr(generate, "prefill", slow_prefill)
        answer = prompt.answer(RunSettings(max_new_tokens=1, repair=repair))
    assert answer.timeline_ms[part] == 8000
    assert answer.ttft_ms == pytest.approx(sum(answer.timeline_ms.values()))
    assert answer.ttft_ms >= 8000


@pytest.mark.parametrize("family", ["llama-2", "gemma-2", "phi-3.5", "chatml"])
def test_only_an_answer_to_no_turns_begins_with_the_space_before_its_first_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    """Behind a text it is text; behind a turn, where the tokenizer puts one before all, it is none."""
    made = tokenizer(FAMILIES[family])
    before, both = (
        made(text, add_special_tokens=False)["input_ids"] for text in ("Look at", "Look at the map")
    )
    words = [*both[len(before) :], made.eos_token_id]
    network, script = tiny_network(), list[int]()
    network.resize_token_embeddings(len(made))
    monkeypatch.setattr(Sampler, "choose", lambda *_: script.pop(0))
    with Engine(Model("m", network, made, "m"), Store.open(tmp_path)) as opened:
        alone = made.decode(words, skip_special_tokens=True)
        empty, text = opened.schema("<schema name='s'/>"), opened.schema(SCHEMA)
        for prompt, want in (
            (empty.prompt("<prompt>Look at</prompt>"), " the map"),
            (text.prompt("<prompt><b/></prompt>"), " the map"),
            (empty.prompt("<prompt><user>Look at</user></prompt>"), alone),
        ):
            for mode in ("cached", "uncached"):
                script[:] = [*words, *words]
                assert prompt.answer(mode=mode, speculate="off").text == want  # type: ignore[arg-type]
                assert opened.submit(prompt, mode=mode, speculate="off").result().text == want  # type: ignore[arg-type]
