"""First passes of prompts with few new tokens, as CUDA graphs over one buffer that all prompts share.

The buffer has columns for the new tokens, then the placed segments, with keys rotated to their places. The
next prompt copies only segments that are not at the same columns already. The last new token fills the rows
of a pass: such rows compute it again, and no row sees their keys.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from weakref import ref

import torch
from torch import Tensor

from engine.attention.rope import Rotaries, move_keys
from engine.base.segment import Placement, Segment
from engine.kv_cache.protocol import KVCache, OwnKVCache
from engine.kv_cache.recorded_pass import FAR, Compute, RecordedPass

log = logging.getLogger(__name__)

ROWS = (16, 32, 48, 64, 96, 128)  # of recorded passes; more new tokens are computed
FEWEST = 256  # cached tokens; a shorter prompt is not worth a recording
MOST = 12  # recorded passes; the one that was not used for the longest time is dropped
SHARE = 4  # the buffer takes at most this part of the free memory


class RecordedPrefill:
    """Records first passes of prompts over the placements of a KV cache.

    Attributes:
        fault: the reason if they cannot be recorded, else "".
        replays: the number of passes that were recorded or replayed.
    """

    def __init__(self, rotaries: Rotaries) -> None:
        self.fault = ""
        self.replays = 0
        self._rotaries = rotaries
        self._memory: Tensor | None = None
        self._placed: dict[int, tuple[ref[Segment], int, int, int]] = {}  # by first column
        self._passes: dict[tuple[int, int], RecordedPass] = {}  # by rows and columns, latest use last

    def run(
        self, compute: Compute, token_ids: Sequence[int], positions: Sequence[int], kv: KVCache
    ) -> Tensor | None:
        """Returns the logits [1, vocabulary] of an announced pass; None if it must be computed."""
        own = kv.own
        if self.fault or own is None or own.watched or own.filled:
            return None
        if kv.cached_tokens < FEWEST or len(token_ids) > ROWS[-1]:
            return None
        try:
            logits = self._recorded(compute, token_ids, positions, own)
        except (RuntimeError, NotImplementedError) as error:  # of torch, or too little memory
            self.fault, self._memory = str(error).partition("\n")[0], None
            self._passes.clear()
            log.info("first passes are not recorded: %s", self.fault)
            return None
        self.replays += logits is not None
        return logits

    def _recorded(
        self, compute: Compute, token_ids: Sequence[int], positions: Sequence[int], kv: OwnKVCache
    ) -> Tensor | None:
        count, cached = len(token_ids), kv.cached_tokens
        rows = next(rows for rows in ROWS if rows >= count)
        columns = ROWS[-1] + bucket(cached)
        memory = self._room(columns, kv.placements[0].segment)
        if memory is None:
            return None
        self._fill(memory, kv.placements)
        places = torch.full((ROWS[-1] + cached,), FAR)
        places[:count] = torch.tensor(positions)
        places[ROWS[-1] :] = torch.cat([_visible(placement) for placement in kv.placements])
        made = self._passes.pop((rows, columns), None)
        if made is None:
            made = RecordedPass(memory[:, :, :, :columns], rows, rows)
        filler = rows - count
        all_ids, all_at = ([*of, *[of[-1]] * filler] for of in (token_ids, positions))
        logits = made.run(compute, all_ids, all_at, places, 0, 1)
        self._passes[rows, columns] = made
        if len(self._passes) > MOST:
            del self._passes[next(iter(self._passes))]
        kv.receive(memory[:, :, :, :count], made.windows)
        return logits

    def _room(self, columns: int, like: Segment) -> Tensor | None:
        """The buffer with at least these columns; None if the device has too little memory."""
        if self._memory is None or self._memory.shape[3] < columns:
            keys = like.keys
            if SHARE * 2 * keys[:, :, :1].nbytes * columns > free_bytes(keys.device):
                return None
            self._passes.clear()
            self._placed.clear()
            self._memory = None  # frees the old one first
            self._memory = keys.new_zeros((2, *keys.shape[:2], columns, keys.shape[3]))
        return self._memory

    def _fill(self, memory: Tensor, placements: Sequence[Placement]) -> None:
        """Copies the placements that are not at their columns yet."""
        before, self._placed = self._placed, {}  # an error leaves no wrong entry
        placed, end = {}, ROWS[-1]
        for placement in placements:
            start, end = end, end + placement.tokens
            segment, cut = placement.segment, slice(placement.lo, placement.hi)
            wanted = placed[start] = (ref(segment), placement.lo, placement.hi, placement.start)
            if before.get(start) != wanted:
                keys = move_keys(segment.keys[:, :, cut], self._rotaries, placement.shift)
                memory[0, :, :, start:end] = keys
                memory[1, :, :, start:end] = segment.values[:, :, cut]
        self._placed = placed


def bucket(tokens: int) -> int:
    """Returns the number of tokens, rounded up in steps of an eighth to a quarter of it."""
    step = 1 << max(0, tokens.bit_length() - 3)
    return -(-tokens // step) * step


def free_bytes(device: torch.device) -> int:
    """Returns the free memory of a device."""
    free: int = torch.cuda.mem_get_info(device)[0]
    return free


def _visible(placement: Placement) -> Tensor:
    """The position of each token of a placement; `FAR` for hidden ones."""
    places = torch.arange(placement.start, placement.start + placement.tokens)
    if placement.hidden:
        places[[at - placement.lo for at in placement.hidden]] = FAR
    return places
