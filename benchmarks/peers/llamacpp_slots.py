"""llama.cpp with many prompts in one pass, as its server has it with `--parallel N --kv-unified`.

Its C functions are called as that server calls them: one cache for all slots, passes of 2048 rows at most,
a beginning that slots have in common computed once. What prompts share is there before, in a slot of its own,
in the order of the schema; so where each has it in another order, it has little in common with any slot.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.peers.llamacpp import ATTENTION, NAME, Weights, faster
from benchmarks.peers.peer import Shape
from benchmarks.peers.slots import HELD, Row, Slot, Slots
from benchmarks.turns import Way
from engine.base.errors import PromptCacheError

ROWS = 2048  # of a pass, as its server has it by default
MOST_SLOTS = 255  # the library takes 256, and one holds what is there before


@contextlib.contextmanager
def opened(
    shape: Shape, held: Sequence[int], kinds: Mapping[str, Sequence[Sequence[int]]], cache_format: str = "F16"
) -> Iterator[SlottedWays]:
    """Loads the weights, and computes what is there before.

    Args:
        shape: of the model, and how many tokens an answer has.
        held: tokens of what prompts share, as far as they begin with it.
        kinds: prompts that are answered together, by the name of their way.
        cache_format: of keys and values, "F16" or "F32".

    Raises:
        PromptCacheError: llama.cpp is absent, the shape is not a plain llama, or there are too many prompts.
    """
    most = max(len(prompts) for prompts in kinds.values())
    if most > MOST_SLOTS:
        raise PromptCacheError(f"llama.cpp answers at most {MOST_SLOTS} prompts together, not {most}.")
    cells = max(sum(len(one) + shape.answer for one in prompts) for prompts in kinds.values())
    with Weights.loaded(shape) as weights:
        import llama_cpp

        sides: dict[bool, LlamaSlots] = {}
        for flash in ATTENTION:
            params = llama_cpp.llama_context_default_params()
            params.n_ctx = len(held) + cells
            params.n_batch = ROWS
            params.n_seq_max = most + 1
            params.kv_unified = True
            context = weights.context(params, shape.threads, flash, cache_format)
            sides[flash] = LlamaSlots(context, weights.vocabulary)
        try:
            for side in sides.values():
                side.hold(held)
            yield SlottedWays(sides, kinds, shape.answer)
        finally:
            for side in sides.values():
                side.free()


class SlottedWays:
    """Prompts answered together, without flash attention or with it; each way is timed as the faster one.

    Args:
        sides: with what is there before.
        kinds: prompts by the name of their way.
        new: tokens of each answer.
    """

    def __init__(
        self, sides: Mapping[bool, Slots], kinds: Mapping[str, Sequence[Sequence[int]]], new: int
    ) -> None:
        self._sides, self._kinds, self._new = sides, kinds, new
        self._most = max(len(prompts) for prompts in kinds.values())
        self._chosen: dict[str, bool] = {}
        self._answered: dict[tuple[str, bool], list[Slot]] = {}

    def ways(self) -> list[Way]:
        """All prompts of a kind, named `llama.cpp:kind`: milliseconds of the whole."""
        return [
            faster({on: self._way(kind, on) for on in self._sides}, self._telling(kind))
            for kind in self._kinds
        ]

    def settings(self) -> dict[str, str]:
        """With or without flash attention, by the name of each way that was run."""
        return {f"{NAME}:{kind}": ATTENTION[on] for kind, on in self._chosen.items()}

    def answers(self, kind: str) -> list[Slot]:
        """The prompts of a kind with their answers, as the last run left them."""
        return self._answered[kind, self._chosen[kind]]

    def _telling(self, kind: str) -> Callable[[bool], None]:
        def told(on: bool) -> None:
            self._chosen[kind] = on

        return told

    def _way(self, kind: str, on: bool) -> Way:
        side = self._sides[on]
        begun = side.placed(self._kinds[kind])

        def prepare() -> None:
            for number in range(self._most):
                side.release(HELD + 1 + number)
            self._answered[kind, on] = [Slot(one.number, one.prompt, one.begun) for one in begun]

        def run() -> float:
            return side.answered(self._answered[kind, on], self._new)

        return Way(f"{NAME}:{kind}", run, prepare)


class LlamaSlots(Slots):
    """A context of llama.cpp with a sequence for each slot.

    Args:
        context: of the C library.
        vocabulary: how many logits there are.
    """

    def __init__(self, context: Any, vocabulary: int) -> None:
        super().__init__(ROWS)
        import llama_cpp

        self._c, self._context, self._vocabulary = llama_cpp, context, vocabulary
        self._memory = llama_cpp.llama_get_memory(context)
        self._batch = llama_cpp.llama_batch_init(ROWS, 0, 1)

    def free(self) -> None:
        """Lets go of the rows of a pass; the context is its maker's."""
        self._c.llama_batch_free(self._batch)

    def release(self, slot: int) -> None:
        """Forgets what a slot holds."""
        assert slot != HELD
        self._c.llama_memory_seq_rm(self._memory, slot, -1, -1)

    def share(self, source: int, slot: int, tokens: int) -> None:
        """Makes the first tokens of a slot those of an empty one too; in one cache nothing is copied."""
        self._c.llama_memory_seq_cp(self._memory, source, slot, 0, tokens)

    def compute(self, rows: Sequence[Row]) -> list[int]:
        """Makes a pass; returns the likeliest token after each row of which it is wanted, in their order."""
        import numpy

        batch = self._batch
        batch.n_tokens = len(rows)
        for at, row in enumerate(rows):
            batch.token[at], batch.pos[at], batch.logits[at] = row.token, row.position, row.wanted
            batch.n_seq_id[at], batch.seq_id[at][0] = 1, row.slot
        if failed := self._c.llama_decode(self._context, batch):
            raise PromptCacheError(f"llama.cpp cannot compute {len(rows)} rows (its code: {failed}).")
        wanted = [at for at, row in enumerate(rows) if row.wanted]
        logits = [self._c.llama_get_logits_ith(self._context, at) for at in wanted]
        return [int(numpy.ctypeslib.as_array(one, (self._vocabulary,)).argmax()) for one in logits]
