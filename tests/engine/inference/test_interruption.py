"""A long pass that nobody wants any more is left between two layers, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.base.events import Finished, FirstToken, Listener
from engine.engine import Engine
from engine.model.interruption import InterruptedPassError
from engine.store import Store
from tests.drawing import each
from tests.engine.cases import held_in_memory, model_of, prompt_of, schema_of

SCHEMA = f'<schema name="s"><module name="a">{"alpha and more of it. " * 12}</module></schema>'
PROMPT = f"<prompt><a/><user>{'Which letters are there? ' * 12}</user></prompt>"


class Asked:
    """Says after so many questions that nobody wants the answer."""

    def __init__(self, patience: int) -> None:
        self.patience, self.questions = patience, 0

    def __call__(self) -> bool:
        self.questions += 1
        return self.questions > self.patience


def prompt_in(engine: Engine) -> Any:
    return engine.schema(schema_of(SCHEMA)).prompt(prompt_of(PROMPT))


@pytest.mark.parametrize("family", each(["llama-gqa", "gemma2", "falcon"], "gemma2"))
@pytest.mark.parametrize("patience", [0, 1, 2])
@pytest.mark.parametrize("side", ["cached", "uncached"])
def test_what_is_left_leaves_nothing_behind(family: str, patience: int, side: Any, tmp_path: Path) -> None:
    model = model_of(family)
    with Engine(model, Store.open(tmp_path / "alone")) as other:
        alone = prompt_in(other).answer(mode=side, max_new_tokens=6)
        whole = held_in_memory(other)
    with Engine(model, Store.open(tmp_path / "left")) as engine:
        asked = Asked(patience)
        events = list(prompt_in(engine).stream(mode=side, max_new_tokens=6, listener=Listener(stopped=asked)))
        assert asked.questions == patience + 1, "it is asked before each layer, and no more once it is left"
        assert not any(isinstance(event, (FirstToken, Finished)) for event in events)
        for key, segment in held_in_memory(engine).items():
            assert torch.equal(segment.keys, whole[key].keys), "it is there whole or not at all"
            assert torch.equal(segment.values, whole[key].values)
        assert engine.store.stats().segments == len(held_in_memory(engine))
        with engine.computing.step(1) as came:
            assert came, "the turn was given back"
        again = prompt_in(engine).answer(mode=side, max_new_tokens=6)
        assert again.token_ids == alone.token_ids
        assert torch.equal(again.first_logits, alone.first_logits)
        assert not any(part._forward_pre_hooks for part in model.network.module.modules())


def test_a_tail_is_as_it_was_before_a_pass_that_was_left() -> None:
    network = model_of("llama-gqa").network
    tokens, positions = list(range(5, 69)), list(range(64))
    kv, other = (network.kv_cache((), 80) for _ in range(2))
    for one in (kv, other):
        network.forward(tokens[:10], positions[:10], one)
    with pytest.raises(InterruptedPassError), network.interruptible(Asked(1)):
        network.forward(tokens[10:], positions[10:], kv)
    assert kv.length == 10
    assert torch.equal(
        network.forward(tokens[10:], positions[10:], kv), network.forward(tokens[10:], positions[10:], other)
    )
