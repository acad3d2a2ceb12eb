"""Models that cannot be used are refused in words, before their weights are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers as t

from engine.base.errors import ModelError
from engine.checkpoint.synthetic import byte_tokenizer
from engine.model.loading import load
from tests.engine.tiny import FAMILIES, mla, tiny_model, tiny_network

_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 320}


def folder_with(folder: Path, config: t.PreTrainedConfig) -> str:
    """A model's folder whose weights cannot be read: who tries fails otherwise than expected."""
    config.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    (folder / "model.safetensors").write_bytes(b"these are no weights")
    return str(folder)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (lambda: t.MambaConfig(**_SMALL), "has a recurrent state"),
        (lambda: t.RwkvConfig(**_SMALL), "has a recurrent state"),
        (lambda: t.JambaConfig(**_SMALL, num_attention_heads=4), "has a recurrent state"),
        (lambda: t.RecurrentGemmaConfig(**_SMALL, num_attention_heads=4), "has a recurrent state"),
        (lambda: t.T5Config(d_model=32, num_layers=2, vocab_size=320), "encoder-decoder"),
        (lambda: t.CLIPConfig(), "not a causal language model"),
    ],
)
def test_what_cannot_be_used_is_refused_before_weights_are_read(config, words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=words):
        load(folder_with(tmp_path, config()))


def test_code_of_a_model_is_not_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    folder = folder_with(tmp_path / "m", t.LlamaConfig(**_SMALL, num_attention_heads=4))
    path = Path(folder) / "config.json"
    given = json.loads(path.read_text())
    given |= {"model_type": "unheard-of", "auto_map": {"AutoConfig": "mine.Config"}}
    path.write_text(json.dumps(given))
    (Path(folder) / "mine.py").write_text(f"open({str(ran)!r}, 'w')\nclass Config: pass\n")
    with pytest.raises(ModelError, match="needs Python code from its folder, which is not supported"):
        load(folder)
    assert not ran.exists()


def test_a_model_that_neither_path_reproduces_is_refused_with_what_was_found(tmp_path: Path) -> None:
    t.DeepseekV3ForCausalLM(mla()).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"cannot answer .*segments: .*dense: ") as refused:
        load(str(tmp_path))
    assert "Use a model of another family" in str(refused.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_probe_says_what_it_found(family: str) -> None:
    probe = tiny_model(family).probe
    assert max(probe.checks.values()) < 1e-4
    assert ("moved segment" in probe.checks) == probe.relocatable
    assert probe.to_json()["summary"] == probe.summary
    assert ("cannot be moved" in probe.summary) != probe.relocatable


def test_a_window_that_cannot_be_applied_bounds_the_context() -> None:
    """The dense path applies no windows, so a model that declares one is exact up to its length only."""
    network = tiny_network("falcon")
    network.config.sliding_window = 40
    from engine.model.model import Model

    model = Model("falcon", network, byte_tokenizer(), "f")
    assert model.probe.exact_up_to == 40
    assert model.context_length == 40
    assert "exact up to 40 tokens" in model.probe.summary


def test_gpt_neo_is_exact_up_to_its_window() -> None:
    config = t.GPTNeoConfig(
        hidden_size=64,
        num_layers=2,
        num_heads=4,
        vocab_size=320,
        attention_types=[[["global", "local"], 1]],
        window_size=30,
    )
    config._attn_implementation = "eager"
    from engine.model.model import Model

    model = Model("neo", t.GPTNeoForCausalLM(config).eval(), byte_tokenizer(), "f")
    assert (model.path, model.relocatable, model.context_length) == ("dense", False, 30)
