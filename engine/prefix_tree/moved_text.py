"""Text of earlier prompts, found by its tokens at any place and read from there.

A changed line changes the keys and values of all text after it. Here the text is read as an earlier prompt
computed it, so what is read is approximate. Checks limit the difference: the uncached side reads the first
tokens of an answer too. After an answer beyond the limit, the next answers move nothing: 8, then 16, 32 …
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.attention.rope import move_keys
from engine.base.events import Working
from engine.base.segment import Placement, Segment
from engine.cache.memory import Handle
from engine.cache.segment_cache import SegmentCache
from engine.fidelity.teacher_forcing import Reading, read
from engine.inference.prefill import Prefill, whole
from engine.prompt.pieces import PromptPlan

LEAST: Final = 64  # tokens of a text that is moved
PAUSE: Final = 8  # answers that move nothing after the first failed check
CHECKED: Final = 8  # tokens of an answer that a check compares
_KEY: Final = 16  # tokens that find a text
_MOST: Final = 4096  # texts
_LONGEST_PAUSE: Final = 10  # doublings

Work = Callable[[], Generator[Working, None, Any]]


@dataclass(frozen=True)
class _Text:
    salt: str
    token_ids: NDArray[np.int32]


class Moved:
    """The texts that a prompt reads at other places than they were computed at, held until `release`.

    Attributes:
        placements: where they stand in the prompt.
        keys: their names.
    """

    def __init__(self, placements: Sequence[Placement] = (), handles: Sequence[Handle] = ()) -> None:
        self.placements, self._handles = tuple(placements), handles
        self.keys = frozenset(one.segment.key for one in placements)

    @property
    def tokens(self) -> int:
        """How many tokens they have."""
        return sum(one.tokens for one in self.placements)

    def without(self, prefill: Prefill) -> Prefill:
        """Returns what is computed and read before the first token, when these are read."""
        if not self.placements:
            return prefill
        token_ids, positions = [*prefill.token_ids], [*prefill.positions]
        for one in reversed(self.placements):
            first = bisect_left(positions, one.start)
            del token_ids[first : first + one.tokens], positions[first : first + one.tokens]
        placements = sorted([*prefill.placements, *self.placements], key=lambda one: one.start)
        return replace(prefill, placements=placements, token_ids=token_ids, positions=positions)

    def release(self) -> None:
        """Lets go of the texts; a second time does nothing."""
        for handle in self._handles:
            handle.release()


class MovedTexts:
    """The texts of one model that may be moved, in its memory tier. For any number of threads.

    Args:
        cache: the segments of the model, which must be relocatable.
        max_kl: the greatest mean KL divergence per checked token of an answer.
        offer: takes checks, for when the engine is idle.

    Attributes:
        checks: the mean KL divergence of the latest checked answers, in nats per token.
    """

    def __init__(self, cache: SegmentCache, max_kl: float, offer: Callable[[Work], None]) -> None:
        self._cache, self._max_kl, self._offer = cache, max_kl, offer
        self._index: dict[tuple[str, bytes], tuple[str, int]] = {}
        self._texts: dict[str, _Text] = {}
        self._paused: dict[str, int] = {}  # answers that move nothing yet, by salt
        self._failed: dict[str, int] = {}  # failed checks, by salt
        self._numbers = count()
        self._lock = threading.Lock()
        self.checks: deque[float] = deque(maxlen=1000)

    def find(self, prefill: Prefill, salt: str, exact: int = 0) -> Moved:
        """Finds texts of at least `LEAST` tokens among those that are to be computed, but for the last token.

        Args:
            prefill: what is computed.
            salt: only texts with this salt are found.
            exact: tokens that are read exactly. Less text than half of them is computed, because what follows
                moved text is not exact either.
        """
        with self._lock:
            if paused := self._paused.get(salt, 0):
                self._paused[salt] = paused - 1
                return Moved()
        ids = np.array(prefill.token_ids[:-1], dtype=np.int32)
        positions = np.array(prefill.positions[:-1], dtype=np.int64)
        placements, handles = list[Placement](), list[Handle]()
        at = 0
        while at + LEAST <= len(ids):
            key, place = self._known(salt, ids[at : at + _KEY])
            length = self._length(key, place, ids[at:], positions[at:]) if key else 0
            handle = self._cache.memory_tier.acquire(key) if length >= LEAST else None
            if handle is None:
                if length >= LEAST:
                    self._forget(key)
                at += 1
                continue
            handles.append(handle)
            placements.append(Placement(handle.segment, place, place + length, int(positions[at])))
            at += length
        moved = Moved(placements, handles)
        if 2 * moved.tokens >= exact:
            return moved
        moved.release()
        return Moved()

    @torch.inference_mode()
    def keep(
        self,
        salt: str,
        token_ids: Sequence[int],
        positions: Sequence[int],
        keys: Tensor,
        values: Tensor,
    ) -> None:
        """Takes in texts that a prompt has computed, as copies.

        Args:
            salt: their salt.
            token_ids: the computed tokens.
            positions: their positions, ascending.
            keys: [layers, kv_heads, tokens, head_dim], rotated for these positions.
            values: [layers, kv_heads, tokens, head_dim].
        """
        ids, at = np.array(token_ids, dtype=np.int32), np.array(positions, dtype=np.int64)
        borders = [0, *(np.flatnonzero(np.diff(at) != 1) + 1).tolist(), len(at)]
        rotaries = self._cache.model.rotaries
        for lo, hi in pairwise(borders):
            if hi - lo < _KEY:
                continue
            text, number = ids[lo:hi], next(self._numbers)
            name = hashlib.sha256(salt.encode() + text.tobytes() + str(number).encode()).hexdigest()
            moved = move_keys(keys[:, :, lo:hi], rotaries, -int(at[lo])).clone()
            segment = Segment(f"moved-{name}", tuple(text.tolist()), moved, values[:, :, lo:hi].clone())
            self._cache.memory_tier.add(segment).release()
            self._add(segment.key, _Text(salt, text))

    def judge(
        self,
        salt: str,
        plan: PromptPlan,
        answer: Sequence[int],
        logits: Sequence[Tensor],
        keys: Iterable[str],
    ) -> None:
        """Has an answer checked when the engine is idle.

        Args:
            salt: its salt.
            plan: the prompt.
            answer: its first tokens.
            logits: [vocabulary] before each of them, as they were chosen.
            keys: the names of the texts that it read.
        """
        if not answer:
            return
        approximate = torch.stack([*logits[: len(answer)]])

        def work() -> Generator[Working, None, None]:
            exact = read(self._cache.model, whole(plan), answer)
            kl = float(Reading.of_logits(approximate).divergence(exact).mean())
            with self._lock:
                self.checks.append(kl)
                if kl > self._max_kl:
                    self._failed[salt] = self._failed.get(salt, 0) + 1
                    self._paused[salt] = PAUSE * 2 ** min(self._failed[salt] - 1, _LONGEST_PAUSE)
            if kl > self._max_kl:
                for key in keys:
                    self._forget(key)
            yield from ()

        self._offer(work)

    def _known(self, salt: str, ids: NDArray[np.int32]) -> tuple[str, int]:
        with self._lock:
            return self._index.get((salt, ids.tobytes()), ("", 0))

    def _length(self, key: str, place: int, ids: NDArray[np.int32], positions: NDArray[np.int64]) -> int:
        """How many tokens from a place of a text on are the wanted ones, which stand side by side."""
        with self._lock:
            text = self._texts.get(key)
        if text is None:
            return 0
        theirs = text.token_ids[place:]
        most = min(len(theirs), len(ids))
        same = (theirs[:most] == ids[:most]) & (positions[:most] - positions[0] == np.arange(most))
        different = np.flatnonzero(~same)
        return int(different[0]) if len(different) else most

    def _add(self, key: str, text: _Text) -> None:
        ids = text.token_ids
        with self._lock:
            self._texts[key] = text
            for at in range(len(ids) - _KEY + 1):
                self._index[text.salt, ids[at : at + _KEY].tobytes()] = key, at
        if len(self._texts) > _MOST:
            for old in [one for one in [*self._texts] if one not in self._cache.memory_tier]:
                self._forget(old)

    def _forget(self, key: str) -> None:
        """Finds a text no more."""
        with self._lock:
            text = self._texts.pop(key, None)
            if text is not None:
                ids = text.token_ids
                for at in range(len(ids) - _KEY + 1):
                    entry = text.salt, ids[at : at + _KEY].tobytes()
                    if self._index.get(entry, ("", 0))[0] == key:
                        del self._index[entry]
        self._cache.memory_tier.drop([key])
