"""Embeddings equal those of one pass of transformers per text, on every family."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from engine.base.errors import SettingsError
from engine.embeddings.similarity import cosines, spearman
from engine.engine import Engine
from engine.store import Store
from tests.drawing import each
from tests.engine.cases import model_of
from tests.engine.tiny import FAMILIES

TEXTS = ["alpha beta", "a", "beta gamma delta, and a few more words", "alpha beta", "alpha bet"]
FEW = ("llama-gqa", "gemma2", "mistral-swa", "gpt2", "bloom")
CHAT = """<schema name="mine"><system>You rate.</system><user>
Rate: <module name="outer"><module name="inner"><param name="text" len="4"/></module> now.</module>
</user></schema>"""


def one_by_one(engine: Engine, rows: list[tuple[list[int], slice]], pooling: str) -> Any:
    """The embeddings from transformers' own hidden states, one pass for each text."""
    found, states = [], []
    head = engine.model.network.module.get_output_embeddings()
    hook = head.register_forward_pre_hook(lambda _, inputs: states.append(inputs[0][0]))
    for tokens, place in rows:
        engine.model.network.own_logits(tokens)
        found.append(states[-1][place].mean(0) if pooling == "mean" else states[-1][-1])
    hook.remove()
    return nn.functional.normalize(torch.stack(found).float()).numpy()


@pytest.mark.parametrize("family", each(FAMILIES, *FEW))
def test_embeddings_equal_one_pass_per_text(family: str, tmp_path: Path) -> None:
    with Engine(model_of(family), Store.open(tmp_path)) as engine:
        for template in (None, "prompteol", "echo", CHAT):
            for pooling in ("last", "mean"):
                embedder = engine.embedder(pooling, template)
                rows = [embedder.template.around(text) for text in TEXTS]
                want = one_by_one(engine, rows, pooling)
                assert np.abs(embedder.embed(TEXTS).vectors - want).max() < 1e-3, (template, pooling)
        spelled = [engine.model.tokenizer.decode(tokens) for tokens, _ in rows]
        assert "Rate: alpha beta now." in spelled[0]


@pytest.mark.parametrize("family", each(FAMILIES, *FEW))
def test_states_are_the_final_hidden_states_of_transformers(family: str, tmp_path: Path) -> None:
    with Engine(model_of(family), Store.open(tmp_path)) as engine:
        tokens = [[5, 9, 70, 80], [7]]
        with torch.inference_mode():
            module = engine.model.network.module
            engine.model.network.own_logits([5])  # restores the module's own attention
            own = [
                module(torch.tensor([row]), output_hidden_states=True, use_cache=False).hidden_states[-1][
                    0, -1
                ]
                for row in tokens
            ]
        found = engine.embed(tokens, normalize=False)
    assert np.abs(found - torch.stack(own).numpy()).max() < 1e-3


def test_a_template_is_read_from_segments_and_stored_once(tmp_path: Path) -> None:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        engine.embed(TEXTS, template="prompteol")
        (stored,) = engine.store.segments()
        engine.memory_tier.clear()
        passes = []
        network = engine.model.network
        hook = network.module.register_forward_pre_hook(
            lambda _, __, inputs: passes.append(inputs["input_ids"].shape[1]), with_kwargs=True
        )
        engine.embed(TEXTS, template="prompteol")
        hook.remove()
        assert len(engine.store.segments()) == 1
    assert stored["tokens"] == len('This sentence : "') + 1  # the token that begins a text
    around = {f'{text}" means in one word:"' for text in TEXTS}
    assert sum(passes) <= sum(map(len, around))


def test_many_texts_take_several_passes_with_equal_vectors(tmp_path: Path) -> None:
    texts = [f"number {number} " * (number % 4 + 1) for number in range(60)]
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        steps: list[tuple[int, int]] = []
        embedder = engine.embedder("mean")
        together = embedder.embed(texts, lambda done, total, _: steps.append((done, total)))
        alone = np.concatenate([engine.embed(text, "mean") for text in texts])
    assert len(steps) > 2
    assert together.tokens[5] == len(texts[5])
    assert np.abs(together.vectors - alone).max() < 1e-3


def test_dimensions_are_the_leading_ones(tmp_path: Path) -> None:
    with Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine:
        full, short = engine.embed(TEXTS, normalize=False), engine.embed(TEXTS, dimensions=8)
        assert np.abs(np.linalg.norm(short, axis=1) - 1).max() < 1e-5
        assert engine.embed([]).shape == (0, 64)
    want = full[:, :8] / np.linalg.norm(full[:, :8], axis=1, keepdims=True)
    assert np.abs(short - want).max() < 1e-4


@pytest.mark.parametrize(
    ("texts", "options", "says"),
    [
        (["a", ""], {}, "text 2 is empty"),
        ([[]], {}, "text 1 is empty"),
        ([[5], [10**6]], {}, "text 2 has the token 1000000"),
        (["word " * 900], {}, "text 1 has 4500 tokens; 'tiny-llama-gqa' reads at most 2048"),
        (["a"], {"pooling": "max"}, "it must be last or mean"),
        (["a"], {"dimensions": 65}, "from 1 to 64"),
        (["a"], {"template": '<schema name="t"><module name="m">a</module></schema>'}, "has no parameter"),
    ],
)
def test_texts_that_cannot_be_embedded_say_why(texts: Any, options: Any, says: str, tmp_path: Path) -> None:
    with (
        Engine(model_of("llama-gqa"), Store.open(tmp_path)) as engine,
        pytest.raises(SettingsError, match=says),
    ):
        engine.embed(texts, **options)


def test_ranks_of_equal_values_are_their_mean() -> None:
    assert spearman([1, 2, 2, 4], [1, 3, 3, 9]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [2, 1, 4, 3]) == pytest.approx(0.6)
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486833)
    assert spearman([1, 1], [1, 2]) is None
    one = np.array([[1, 0], [1, 1]], np.float32)
    assert cosines(one, one[::-1]) == pytest.approx([2**-0.5, 2**-0.5])
