"""Tiny models with random weights, of every family that the engine takes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
import transformers as t

from engine.checkpoint.synthetic import byte_tokenizer
from engine.model.long_context_check import DECLARED
from engine.model.model import Model
from engine.model.network import Network
from engine.model.probe import Probe, probe

CHATML = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
DATED = (  # one that writes the day
    "{% if not date_string is defined %}{% if strftime_now is defined %}"
    "{% set date_string = strftime_now('%d %b %Y') %}{% else %}{% set date_string = '26 Jul 2024' %}"
    "{% endif %}{% endif %}{{ bos_token }}Today: {{ date_string }}\n" + CHATML.removeprefix("{{ bos_token }}")
)
_SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "intermediate_size": 96,
    "vocab_size": 320,
    "max_position_embeddings": 2048,
}
_GQA = {**_SIZES, "num_key_value_heads": 2}


def _llama3() -> Any:
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    }
    return t.LlamaConfig(**_GQA, rope_parameters=scaling)


def _yarn() -> Any:
    scaling = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 512}
    return t.LlamaConfig(**_GQA, rope_parameters=scaling)


_MIXED = {"sliding_window": 9, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
_OLD = {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 320, "n_positions": 2048}
_FALCON = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 320}


def _gpt_oss() -> Any:
    scaling = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 512,
    }
    experts = {"num_local_experts": 2, "num_experts_per_tok": 1}
    return t.GptOssConfig(**_GQA, **_MIXED, **experts, head_dim=16, rope_parameters=scaling, **_IDS)


_IDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}

_EXPERTS = {"num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 32}
_JETMOE = {**_GQA, "kv_channels": 16, "num_key_value_heads": 4}

# Read by segments wherever they stand.
SEGMENTS: dict[str, Callable[[], Any]] = {
    "llama": lambda: t.LlamaConfig(**_SIZES),
    "llama-gqa": lambda: t.LlamaConfig(**_GQA),
    "llama3-scaling": _llama3,
    "yarn": _yarn,
    "mistral": lambda: t.MistralConfig(**_GQA, sliding_window=None),
    "mistral-swa": lambda: t.MistralConfig(**_GQA, sliding_window=9),
    "mixtral": lambda: t.MixtralConfig(**_GQA, num_local_experts=2),
    "qwen2": lambda: t.Qwen2Config(**_GQA),
    "qwen2-swa": lambda: t.Qwen2Config(
        **_GQA, use_sliding_window=True, sliding_window=9, max_window_layers=1
    ),
    "qwen3": lambda: t.Qwen3Config(**_GQA, head_dim=16),
    "phi": lambda: t.PhiConfig(**_SIZES),
    "phi3": lambda: t.Phi3Config(**_GQA, **_IDS),
    "gpt-neox": lambda: t.GPTNeoXConfig(**_SIZES),
    "olmo": lambda: t.OlmoConfig(**_GQA, **_IDS),
    "olmo2": lambda: t.Olmo2Config(**_GQA, **_IDS),
    "smollm3": lambda: t.SmolLM3Config(**_GQA, **_IDS, no_rope_layers=[1, 0, 1]),
    "starcoder2": lambda: t.Starcoder2Config(**_GQA, **_IDS),
    "stablelm": lambda: t.StableLmConfig(**_GQA, **_IDS),
    "granite": lambda: t.GraniteConfig(**_GQA),
    "cohere": lambda: t.CohereConfig(**_GQA, **_IDS),
    "cohere2": lambda: t.Cohere2Config(**_GQA, **_MIXED, **_IDS),
    "glm": lambda: t.GlmConfig(**_GQA, **_IDS, head_dim=8, partial_rotary_factor=0.5),
    "gemma": lambda: t.GemmaConfig(**_GQA, head_dim=16),
    "gemma2": lambda: t.Gemma2Config(
        **_GQA, head_dim=16, sliding_window=9, attn_logit_softcapping=5.0, query_pre_attn_scalar=16
    ),
    "gemma3": lambda: t.Gemma3TextConfig(**_GQA, **_MIXED, head_dim=16, query_pre_attn_scalar=16),
    "gpt-oss": _gpt_oss,
    "afmoe": lambda: t.AfmoeConfig(**_GQA, **_MIXED, **_IDS, **_EXPERTS, head_dim=16, num_dense_layers=1),
    "jetmoe": lambda: t.JetMoeConfig(**_JETMOE, **_IDS, num_local_experts=2, num_experts_per_tok=1),
    "nanochat": lambda: t.NanoChatConfig(**_GQA, **_IDS, head_dim=16),
}

# Read by segments in their own place only: learned positions.
FIXED: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: t.GPT2Config(**_OLD, **_IDS),
    "opt": lambda: t.OPTConfig(
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        ffn_dim=96,
        vocab_size=320,
        max_position_embeddings=2048,
        word_embed_proj_dim=64,
        **_IDS,
    ),
}

# With attention code of their own: a dense cache.
DENSE: dict[str, Callable[[], Any]] = {
    "gptj": lambda: t.GPTJConfig(**_OLD, **_IDS, rotary_dim=8),
    "falcon": lambda: t.FalconConfig(**_FALCON, **_IDS, alibi=False, new_decoder_architecture=False),
    "falcon-new": lambda: t.FalconConfig(**_FALCON, **_IDS, num_kv_heads=2, new_decoder_architecture=True),
    "falcon-alibi": lambda: t.FalconConfig(
        **_FALCON, **_IDS, alibi=True, multi_query=False, new_decoder_architecture=False
    ),
    "mpt": lambda: t.MptConfig(d_model=64, n_layers=3, n_heads=4, vocab_size=320, max_seq_len=2048),
    "bloom": lambda: t.BloomConfig(hidden_size=64, n_layer=3, n_head=4, vocab_size=320, **_IDS),
}

FAMILIES: dict[str, Callable[[], Any]] = SEGMENTS | FIXED | DENSE


def tiny_network(family: str = "llama-gqa", seed: int = 0, length: int | None = None) -> Any:
    """Returns a network of a family with weights large enough that attention is far from uniform.

    `length` is the context that its configuration declares; None for the family's own here.
    """
    config = FAMILIES[family]()
    for name in DECLARED if length else ():
        if hasattr(config, name):
            setattr(config, name, length)
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    network = sharpened(t.AutoModelForCausalLM.from_config(config).eval())
    network.generation_config.eos_token_id = 1
    return network


def sharpened(network: Any) -> Any:
    """Makes random weights so large that attention is far from uniform; returns the network."""
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() == 2 and not any(word in name for word in ("emb", "wte", "wpe")):
                parameter.mul_(4.0)
    return network


@cache
def measured(family: str, seed: int) -> Probe:
    """What every start of a tiny model would measure of it again: its weights are the same each time."""
    return probe(Network(tiny_network(family, seed)), f"tiny-{family}")


class KnownProbe:
    """Hands a model what was measured of its like."""

    def __init__(self, known: Probe) -> None:
        self.known = known

    def probed(self, _network: Network, _name: str, _fingerprint: str) -> Probe:
        return self.known


def tiny_model(
    family: str = "llama-gqa", *, chat: bool = True, seed: int = 0, measure: bool = False
) -> Model:
    """Returns such a network with a tokenizer of one token per byte.

    `measure`: it is measured anew, as where a test changed how; else known from the first of its like.
    """
    tokenizer = byte_tokenizer()
    if chat:
        tokenizer.chat_template = CHATML
    known: Any = None if measure else KnownProbe(measured(family, seed))
    return Model(f"tiny-{family}", tiny_network(family, seed), tokenizer, f"tiny-{family}-{seed}", known)


def save_tiny(folder: Path, family: str = "llama-gqa", *, chat: bool = True, seed: int = 0) -> Path:
    """Writes a model folder as `save_pretrained` does."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _files(family, chat, seed).items():
        (folder / name).write_bytes(content)
    return folder


@cache
def _files(family: str, chat: bool, seed: int) -> dict[str, bytes]:
    """The files of a saved model, by their names."""
    tokenizer = byte_tokenizer()
    if chat:
        tokenizer.chat_template = CHATML
    with tempfile.TemporaryDirectory() as folder:
        tiny_network(family, seed).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def mla() -> Any:
    """The configuration of a model that neither path reproduces: its values are shorter than its keys."""
    return t.DeepseekV3Config(
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=320,
        first_k_dense_replace=1,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        kv_lora_rank=16,
        q_lora_rank=16,
        intermediate_size=32,
    )
