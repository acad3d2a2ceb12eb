"""Other programs that answer the same prompts with the same weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from app.studio.sweeps.turns import Way
from benchmarks.base.case import OF_A_PEER, Group, Say, Size
from benchmarks.peers.peer import Peer

__all__ = ["all_peers", "beside"]


def all_peers() -> list[Peer]:
    """All other programs, also the absent ones."""
    from benchmarks.peers import llamacpp, torch_peers

    return [llamacpp.peer(), *torch_peers.peers()]


@contextlib.contextmanager
def beside(group: Group, size: Size, kinds: Sequence[str], say: Say) -> Iterator[list[Way]]:
    """Opens the other programs that are installed, if the size asks for them."""
    ways: list[Way] = []
    with contextlib.ExitStack() as stack:
        for peer in all_peers() if size.peers else ():
            group.peers[peer.name] = {"version": peer.version, "absent": peer.absent}
            if peer.absent:
                continue
            say(f"{group.name}: opening {peer.name}")
            try:
                opened = stack.enter_context(peer.open(size))
                ways += [way for way in opened.ways() if way.name.partition(OF_A_PEER)[2] in kinds]
            except Exception as error:
                group.peers[peer.name]["absent"] = f"failed: {type(error).__name__}: {error}"
        yield ways
