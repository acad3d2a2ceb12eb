"""Passes as a CUDA graph: recorded once, then replayed with other numbers.

A GPU computes a few rows in less time than Python needs for its thousand calls. The recorded pass reads the
whole memory of a KV cache and masks columns by their position, so only numbers change from pass to pass.
`recorded_prefill.py` records first passes of prompts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from engine.attention.kernels import AttentionParams, Part, attend, pack, unpack
from engine.attention.masks import Hidden
from engine.attention.scratch import Scratch
from engine.kv_cache.protocol import KVCache, OwnKVCache

log = logging.getLogger(__name__)

FAR = 1 << 60  # the position of a column that no row sees
FIRST = 3  # passes of an answer that are not recorded; a recording costs as much as two of them
Compute = Callable[[Tensor, Tensor, "RecordedPass", int], Tensor]
"""Computes a pass: token ids [1, rows], positions [1, rows], the KV cache, the last rows → logits."""


class RecordedPass:
    """A pass over some tokens and idle rows. It is the KV cache of the layers while it is recorded.

    Args:
        memory: [2, layers, kv_heads, columns, head_dim]; even an unfilled column must hold numbers.
        attending: the number of first rows that attend; the others are idle.
        rows: the number of all rows.

    Attributes:
        windows: the sliding window of each layer, after the first pass.
    """

    def __init__(self, memory: Tensor, attending: int, rows: int) -> None:
        self.memory, self.attending, self.rows = memory, attending, rows
        self.windows: dict[int, int | None] = {}
        sizes = [rows, rows, attending, memory.shape[3]]
        self._numbers = torch.zeros(sum(sizes), dtype=torch.int64, device=memory.device)
        token_ids, at, self._own, self._places = torch.split(self._numbers, sizes)
        self._token_ids, self._at = token_ids[None], at[None]
        self._masks: dict[int | None, Tensor] = {}
        self._scratch = Scratch()
        self._replay: Callable[[], Tensor] | None = None

    def run(
        self,
        compute: Compute,
        token_ids: Sequence[int],
        positions: Sequence[int],
        places: Tensor,
        column: int,
        keep: int,
    ) -> Tensor:
        """Returns the logits [keep, vocabulary] of a pass; records the first.

        Args:
            compute: computes a pass.
            token_ids: the tokens of all rows.
            positions: their positions.
            places: int64, positions of the first columns, those this pass's included; no row sees others.
            column: the first column that the attending rows write to.
            keep: the number of last rows whose logits are wanted, the same in every pass.
        """
        columns = torch.full(self._places.shape, FAR)
        columns[: len(places)] = places
        own = range(column, column + self.attending)
        self._numbers.copy_(torch.cat([torch.tensor([*token_ids, *positions, *own]), columns]))
        if self._replay is None:
            self._replay, logits = recorded(lambda: self._computed(compute, keep))
            return logits
        return self._replay().clone()

    def _computed(self, compute: Compute, keep: int) -> Tensor:
        self._masks.clear()
        return compute(self._token_ids, self._at, self, keep)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rules: AttentionParams) -> Tensor:
        """Attention of the attending rows, as in `OwnKVCache`; idle rows get zeros."""
        self.windows[layer] = rules.window
        count, (keys, values) = self.attending, self.memory[:, layer]
        keys.index_copy_(1, self._own, key[:, :count])
        values.index_copy_(1, self._own, value[:, :count])
        packed = pack(query[:, :count] * rules.scale, key.shape[0])
        part = Part(packed, keys, values, Hidden(0, self._mask(rules.window)))
        out, _ = attend([part], rules, count, self._scratch)
        attended = unpack(out, count)
        idle = self.rows - count
        return nn.functional.pad(attended, (0, 0, 0, idle)) if idle else attended

    def _mask(self, window: int | None) -> Tensor:
        if window not in self._masks:
            at = self._at[0, : self.attending, None]
            mask = self._places > at
            if window is not None:
                mask |= at - self._places >= window
            self._masks[window] = mask
        return self._masks[window]


def recorded(run: Callable[[], Tensor]) -> tuple[Callable[[], Tensor], Tensor]:
    """Runs work on the GPU once and records it; returns what replays it, and the first result."""
    cuda: Any = torch.cuda
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        first = run().clone()
    cuda.current_stream().wait_stream(side)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        result = run()

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay, first


@dataclass
class _Answer:
    """The decoding of one answer over the same memory: its passes so far, and the recorded one."""

    memory: Tensor
    passes: int = 0
    recorded: RecordedPass | None = None


class Recorder:
    """Records decoding passes of a network.

    Attributes:
        fault: the reason if the network cannot be recorded, else "".
        replays: the number of passes that were recorded or replayed.
    """

    def __init__(self) -> None:
        self.fault = ""
        self.replays = 0
        self._answers: WeakKeyDictionary[OwnKVCache, _Answer] = WeakKeyDictionary()

    def run(
        self, compute: Compute, token_ids: Sequence[int], positions: Sequence[int], kv: KVCache
    ) -> Tensor | None:
        """Returns the logits of an announced pass over one row and idle ones; None if it must be computed."""
        own = kv.own
        if self.fault or own is None or own.placements or own.watched:
            return None
        memory, filled, rows = own.memory, own.filled, len(token_ids)
        if memory is None or filled >= memory.shape[3]:
            return None
        answer = self._answers.get(own)
        if answer is None or answer.memory is not memory:
            answer = self._answers[own] = _Answer(memory)
        answer.passes += 1
        if answer.passes <= FIRST:
            return None
        made = answer.recorded
        try:
            if made is None or made.rows != rows:
                memory[:, :, :, filled:] = 0
                made = answer.recorded = RecordedPass(memory, 1, rows)
            logits = made.run(compute, token_ids, positions, own.positions(filled + 1), filled, rows)
        except (RuntimeError, NotImplementedError) as error:  # of torch, if the network asks for a number
            self.fault, answer.recorded = str(error).partition("\n")[0], None
            log.info("decoding passes are not recorded: %s", self.fault)
            return None
        self.replays += 1
        return logits
