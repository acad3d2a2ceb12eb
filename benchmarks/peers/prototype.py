"""The paper's method as its prototype does it, on transformers of today.

Keys and values of modules, each computed by itself at its place in the prompt, are copied into one buffer,
and the network computes the new tokens after it with attention and a cache of its own. `copy` of
`benchmarks.forward` differs by one thing: its attention is ours, so that only the copy is compared there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from benchmarks.drawn import spans
from benchmarks.peers.network import TorchContender, fresh, own_network, threads
from benchmarks.peers.peer import Opened, Peer, Shape

NAME = "paper's prototype"


def peer() -> Peer:
    """Returns this peer, which is always here."""
    return Peer(NAME, f"transformers {transformers.__version__}", "", opened)


@contextlib.contextmanager
def opened(shape: Shape) -> Iterator[Opened]:
    """Loads the network, and computes the modules when they are first asked for."""
    with threads(shape.threads):
        yield Copied(NAME, shape, ("prefix", "answer"), own_network(shape))


class Copied(TorchContender):
    """Modules in pieces, and the buffer that they are copied into."""

    def __init__(self, name: str, shape: Shape, kinds: tuple[str, ...], network: Any) -> None:
        super().__init__(name, shape, kinds, network)
        self.spans = spans(shape.cached, shape.modules)
        self._pieces: list[tuple[Tensor, Tensor]] = []
        self._keys = self._values = torch.empty(0)

    def rewind(self) -> None:
        """Computes the modules, once; the buffer is filled anew each time."""
        if not self._pieces:
            self._pieces = [self._encoded(lo, hi) for lo, hi in self.spans]
            layers, heads, _, width = self._pieces[0][0].shape
            self._keys = self._pieces[0][0].new_empty(layers, heads, self.shape.cached, width)
            self._values = torch.empty_like(self._keys)

    @torch.inference_mode()
    def prefix(self) -> None:
        """Copies the modules into the buffer, and computes the new tokens after it."""
        for (keys, values), (lo, hi) in zip(self._pieces, self.spans, strict=True):
            self._keys[:, :, lo:hi].copy_(keys)
            self._values[:, :, lo:hi].copy_(values)
        self.cache = DynamicCache()
        self.cache.layers = [
            _layer(keys, values) for keys, values in zip(self._keys, self._values, strict=True)
        ]
        self.forward(self.tokens[self.shape.cached :], self.cache)

    def _encoded(self, lo: int, hi: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a module that saw nothing else, each [layers, kv_heads, tokens, head_dim]."""
        cache = fresh()
        self.forward(self.tokens[lo:hi], cache, start=lo)
        keys = torch.stack([layer.keys[0] for layer in cache.layers])
        return keys, torch.stack([layer.values[0] for layer in cache.layers])


def _layer(keys: Tensor, values: Tensor) -> DynamicLayer:
    """A layer of a cache that holds these, [kv_heads, tokens, head_dim], where they lie."""
    layer = DynamicLayer()
    layer.lazy_initialization(keys[None], values[None])
    layer.keys, layer.values = keys[None], values[None]
    return layer
