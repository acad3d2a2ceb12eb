"""What one token takes in the cache of a model, computed from its configuration alone (paper, table 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers.models.auto.configuration_auto import AutoConfig


@dataclass(frozen=True)
class KVSizes:
    """The keys and values of one token.

    Attributes:
        layers: how many layers hold them.
        heads: heads of queries in a layer.
        kv_heads: heads of keys and values that a layer holds; fewer where several heads of queries share one.
        size: channels of a head.
    """

    layers: int
    heads: int
    kv_heads: int
    size: int

    def bytes_per_token(self, itemsize: int) -> int:
        """Bytes of one token, at `itemsize` bytes for a number."""
        return 2 * self.layers * self.kv_heads * self.size * itemsize

    def unshared(self, itemsize: int) -> int:
        """The same if each head of queries had keys and values of its own, as the paper counts."""
        return 2 * self.layers * self.heads * self.size * itemsize


def kv_sizes(config: Any) -> KVSizes:
    """Returns the sizes that a configuration, of transformers, says.

    Raises:
        AttributeError: it says none.
    """
    text = config.get_text_config()
    heads: int = text.num_attention_heads
    size = next((n for one in ("head_dim", "kv_channels") if (n := getattr(text, one, None))), None)
    return KVSizes(
        text.num_hidden_layers,
        heads,
        _grouped(text, heads),
        size or text.hidden_size // heads,
    )


def _grouped(text: Any, heads: int) -> int:
    """Heads of keys and values, under the names that families have for them."""
    if getattr(text, "new_decoder_architecture", False):
        return heads  # transformers repeats them for every head before they reach a cache
    if getattr(text, "multi_query", False):
        return 1
    for name in ("num_key_value_heads", "num_kv_heads"):
        found: int | None = getattr(text, name, None)
        if found:
            return found
    return heads


@dataclass(frozen=True)
class KnownModel:
    """A model of which the configuration is known without its files.

    Attributes:
        title: as people call it.
        sizes: of the keys and values of one token.
        paper: megabytes of one token in fp16 by table 2 of the paper; None where that does not have it.
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
        KnownModel(title, kv_sizes(made.for_model(kind, **given)), paper)
        for title, kind, given, paper in _KNOWN
    )
