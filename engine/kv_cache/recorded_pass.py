"""Decoding passes of one answer as a CUDA graph: recorded once, then replayed with other numbers.

A GPU computes one row in less time than Python needs for its thousand calls. The recorded pass reads the
whole memory of a KV cache and masks columns that are not filled, so only numbers change from pass to pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from engine.attention.kernels import AttentionParams, Part, attend, pack, unpack
from engine.attention.masks import Hidden
from engine.attention.scratch import Scratch
from engine.kv_cache.protocol import KVCache, OwnKVCache

log = logging.getLogger(__name__)

FIRST = 3  # passes of an answer that are not recorded; a recording costs as much as two of them
Compute = Callable[[Tensor, Tensor, "RecordedPass", int], Tensor]
"""Computes a pass: token ids [1, rows], positions [1, rows], the KV cache, the last rows → logits."""


class RecordedPass:
    """A pass over one new token and idle rows. It is the KV cache of the layers while it is recorded."""

    def __init__(self, memory: Tensor, positions: Tensor, rows: int) -> None:
        self.memory, self.rows = memory, rows
        device, columns = memory.device, memory.shape[3]
        self._token_ids, self._at = torch.zeros(2, 1, rows, dtype=torch.int64, device=device).unbind()
        self._column = torch.zeros(1, dtype=torch.int64, device=device)  # of the new token
        self._columns = torch.arange(columns, device=device)
        self._places = torch.zeros(columns, dtype=torch.int64, device=device)
        self._places[: len(positions)] = positions.to(device)
        self._masks: dict[int | None, Tensor] = {}
        self._scratch = Scratch()
        self._replay: Callable[[], Tensor] | None = None

    def run(
        self, compute: Compute, token_ids: Sequence[int], positions: Sequence[int], column: int
    ) -> Tensor:
        """Returns the logits [rows, vocabulary] of a pass that writes to this column; records the first."""
        self._token_ids.copy_(torch.tensor([list(token_ids)]))
        self._at.copy_(torch.tensor([list(positions)]))
        self._column.fill_(column)
        if self._replay is None:
            self._replay, logits = recorded(lambda: self._computed(compute))
            return logits
        return self._replay().clone()

    def _computed(self, compute: Compute) -> Tensor:
        self._masks.clear()
        self._places.index_copy_(0, self._column, self._at[0, :1])
        return compute(self._token_ids, self._at, self, self.rows)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rules: AttentionParams) -> Tensor:
        """Attention of the new token, as in `OwnKVCache`; idle rows get zeros."""
        keys, values = self.memory[:, layer]
        keys.index_copy_(1, self._column, key[:, :1])
        values.index_copy_(1, self._column, value[:, :1])
        packed = pack(query[:, :1] * rules.scale, key.shape[0])
        part = Part(packed, keys, values, Hidden(0, self._mask(rules.window)))
        out, _ = attend([part], rules, 1, self._scratch)
        row = unpack(out, 1)
        idle = self.rows - 1
        return torch.cat([row, row.new_zeros(row.shape[0], idle, row.shape[2])], 1) if idle else row

    def _mask(self, window: int | None) -> Tensor:
        if window not in self._masks:
            mask = self._columns > self._column
            if window is not None:
                mask |= self._at[0, :1] - self._places >= window
            self._masks[window] = mask[None]
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
                memory[:, :, :, filled:] = 0  # even a masked column must hold numbers
                made = answer.recorded = RecordedPass(memory, own.positions(filled), rows)
            logits = made.run(compute, token_ids, positions, filled)
        except (RuntimeError, NotImplementedError) as error:  # of torch, if the network asks for a number
            self.fault, answer.recorded = str(error).partition("\n")[0], None
            log.info("decoding passes are not recorded: %s", self.fault)
            return None
        self.replays += 1
        return logits
