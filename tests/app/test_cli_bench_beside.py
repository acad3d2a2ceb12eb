"""`pml bench batch --beside`: the same prompts by llama.cpp's slots, or why not. No times."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import batch, batch_beside
from benchmarks.batch_beside import common_beginning
from benchmarks.crowd import Size
from benchmarks.peers import llamacpp, llamacpp_slots
from benchmarks.peers.peer import Shape
from benchmarks.turns import Way
from engine.base.errors import PromptCacheError
from tests.engine.tiny import save_tiny

SMALL = Size(shared=40, modules=2, own=6, new=4)


class Standing:
    """Other software that takes the same time whatever it is asked."""

    def __init__(self, kinds: dict[str, list[list[int]]]) -> None:
        self.kinds = kinds

    def ways(self) -> list[Way]:
        return [Way(f"llama.cpp:{kind}", lambda: 500.0) for kind in self.kinds]

    def settings(self) -> dict[str, str]:
        return {f"llama.cpp:{kind}": "with flash attention" for kind in self.kinds}

    def answers(self, kind: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(first_ms=70.0 + number) for number in range(len(self.kinds[kind]))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("model"), chat=False))


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the other software was given; one is here that computes nothing."""
    found: dict[str, Any] = {}

    @contextmanager
    def opened(shape: Shape, held: list[int], kinds: dict[str, list[list[int]]]) -> Iterator[Standing]:
        found.update(shape=shape, held=held, kinds=kinds)
        yield Standing(kinds)

    monkeypatch.setattr(llamacpp, "missing", lambda: "")
    monkeypatch.setattr(llamacpp, "version", lambda: "llama-cpp-python 9")
    monkeypatch.setattr(llamacpp_slots, "opened", opened)
    return found


def test_both_sides_answer_prompts_of_one_form(folder: str, given: dict[str, Any]) -> None:
    told = batch.run(folder, SMALL, prompts=(1, 2), repeats=2, beside=True)["beside"]
    assert (told["absent"], told["version"], told["prompts"]) == ("", "llama-cpp-python 9", 2)
    names = {"batch", "batch_reordered", "llama.cpp:batch", "llama.cpp:batch_reordered"}
    assert set(told["median_ms"]) == set(told["tokens_per_s"]) == set(told["first_ms"]) == names
    assert told["tokens_per_s"]["llama.cpp:batch"] == pytest.approx(1000 * 2 * 4 / 500)
    assert told["first_ms"]["llama.cpp:batch"] == 70.5
    for kind in ("batch", "batch_reordered"):
        assert told["first_ms"][kind] <= max(told["median_ms"].values())
        assert told["ratios"][kind]["ratio"] == pytest.approx(500 / told["median_ms"][kind])
    shape, held, kinds = given["shape"], given["held"], given["kinds"]
    assert (shape.cached, shape.modules, shape.new, shape.answer, shape.dtype) == (40, 2, 6, 4, "fp32")
    assert [len(prompts) for prompts in kinds.values()] == [2, 2]
    assert all(prompt[: len(held)] == held for prompt in kinds["batch"])
    assert 30 < len(held) < min(len(prompt) for prompt in kinds["batch"])


def test_what_prompts_begin_with() -> None:
    assert common_beginning([[1, 2, 3, 4], [1, 2, 5], [1, 2, 3]], 1) == [1, 2]
    assert common_beginning([[1, 2], [1, 2, 5]], 1) == [1, 2]
    assert common_beginning([[1, 2, 3, 4]], 3) == [1]
    assert common_beginning([[1, 2]], 3) == []


@pytest.mark.parametrize(
    ("quantize", "device", "said"),
    [("int8", "cpu", "leave out --quantize"), ("none", "cuda:0", "--device cpu")],
)
def test_what_is_no_comparison_is_said(quantize: str, device: str, said: str, given: dict[str, Any]) -> None:
    crowd: Any = SimpleNamespace(model=SimpleNamespace(device=device))
    told = batch_beside.beside(crowd, "m", quantize, 2, 1, 0, lambda _: None)
    assert said in told["absent"]
    assert not given


@pytest.mark.usefixtures("place")
def test_the_command_says_who_is_faster_or_what_is_missing(
    run_pml: Callable[..., SimpleNamespace],
    folder: str,
    given: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ("bench", "batch", "--model", folder, "--prompts", "2", "--shared", "40", "--modules", "2")
    words += ("--own", "6", "--new", "4", "--repeats", "1")
    text = run_pml(*words, "--beside").out
    assert "llama-cpp-python 9, beside batch, 2 prompts: takes " in text
    assert "with flash attention" in text
    assert json.loads(run_pml(*words, "--json").out)["beside"] is None

    def fails(*_: Any) -> Any:
        raise PromptCacheError("there is no room")

    monkeypatch.setattr(llamacpp_slots, "opened", fails)
    assert "llama.cpp was not measured: it failed: there is no room" in run_pml(*words, "--beside").out
    monkeypatch.setattr(llamacpp, "missing", lambda: "pip install it")
    assert "llama.cpp was not measured: pip install it" in run_pml(*words, "--beside").out
