"""Many prompts at once by other software, in turns with ours: the same weights, prompts of the same form.

- `batch`, `batch_reordered`: ours, as `benchmarks.crowd` has them.
- `llama.cpp:batch`, `llama.cpp:batch_reordered`: the tokens of such prompts in slots of llama.cpp.

What all prompts share is there before on both sides: our segments in memory, their prefix in a slot. Each
side is handed all prompts at once.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from benchmarks.crowd import Crowd
from benchmarks.peers import llamacpp, llamacpp_slots
from benchmarks.peers.peer import Shape
from benchmarks.turns import Way, ratio, timed
from engine.base.errors import PromptCacheError
from engine.base.events import FirstToken
from engine.batch.ticket import Ticket
from engine.prepared import PreparedPrompt

KINDS = ("batch", "batch_reordered")


def beside(
    crowd: Crowd, name: str, quantize: str, prompts: int, repeats: int, seed: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Times llama.cpp and ours in turns.

    Args:
        crowd: of our prompts.
        name: of the model.
        quantize: how its weights are rounded.
        prompts: how many are answered at once.
        repeats: samples of each way, each after one to warm up.
        seed: the seed of the turns.
        say: is told what goes on.

    Returns:
        `absent` (why it was not measured, in words; "" where it was), and where it was `version`, `prompts`,
        `median_ms`, `tokens_per_s` and `first_ms` (from handing all in to the first token of one, the mean
        over them), each by the name of a way, `ratios` (theirs ÷ ours, by the name of ours), and `settings`
        (what was chosen because it is faster, by the name of a way).
    """
    absent = llamacpp.missing()
    if not absent and quantize != "none":
        absent = "it is compared with weights that are not rounded; leave out --quantize."
    if not absent and crowd.model.device != "cpu":
        absent = "it is compared on the processor; add --device cpu."
    if absent:
        return {"absent": absent}
    say("opening llama.cpp")
    size = crowd.size
    ours = [_Ours(crowd, kind, prompts) for kind in KINDS]
    firsts: dict[str, list[float]] = {}
    try:
        with slotted(crowd, name, prompts, seed) as others:
            theirs = [_noting(way, others, firsts) for way in others.ways()]
            samples = timed([*(one.way(firsts) for one in ours), *theirs], repeats, seed, say)
            settings = others.settings()
    except PromptCacheError as error:
        return {"absent": f"it failed: {error}"}
    medians = {way: statistics.median(taken) for way, taken in samples.items()}
    return {
        "absent": "",
        "version": llamacpp.version(),
        "prompts": prompts,
        "median_ms": medians,
        "tokens_per_s": {way: 1000 * prompts * size.new / ms for way, ms in medians.items()},
        "first_ms": {way: statistics.median(found[1::2]) for way, found in firsts.items()},
        "ratios": {kind: ratio(samples, f"{llamacpp.NAME}:{kind}", kind) for kind in KINDS},
        "settings": settings,
    }


@contextlib.contextmanager
def slotted(crowd: Crowd, name: str, prompts: int, seed: int) -> Iterator[llamacpp_slots.SlottedWays]:
    """Opens llama.cpp with prompts of the form of ours in its slots.

    Args:
        crowd: of our prompts.
        name: of the model.
        prompts: how many are answered at once.
        seed: of the shape.

    Raises:
        PromptCacheError: as of `llamacpp_slots.opened`.
    """
    size, threads = crowd.size, torch.get_num_threads()
    shape = Shape(name, crowd.model.dtype, size.shared, size.modules, size.own, seed, threads, size.new)
    given = {kind: [_tokens(one) for one in crowd.prompts(kind, prompts)] for kind in KINDS}
    with llamacpp_slots.opened(shape, common_beginning(given["batch"], size.own), given) as others:
        yield others


def common_beginning(prompts: Sequence[Sequence[int]], own: int) -> list[int]:
    """The tokens that prompts begin with, all of them.

    Args:
        prompts: token ids of each.
        own: how many of a prompt by itself are taken for its own.
    """
    first, *others = prompts
    most = min(map(len, prompts)) if others else max(0, len(first) - own)
    end = next((at for at in range(most) if any(one[at] != first[at] for one in others)), most)
    return list(first[:end])


def _tokens(prompt: PreparedPrompt) -> list[int]:
    return list(prompt.tokenized.planned(None).plan.token_ids)


def _noting(way: Way, others: llamacpp_slots.SlottedWays, firsts: dict[str, list[float]]) -> Way:
    """A way of theirs that notes the first tokens of each run."""

    def run() -> float:
        taken = way.run()
        slots = others.answers(way.name.partition(":")[2])
        firsts.setdefault(way.name, []).append(statistics.mean(one.first_ms for one in slots))
        return taken

    return Way(way.name, run, way.prepare)


class _Ours:
    """Prompts of ours, handed in at once and followed to their first tokens.

    Args:
        crowd: makes and answers them.
        kind: of these.
        count: how many there are.
    """

    def __init__(self, crowd: Crowd, kind: str, count: int) -> None:
        self._crowd, self._kind, self._count = crowd, kind, count
        self._prompts: list[PreparedPrompt] = []

    def way(self, firsts: dict[str, list[float]]) -> Way:
        """All answers, named after the kind: milliseconds of the whole. Notes first tokens."""

        def run() -> float:
            came: list[float] = []
            started = time.perf_counter()
            tickets = [self._crowd.submit(self._kind, one, self._crowd.size.new) for one in self._prompts]
            threads = [threading.Thread(target=_follow, args=(one, came)) for one in tickets]
            for thread in threads:
                thread.start()
            for ticket in tickets:
                self._crowd.require_whole(self._kind, ticket.result())
            taken = (time.perf_counter() - started) * 1000
            for thread in threads:
                thread.join()
            firsts.setdefault(self._kind, []).append((statistics.mean(came) - started) * 1000)
            return taken

        return Way(self._kind, run, self._prepare)

    def _prepare(self) -> None:
        self._prompts = self._crowd.prompts(self._kind, self._count)


def _follow(ticket: Ticket, came: list[float]) -> None:
    """Notes when the first token of an answer came."""
    with contextlib.suppress(PromptCacheError):  # whoever waits for the answer is told
        next(event for event in ticket.events() if isinstance(event, FirstToken))
        came.append(time.perf_counter())
