"""transformers with torch's attention: full prefill, and a cache of a prefix, cropped back each time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import transformers

from benchmarks.peers.network import TorchContender, fresh, own_network, threads
from benchmarks.peers.peer import Opened, Peer, Shape

NAME = "transformers"


def peer() -> Peer:
    """Returns this peer, which is always here."""
    return Peer(NAME, transformers.__version__, "", opened)


@contextlib.contextmanager
def opened(shape: Shape) -> Iterator[Opened]:
    """Loads the network."""
    with threads(shape.threads):
        yield Prefixed(NAME, shape, ("full", "prefix", "decode", "answer"), own_network(shape))


class Prefixed(TorchContender):
    """One growing cache: what was computed last may be behind the prefix, and is cropped off."""

    def full(self) -> None:
        """Computes the whole prompt."""
        self.cache = fresh()
        self.forward(self.tokens, self.cache)

    def rewind(self) -> None:
        """Leaves the prefix alone in the cache; a crop copies nothing."""
        if self.cache is None:
            self.cache = fresh()
            self.forward(self.tokens[: self.shape.cached], self.cache)
        self.cache.crop(self.shape.cached - self.cache.get_seq_length())

    def prefix(self) -> None:
        """Computes the new tokens after the prefix."""
        self.forward(self.tokens[self.shape.cached :], self.cache)
