"""The mean of two models' weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from training.average import averaged


def model(folder: Path, layers: int, seed: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    made = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=16,
            hidden_size=8,
            num_hidden_layers=layers,
            num_attention_heads=2,
            intermediate_size=8,
            max_position_embeddings=16,
        )
    )
    made.save_pretrained(folder)
    return dict(made.state_dict())


def test_every_weight_is_the_mean_of_both(tmp_path: Path) -> None:
    one, other = (model(tmp_path / str(seed), 1, seed) for seed in (1, 2))
    mean = averaged([tmp_path / "1", tmp_path / "2"]).state_dict()
    assert mean.keys() == one.keys()
    for name, weight in mean.items():
        torch.testing.assert_close(weight, (one[name] + other[name]) / 2)
    assert not torch.equal(mean["lm_head.weight"], one["lm_head.weight"])


def test_models_of_two_shapes_have_no_mean(tmp_path: Path) -> None:
    model(tmp_path / "one", 1, 0)
    model(tmp_path / "two", 2, 0)
    with pytest.raises(ValueError, match="one shape"):
        averaged([tmp_path / "one", tmp_path / "two"])
