"""The cache size of one token of a model, from its configuration alone (paper, table 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers.models.auto.configuration_auto import AutoConfig


@dataclass(frozen=True)
class KVSizes:
    """The keys and values of one token.

    Attributes:
        layers: number of layers with keys and values.
        heads: query heads per layer.
        kv_heads: key and value heads per layer; fewer if query heads share them.
        size: channels of a head.
    """

    layers: int
    heads: int
    kv_heads: int
    size: int

    def bytes_per_token(self, itemsize: int) -> int:
        """Bytes of one token, at `itemsize` bytes per number."""
        return 2 * self.layers * self.kv_heads * self.size * itemsize

    def unshared(self, itemsize: int) -> int:
        """The same if each query head had its own keys and values, as in the paper."""
        return 2 * self.layers * self.heads * self.size * itemsize


def kv_sizes(config: Any) -> KVSizes:
    """Returns the sizes in a configuration of transformers; raises AttributeError if it lacks them."""
    text = config.get_text_config()
    heads: int = text.num_attention_heads
    size = next((n for field in ("head_dim", "kv_channels") if (n := getattr(text, field, None))), None)
    return KVSizes(
        text.num_hidden_layers,
        heads,
        _grouped(text, heads),
        size or text.hidden_size // heads,
    )


def _grouped(text: Any, heads: int) -> int:
    """The number of key and value heads, under the names of different families."""
    if getattr(text, "new_decoder_architecture", False):
        return heads  # transformers repeats them for every head before they reach a cache
    if getattr(text, "multi_query", False):
        return 1
    for name in ("num_key_value_heads", "num_kv_heads"):
        count: int | None = getattr(text, name, None)
        if count:
            return count
    return heads


@dataclass(frozen=True)
class KnownModel:
    """A model with a known configuration.

    Attributes:
        title: its common name.
        sizes: of the keys and values of one token.
        paper: megabytes of one token in fp16 in table 2 of the paper; None if absent there.
    """

    title: str
    sizes: KVSizes
    paper: float | None = None


_KNOWN: tuple[tuple[str, str, dict[str, Any], float | None], ...] = (
    ("BERT base", "bert", {}, 0.03),
    (
        "Falcon 1B",
        "falcon",
        {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32, "multi_query": False},
        0.18,
    ),
    ("Llama 2 7B", "llama", {}, 0.50),
    (
        "Llama 2 13B",
        "llama",
        {"hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40},
        0.78,
    ),
    ("MPT 30B", "mpt", {"d_model": 7168, "n_layers": 48, "n_heads": 64}, 1.31),
    (
        "Falcon 40B",
        "falcon",
        {
            "hidden_size": 8192,
            "num_hidden_layers": 60,
            "num_attention_heads": 128,
            "num_kv_heads": 8,
            "new_decoder_architecture": True,
        },
        1.87,
    ),
    (
        "Llama 2 70B",
        "llama",
        {
            "hidden_size": 8192,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
        },
        2.5,
    ),
    (
        "Falcon 180B",
        "falcon",
        {
            "hidden_size": 14848,
            "num_hidden_layers": 80,
            "num_attention_heads": 232,
            "num_kv_heads": 8,
            "new_decoder_architecture": True,
        },
        4.53,
    ),
    ("GPT-2", "gpt2", {}, None),
    (
        "TinyLlama 1.1B",
        "llama",
        {
            "hidden_size": 2048,
            "num_hidden_layers": 22,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
        },
        None,
    ),
    ("Phi-3 mini", "phi3", {}, None),
    ("Mistral 7B, Llama 3 8B", "mistral", {}, None),
    (
        "Qwen2.5 7B",
        "qwen2",
        {
            "hidden_size": 3584,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
        },
        None,
    ),
    (
        "Gemma 2 9B",
        "gemma2",
        {
            "hidden_size": 3584,
            "num_hidden_layers": 42,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 256,
        },
        None,
    ),
)


def known_models() -> tuple[KnownModel, ...]:
    """Returns well-known models, those of the paper's table first, in its order."""
    made: Any = AutoConfig
    return tuple(
        KnownModel(title, kv_sizes(made.for_model(kind, **fields)), paper)
        for title, kind, fields, paper in _KNOWN
    )
