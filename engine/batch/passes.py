"""Runs forward passes for several answers of one model. Scheduling is in scheduler.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from engine.base.errors import ModelError
from engine.base.segment import Placement
from engine.inference.generation import forward
from engine.kv_cache.batched_kv_cache import Member
from engine.kv_cache.protocol import KVCache
from engine.model.model import Model


@dataclass(frozen=True)
class Pass:
    """The report of a pass.

    Attributes:
        answers: how many answers had a row in it.
        rows: its rows, prompts included.
        nbytes: bytes of the keys and values of all answers in progress, as `held_bytes` counts them.
        ended: when it ended, by `time.perf_counter`.
    """

    answers: int
    rows: int
    nbytes: int
    ended: float


class Passes:
    """Runs rows of several prompts through a model in one pass.

    A prompt alone in a pass gives the same bits as without this. With others, its logits differ by rounding.
    `alone` is the reason if a pass can have only one prompt, else "".
    """

    def __init__(self, model: Model, alone: str = "") -> None:
        self.model = model
        self.alone = alone or model.alone
        self._batch = None if self.alone else model.network.batch_cache()

    def run(self, members: Sequence[Member], others: Sequence[Sequence[Placement]] = ()) -> list[Tensor]:
        """Makes one pass. If it fails, no rows are counted: all can be run again, or some.

        Args:
            members: prompts with their rows; `Rows.cut` makes chunks of a long prefill.
            others: segments of prompts without rows in this pass, but in later ones: they are not copied to
                the tails of these.

        Returns:
            Logits [keep, vocabulary] of each member.

        Raises:
            ModelError: there are several members, but the model takes one prompt at a time.
        """
        if self._batch is not None:
            return self.model.network.forward_batch(members, self._batch, others)
        if len(members) > 1:
            raise ModelError(
                f"Model {self.model.name!r} answers prompts one by one: {self.alone}. Run them one after "
                "the other."
            )
        (member,) = members
        return [forward(self.model, member.kv, member.rows, fold=not others)]

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer for short tails of several prompts, and of copies."""
        return 0 if self._batch is None else self._batch.nbytes

    def forget(self, kv: KVCache) -> None:
        """Removes an ended prompt, its tail and its segments. Computes nothing."""
        if self._batch is not None:
            self._batch.forget(kv)


def held_bytes(placements: Iterable[Placement], caches: Iterable[KVCache]) -> int:
    """Counts the bytes of keys and values, each tensor once.

    Tails in `caches` count with all allocated memory. Models with their own attention code report none.
    """
    segments = {id(placement.segment): placement.segment.nbytes for placement in placements}
    tails: dict[int, int] = {}
    for kv in caches:
        memory = None if kv.own is None else kv.own.memory
        if memory is not None:
            storage = memory.untyped_storage()
            tails[storage.data_ptr()] = storage.nbytes()
    return sum(segments.values()) + sum(tails.values())
