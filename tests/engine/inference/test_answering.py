"""The time to the first token: all that the prompt waits for is in it, by part."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import engine.stopwatch
from engine.cache.fetched import Fetched
from engine.cache.store import Store
from engine.engine import Engine
from engine.inference import answering
from engine.inference.params import RunSettings
from tests.engine.cases import model_of

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
    place, prefill = Fetched.place, answering.prefill

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
        monkeypatch.setattr(engine.stopwatch, "time", SimpleNamespace(perf_counter=lambda: now))
        monkeypatch.setattr(Fetched, "place", slow_place)
        monkeypatch.setattr(answering, "prefill", slow_prefill)
        answer = prompt.answer(RunSettings(max_new_tokens=1, repair=repair))
    assert answer.timeline_ms[part] == 8000
    assert answer.ttft_ms == pytest.approx(sum(answer.timeline_ms.values()))
    assert answer.ttft_ms >= 8000
