"""Forward passes over rows of several answers of one model. Scheduling is elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from engine.base.errors import ModelError
from engine.base.segment import Placement
from engine.inference.generation import Sequence as Answering
from engine.inference.generation import Step
from engine.kv_cache.batched_kv_cache import Member
from engine.kv_cache.protocol import KVCache
from engine.model.model import Model


@dataclass(frozen=True)
class Failed:
    """A sequence cannot go on; the others can.

    Attributes:
        error: what was raised over it.
    """

    error: Exception


@dataclass(frozen=True)
class Pass:
    """A pass that was made.

    Attributes:
        answers: how many answers under way had a row in it.
        rows: how many rows there were, those of prompts that are still being read among them.
        nbytes: bytes of the keys and values of everyone under way, as `held_bytes` counts them.
        ended: when it was over, by `time.perf_counter`.
    """

    answers: int
    rows: int
    nbytes: int
    ended: float


class Passes:
    """Runs rows of several prompts through a model, many in one pass.

    One prompt in a pass is computed as it is without this, to the last bit. In a pass with others its logits
    are those that it has alone, but for rounding.

    Args:
        model: the model.

    Attributes:
        alone: why there can be no more than one prompt in a pass, in words; empty where there can.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.alone = model.alone
        self._batch = None if self.alone else model.network.batch_cache()

    def run(self, members: Sequence[Member], others: Sequence[Sequence[Placement]] = ()) -> list[Tensor]:
        """Makes one pass. Where it fails, no rows are counted: all can be run again, or without some.

        Args:
            members: prompts with their rows; chunks of a long prefill are made by `Rows.cut`.
            others: what prompts read that have no rows in this pass, but will have some: it is not copied to
                the tails of these.

        Returns:
            Of each member, in their order, logits [keep, vocabulary].

        Raises:
            ModelError: the model takes one prompt at a time, and these are several.
        """
        if self._batch is not None:
            return self.model.network.forward_batch(members, self._batch, others)
        if len(members) > 1:
            raise ModelError(
                f"Model {self.model.name!r} answers prompts one by one: {self.alone}. Run them one after "
                "the other."
            )
        (one,) = members
        rows, forward = one.rows, self.model.network.forward
        if rows.rowwise is not None and not others:
            one.kv.fold()
        return [forward(rows.token_ids, rows.positions, one.kv, rows.keep, rowwise=rows.rowwise)]

    def steps(self, sequences: Sequence[Answering]) -> list[Step | Failed]:
        """Steps each of several answers once: those that know their next token give it, others share a pass.

        Args:
            sequences: none that has ended.

        Returns:
            Of each, in their order, its step, or why it ended: that of others goes on.

        Raises:
            ModelError: as for `run`.
        """
        started = time.perf_counter()
        members: dict[int, Member] = {}
        for place, one in enumerate(sequences):
            if not one.ahead:
                rows = one.wanted(fold=False)
                assert one.kv is not None
                members[place] = Member(one.kv, rows)
        computed = self.run(list(members.values())) if members else []
        logits = dict(zip(members, computed, strict=True))
        return [_stepped(one, logits.get(place), started) for place, one in enumerate(sequences)]

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer that short tails are moved to from memory of their own, and of copies."""
        return 0 if self._batch is None else self._batch.nbytes

    def leave(self, kv: KVCache) -> None:
        """Lets a prompt go: it may go on without this, and nothing that it reads is held."""
        if self._batch is not None:
            self._batch.leave(kv)

    def forget(self, kv: KVCache) -> None:
        """Lets a prompt go that has ended, and its tail: nothing that it reads is held. Computes nothing."""
        if self._batch is not None:
            self._batch.forget(kv)


def held_bytes(placements: Iterable[Placement], caches: Iterable[KVCache]) -> int:
    """Counts the bytes of keys and values, each tensor once.

    Args:
        placements: what is read where it lies; of each the whole segment counts.
        caches: of their tails the memory counts that was taken for them. Models with attention code of their
            own tell of none.
    """
    segments = {id(one.segment): one.segment.nbytes for one in placements}
    tails: dict[int, int] = {}
    for kv in caches:
        memory = None if kv.own is None else kv.own.memory
        if memory is not None:
            storage = memory.untyped_storage()
            tails[storage.data_ptr()] = storage.nbytes()
    return sum(segments.values()) + sum(tails.values())


def _stepped(sequence: Answering, logits: Tensor | None, since: float) -> Step | Failed:
    try:
        if logits is not None:
            sequence.take(logits)
        return sequence.given(since)
    except Exception as error:
        return Failed(error)
