"""Other programs that answer the same prompts, to be timed beside ours."""

from __future__ import annotations

from benchmarks.peers import llamacpp, prototype, transformers_sdpa
from benchmarks.peers.peer import Opened, Peer, Shape


def all_peers() -> list[Peer]:
    """Returns every peer, the ones that are absent here included."""
    return [llamacpp.peer(), transformers_sdpa.peer(), prototype.peer()]


__all__ = ["Opened", "Peer", "Shape", "all_peers"]
