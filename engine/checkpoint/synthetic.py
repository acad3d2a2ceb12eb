"""Models of a known shape with random weights, for timing large models without a download."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast

from engine.base.choices import RANDOM
from engine.base.errors import ModelError

_SEED = 0
_CONTEXT = 16384

_SHAPES: dict[str, tuple[torch.dtype, dict[str, int]]] = {
    "llama-100m": (
        torch.float32,
        {
            "hidden_size": 768,
            "num_hidden_layers": 12,
            "num_attention_heads": 12,
            "num_key_value_heads": 12,
            "intermediate_size": 2048,
            "vocab_size": 8192,
        },
    ),
    "tinyllama-1.1b": (
        torch.bfloat16,
        {
            "hidden_size": 2048,
            "num_hidden_layers": 22,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "intermediate_size": 5632,
            "vocab_size": 32000,
        },
    ),
    "llama2-7b": (
        torch.bfloat16,
        {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "intermediate_size": 11008,
            "vocab_size": 32000,
        },
    ),
}


@dataclass(frozen=True)
class Shape:
    """The number of weights, width and default dtype of a model with random weights."""

    parameters: int
    hidden: int
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        """Bytes of the weights in memory."""
        return self.parameters * self.dtype.itemsize


def shapes() -> dict[str, Shape]:
    """Returns the shapes by name, the smallest first."""
    return {
        name: Shape(_parameters(sizes), sizes["hidden_size"], dtype)
        for name, (dtype, sizes) in _SHAPES.items()
    }


def _parameters(sizes: dict[str, int]) -> int:
    """The number of weights of a Llama with separate input and output embeddings."""
    hidden, inner = sizes["hidden_size"], sizes["intermediate_size"]
    kv = hidden // sizes["num_attention_heads"] * sizes["num_key_value_heads"]
    layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * inner + 2 * hidden
    return 2 * sizes["vocab_size"] * hidden + sizes["num_hidden_layers"] * layer + hidden


def configuration(name: str) -> tuple[Any, torch.dtype]:
    """Returns the configuration and dtype of `random:SHAPE`; raises ModelError for an unknown shape."""
    shape = name.removeprefix(RANDOM)
    if shape not in _SHAPES:
        raise ModelError(f"random shape {shape!r} is unknown; use one of {', '.join(sorted(_SHAPES))}.")
    dtype, sizes = _SHAPES[shape]
    settings: dict[str, Any] = {**sizes, "max_position_embeddings": _CONTEXT, "tie_word_embeddings": False}
    return LlamaConfig(**settings), dtype


def build(name: str, dtype: torch.dtype | None) -> tuple[Any, Any, str]:
    """Builds the network, byte-level tokenizer and fingerprint of `random:SHAPE`; may raise ModelError."""
    config, own_dtype = configuration(name)
    sizes = _SHAPES[name.removeprefix(RANDOM)][1]
    config._attn_implementation = "eager"
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype or own_dtype)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            network: Any = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    identity = json.dumps([name, sizes, _SEED, str(network.dtype)])
    return network.eval(), byte_tokenizer(), hashlib.sha256(identity.encode()).hexdigest()[:32]


def byte_tokenizer() -> Any:
    """Returns a tokenizer with one token per byte, `<s>`, `</s>` and `<unk>`."""
    specials = ["<s>", "</s>", "<unk>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*specials, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
