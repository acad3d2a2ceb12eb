"""Networks of transformers as they are without us: the peers that run on torch compute with these."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from benchmarks.drawn import drawn_tokens
from benchmarks.peers.peer import Contender, Shape
from engine.base.errors import PromptCacheError
from engine.model.loading import load


def own_network(shape: Shape) -> Any:
    """Returns the network of a shape on the processor, with torch's attention in place of ours.

    Raises:
        PromptCacheError: the model cannot be loaded, or the prompt does not fit it.
    """
    model = load(shape.model, device="cpu", dtype=shape.dtype, weights="plain")
    if shape.longest >= model.context_length:
        raise PromptCacheError(
            f"{shape.longest} tokens do not fit the model's {model.context_length}; lower --cached."
        )
    module = model.network.module
    module.set_attn_implementation("sdpa")
    return module


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Has torch use so many threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class TorchContender(Contender):
    """A network of transformers over a cache of transformers.

    Args:
        name: of the peer.
        shape: what is asked.
        kinds: which of the ways it can do.
        network: with its own attention.
    """

    def __init__(self, name: str, shape: Shape, kinds: Sequence[str], network: Any) -> None:
        super().__init__(name, shape, kinds)
        self.network = network
        self.cache: Any = None
        vocabulary = int(network.config.get_text_config().vocab_size)
        self.tokens = drawn_tokens(vocabulary, shape.cached + shape.new, shape.seed)
        self._logits = torch.empty(0)

    def step(self) -> None:
        """Takes the likeliest token of the last logits, and computes the logits after it."""
        self.forward([self.likeliest()], self.cache)

    def logits(self) -> Tensor:
        """The last logits, [vocabulary]."""
        return self._logits

    @torch.inference_mode()
    def forward(self, token_ids: Sequence[int], cache: Any, start: int | None = None) -> None:
        """Computes tokens after those of a cache, which takes them; keeps the logits of the last.

        Args:
            token_ids: the tokens.
            cache: a cache of transformers.
            start: position of the first, where it is not the number of tokens in the cache.
        """
        first = cache.get_seq_length() if start is None else start
        found = self.network(
            input_ids=torch.tensor([list(token_ids)]),
            position_ids=torch.arange(first, first + len(token_ids))[None],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._logits = found.logits[0, -1]


def fresh() -> Any:
    """Returns an empty cache of transformers."""
    return DynamicCache()
