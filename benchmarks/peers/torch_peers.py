"""transformers with torch's attention, and the method of the paper's prototype on top of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from app.studio.sweeps.drawn import drawn_tokens, spans
from benchmarks.base.case import Size
from benchmarks.peers.peer import Contender, Opened, Peer, longest
from engine.base.errors import PromptCacheError
from engine.model.loading import load


def peers() -> list[Peer]:
    """Both are always installed."""
    version = transformers.__version__
    return [
        Peer("transformers", version, "", _opening(Prefixed)),
        Peer("paper's prototype", f"transformers {version}", "", _opening(Copied)),
    ]


def own_network(size: Size) -> Any:
    """The network of a size on the processor, with torch's attention instead of ours."""
    model = load(size.model, device="cpu", dtype=size.dtype, weights="plain")
    if (tokens := longest(size)) >= model.context_length:
        raise PromptCacheError(f"{tokens} tokens do not fit the model's {model.context_length}.")
    module = model.network.module
    module.set_attn_implementation("sdpa")
    return module


class TorchContender(Contender):
    """A network of transformers with a cache of transformers."""

    def __init__(self, name: str, size: Size, kinds: Sequence[str], network: Any) -> None:
        super().__init__(name, size, kinds)
        self.network, self.cache = network, DynamicCache()
        vocabulary = int(network.config.get_text_config().vocab_size)
        self.tokens = drawn_tokens(vocabulary, size.cached + size.new, size.seed)
        self._logits = torch.empty(0)

    def step(self) -> None:
        self.forward([self.likeliest()], self.cache)

    def logits(self) -> Tensor:
        return self._logits

    @torch.inference_mode()
    def forward(self, token_ids: Sequence[int], cache: Any, start: int | None = None) -> None:
        """Computes tokens after a cache, which takes them."""
        first = cache.get_seq_length() if start is None else start
        found = self.network(
            input_ids=torch.tensor([list(token_ids)]),
            position_ids=torch.arange(first, first + len(token_ids))[None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._logits = found.logits[0, -1]


class Prefixed(TorchContender):
    """A growing cache, which is cropped to the prefix."""

    def __init__(self, size: Size, network: Any) -> None:
        super().__init__("transformers", size, ("full", "prefix", "decode"), network)
        self._held = False

    def full(self) -> None:
        self.cache, self._held = DynamicCache(), True
        self.forward(self.tokens, self.cache)

    def rewind(self) -> None:
        if not self._held:
            self.forward(self.tokens[: self.size.cached], self.cache)
            self._held = True
        self.cache.crop(self.size.cached - self.cache.get_seq_length())

    def prefix(self) -> None:
        self.forward(self.tokens[self.size.cached :], self.cache)


class Copied(TorchContender):
    """The paper's prototype: modules, each computed alone, are copied into one buffer for each prompt."""

    def __init__(self, size: Size, network: Any) -> None:
        super().__init__("paper's prototype", size, ("prefix",), network)
        self._spans = spans(size.cached, size.modules)
        self._pieces: list[Tensor] = []
        self._buffer = torch.empty(0)

    def rewind(self) -> None:
        """Computes the modules once."""
        if not self._pieces:
            self._pieces = [self._encoded(lo, hi) for lo, hi in self._spans]
            both, layers, heads, _, width = self._pieces[0].shape
            self._buffer = self._pieces[0].new_empty(both, layers, heads, self.size.cached, width)

    @torch.inference_mode()
    def prefix(self) -> None:
        """Fills the buffer, and computes the new tokens after it."""
        for piece, (lo, hi) in zip(self._pieces, self._spans, strict=True):
            self._buffer[..., lo:hi, :].copy_(piece)
        self.cache = DynamicCache()
        self.cache.layers = [
            _layer(keys[None], values[None]) for keys, values in zip(*self._buffer, strict=True)
        ]
        self.forward(self.tokens[self.size.cached :], self.cache)

    def _encoded(self, lo: int, hi: int) -> Tensor:
        """Keys and values of a module, [2, layers, kv_heads, tokens, head_dim]."""
        cache: Any = DynamicCache()
        self.forward(self.tokens[lo:hi], cache, start=lo)
        pairs = [torch.stack([layer.keys[0], layer.values[0]]) for layer in cache.layers]
        return torch.stack(pairs, 1)


def _layer(keys: Tensor, values: Tensor) -> DynamicLayer:
    layer = DynamicLayer()
    layer.lazy_initialization(keys, values)
    layer.keys, layer.values = keys, values
    return layer


def _opening(made: Callable[[Size, Any], Opened]) -> Any:
    @contextlib.contextmanager
    def opened(size: Size) -> Iterator[Opened]:
        yield made(size, own_network(size))

    return opened
