"""Tiny models with random weights, of every family that the segment path takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as t

from engine.model import Model
from engine.random_models import byte_tokenizer

CHATML = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
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
    scaling = {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 4.0,
        "original_max_position_embeddings": 512,
    }
    return t.LlamaConfig(**_GQA, rope_parameters=scaling)


FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: t.LlamaConfig(**_SIZES),
    "llama-gqa": lambda: t.LlamaConfig(**_GQA),
    "llama3-scaling": _llama3,
    "yarn": _yarn,
    "mistral": lambda: t.MistralConfig(**_GQA, sliding_window=None),
    "qwen2": lambda: t.Qwen2Config(**_GQA),
    "qwen3": lambda: t.Qwen3Config(**_GQA, head_dim=16),
    "phi": lambda: t.PhiConfig(**_SIZES),
    "gpt-neox": lambda: t.GPTNeoXConfig(**_SIZES),
    "cohere": lambda: t.CohereConfig(**_GQA),
}


def tiny_network(family: str = "llama-gqa", seed: int = 0) -> Any:
    """Returns a network of a family with weights large enough that attention is far from uniform."""
    config = FAMILIES[family]()
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    network = t.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() == 2 and "embed" not in name:
                parameter.mul_(4.0)
    network.generation_config.eos_token_id = 1
    return network


def tiny_model(family: str = "llama-gqa", *, chat: bool = True, seed: int = 0) -> Model:
    """Returns such a network with a tokenizer of one token per byte."""
    tokenizer = byte_tokenizer()
    if chat:
        tokenizer.chat_template = CHATML
    return Model(f"tiny-{family}", tiny_network(family, seed), tokenizer, f"tiny-{family}-{seed}")


def save_tiny(folder: Path, family: str = "llama-gqa", *, chat: bool = True, seed: int = 0) -> Path:
    """Writes a model folder as `save_pretrained` does."""
    tokenizer = byte_tokenizer()
    if chat:
        tokenizer.chat_template = CHATML
    tiny_network(family, seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
