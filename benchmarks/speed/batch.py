"""Many prompts at once: whole answers, a newcomer, random arrivals, and attention over shared text.

- `one_by_one`: each prompt has its whole answer before the next begins.
- `batch`: all at once, with the modules in the order of the schema.
- `batch_reordered`: all at once, with the modules in another order in each prompt.
- `batch_plain`: all at once, with the modules as plain text at the beginning of each prompt.
- `private`: all at once, with modules of its own for each prompt.
- `half`: all at once, with half of the modules shared.
"""

from __future__ import annotations

import contextlib
import copy
import math
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from queue import SimpleQueue

from torch import Tensor

from app.cli.base.options import ModelOptions
from app.studio.sweeps import crowd
from app.studio.sweeps.crowd import Size as Asked
from app.studio.sweeps.plan import FEW
from app.studio.sweeps.turns import Way, known, orders
from benchmarks.base.case import SAME_TEXT, Group, Report, Say, Sides, Size, case, report_of
from benchmarks.base.options import command, narrate, pace_of, size_of
from benchmarks.speed.attention import attention
from engine.base.errors import CancelledError, PromptCacheError
from engine.base.events import Answer, FirstToken
from engine.batch.passes import Pass
from engine.batch.ticket import Ticket
from engine.prepared import PreparedPrompt, PreparedSchema

__all__ = ["arrivals", "attention", "batch"]
KINDS = ("batch", "batch_reordered", "batch_plain", "private")
CHECKED = ("batch", "batch_reordered")  # their answers are compared with those of one by one
ARRIVING = ("one_by_one", "private", "half", "half_reordered", "batch", "batch_reordered")
DECODERS = 16  # answers in progress when a newcomer arrives
LONG = 1024  # tokens of these answers, which are cancelled
KEPT = 2.0  # a system keeps up while a token takes at most this many times its time alone
PER_SECOND = "tokens per second, "
_BEGUN = 4  # passes of all decoders before the newcomer arrives
_COMPARED = 8  # prompts whose answers are compared
_ALIKE = 0.75  # share of answers that must begin alike: with random bf16 weights, two tokens are often equal


class Crowd(crowd.Crowd):
    """Prompts of all kinds, and a newcomer.

    Attributes:
        peak: most bytes of keys and values in a pass since it was set to 0.
        waits: for each newcomer, the median milliseconds between two passes before it, and the longest while
            it is read.
    """

    def __init__(
        self, size: Size, asked: Asked, folder: Path, most: int, say: Say, *, private: int = 0
    ) -> None:
        self.private, self.peak, self.waits = private, 0, list[tuple[float, float]]()
        self.passes, self._came = list[Pass](), threading.Condition()
        say("encoding")
        model = copy.copy(size.loaded(say))  # its answers end by length only from now on
        super().__init__(model, folder, asked, most, size.seed)
        self.batch.answerer.watcher = self._watch

    def memory(self, most: int) -> int:
        """Bytes for all prompts and long answers at once."""
        tokens = (max(most, DECODERS) + 1) * (self.size.longest + LONG) + (
            self.private + 1
        ) * self.size.shared
        return tokens * self.model.bytes_per_token

    def fill(self) -> None:
        """Stores the modules of single prompts, and reads the plain text once."""
        if self.private:
            own = {name: text for n in range(self.private) for name, text in self.modules(f"p{n}m").items()}
            self.store("private", own)
            self.store("half", {**self.shared, **own})
        (first,) = self.prompts("batch_plain", 1)
        self.submit("batch_plain", first, 2).result()

    def start(self, kind: str, number: int) -> tuple[PreparedSchema, str]:
        """The schema of a prompt, and the prompt's text before its own."""
        if kind == "batch_plain":
            return self.schemas["batch"], " ".join(self.shared.values()) + " "
        plain = kind.removesuffix("_reordered")
        names = [*self.shared]
        if plain in ("private", "half"):
            common = 0 if plain == "private" else len(names) // 2
            names[common:] = [f"p{number % self.private}{name}" for name in names[common:]]
        if plain != kind:
            self.draw.shuffle(names)
        return self.schemas[plain], "".join(f"<{name}/>" for name in names)

    def submit(self, kind: str, prompt: PreparedPrompt, tokens: int) -> Ticket:
        """Submits a prompt for an answer of this length."""
        return self.engine(kind).submit(prompt, max_new_tokens=tokens, speculate="off")

    def newcomer(self, among: int) -> float:
        """Milliseconds to the first token of one more prompt, with other answers in progress."""
        *others, last = self.prompts("batch", among + 1)
        self.passes = []
        tickets = [self.submit("batch", one, LONG) for one in others]
        try:
            self._await_passes(tickets)
            started = time.perf_counter()
            ticket = self.submit("batch", last, 2)
            next(event for event in ticket.events() if isinstance(event, FirstToken))
            ended = time.perf_counter()
            ticket.result()
        finally:
            for one in tickets:
                one.cancel()
            for one in tickets:
                with contextlib.suppress(CancelledError):
                    one.result()
        if among:
            passes = list(pairwise(one.ended for one in self.passes if one.answers >= among))
            before = [(end - start) * 1000 for start, end in passes if end <= started]
            during = [(end - start) * 1000 for start, end in passes if end > started and start < ended]
            self.waits.append((statistics.median(before), max(during, default=0.0)))
        return (ended - started) * 1000

    def agreement(self, kinds: Sequence[str], count: int) -> dict[str, float | str]:
        """Compares answers at once with answers one by one: their first logits, and their beginnings."""
        worst, least = 0.0, 1.0
        bound, tokens = (1e-3, 8) if self.model.dtype == "fp32" else (0.1, 2)
        for kind in kinds:
            sources = [self.source(kind, number) for number in range(count)]
            ours = [schema.prompt(source) for schema, source in sources]
            found = dict(self.batch.answer_all(ours, max_new_tokens=8, speculate="off"))
            alike = 0
            for number, (_, source) in enumerate(sources[:_COMPARED]):
                alone = self.schemas["one_by_one"].prompt(source.replace('"batch"', '"one_by_one"', 1))
                one, together = self.submit("one_by_one", alone, tokens).result(), found[number]
                if not isinstance(together, Answer):
                    raise PromptCacheError(f"{kind}: a prompt has no answer: {together}")
                assert one.first_logits is not None
                assert together.first_logits is not None
                worst = max(worst, distance(together.first_logits, one.first_logits))
                alike += together.token_ids[:tokens] == one.token_ids
            least = min(least, alike / min(_COMPARED, count))
        same = "yes" if worst <= bound and least >= _ALIKE else "no"
        return {SAME_TEXT: same, "distance ÷ spread, of the worst": worst, "answers that begin alike": least}

    def _watch(self, made: Pass) -> None:
        with self._came:
            self.passes.append(made)
            self.peak = max(self.peak, made.nbytes)
            self._came.notify_all()

    def _await_passes(self, tickets: Sequence[Ticket]) -> None:
        """Waits until all these answers were in several passes together."""

        def begun() -> bool:
            return sum(one.answers >= len(tickets) for one in self.passes) >= _BEGUN

        with self._came:
            while tickets and not self._came.wait_for(begun, 0.5):
                if any(ticket.done for ticket in tickets):
                    raise PromptCacheError("an answer ended before a newcomer came; lower --shared.")


def distance(found: Tensor, wanted: Tensor) -> float:
    """Root mean square of the differences ÷ standard deviation of `wanted`; infinite for no number."""
    theirs = wanted.detach().float().cpu()
    apart = float((found.detach().float().cpu() - theirs).square().mean().sqrt() / theirs.std())
    return math.inf if math.isnan(apart) else apart


@contextlib.contextmanager
def opened(
    group: Group, size: Size, asked: Asked, most: int, say: Say, *, private: int = 0
) -> Iterator[Crowd]:
    """Opens a crowd, and writes its parameters into the group."""
    with (
        tempfile.TemporaryDirectory(prefix="pml-bench-") as folder,
        contextlib.closing(Crowd(size, asked, Path(folder), most, say, private=private)) as found,
    ):
        model = found.model
        about = {"model": model.name, "dtype": model.dtype, "weights": model.weights, "prompts": most}
        group.params = {**about, **vars(asked)}
        yield found


@case
def answers(
    group: Group, say: Say, size: Size, asked: Asked, count: int, kinds: Sequence[str] = KINDS
) -> Sides:
    """Whole answers to several prompts. The time one by one is extrapolated from a few."""
    with opened(group, size, asked, count, say, private=count if "private" in kinds else 0) as found:
        if found.model.alone:
            group.notes.append(f"{found.model.name} answers prompts one by one: {found.model.alone}")
        group.values |= found.agreement([kind for kind in kinds if kind in CHECKED], count)
        few = min(FEW, count)
        single = found.way("one_by_one", few)
        peaks: dict[str, int] = {}

        def run(kind: str, way: Way) -> float:
            found.peak = 0
            taken = way.run()
            peaks[kind] = max(found.peak, peaks.get(kind, 0))
            return taken

        ways = [Way("one_by_one", lambda: single.run() * count / few, single.prepare)]
        for kind in kinds:
            way = found.way(kind, count)
            ways.append(Way(kind, partial(run, kind, way), way.prepare))
        yield ways
        for kind in kinds:
            if kind != "private":  # the copy of what a single prompt reads would count twice
                group.values[f"MiB of keys and values, {kind}"] = peaks.get(kind, 0) / (1 << 20)


def rates(group: Report) -> Report:
    """Adds tokens per second of each side to the report of a group of `answers`."""
    for kind, samples in group["samples_ms"].items():
        tokens = group["params"]["prompts"] * group["params"]["new"]
        group["values"][f"{PER_SECOND}{kind}"] = 1000 * tokens / statistics.median(known(samples))
    return group


@case
def newcomer(group: Group, say: Say, size: Size, asked: Asked) -> Sides:
    """The first token of one more prompt, alone and among others."""
    with opened(group, size, asked, DECODERS, say) as found:
        if found.model.alone:
            group.notes.append(f"not measured: {found.model.name} answers prompts one by one")
            yield []
            return
        group.values |= found.agreement(CHECKED[:1], DECODERS + 1)
        yield [
            Way("newcomer", lambda: found.newcomer(DECODERS)),
            Way("newcomer_alone", lambda: found.newcomer(0)),
        ]
        steps, gaps = zip(*found.waits, strict=True)
        group.values["ms between two tokens of the others"] = statistics.median(steps)
        group.values["longest ms while it is read"] = max(gaps)


@dataclass(frozen=True)
class Rates:
    """Arrivals: number of prompts, and rates by the time of one answer."""

    count: int = 48
    rates: tuple[float, ...] = (1.5, 2.5, 4.0, 6.0)


@case
def arriving(group: Group, say: Say, size: Size, asked: Asked, given: Rates) -> Sides:
    """Prompts that arrive at random: the time of a token by rate, waiting included.

    A system keeps up with a rate if a token takes at most `KEPT` times its time alone.
    """
    with opened(group, size, asked, given.count, say, private=given.count) as found:
        if not found.model.alone:
            group.values |= found.agreement(CHECKED, min(given.count, _COMPARED))
        for kind in ARRIVING:
            _arrive(found, kind, [0.0])  # warms up
        alone = statistics.median(_arrive(found, "one_by_one", [0.0]) for _ in range(3))
        group.values["a token alone, ms"] = alone
        per_second = [rate * 1000 / (alone * asked.new) for rate in given.rates]
        keeping = dict.fromkeys(ARRIVING, 0.0)
        going = list(ARRIVING)
        for number, rate in enumerate(per_second):
            times = _due(rate, given.count, size.seed + number)
            (order,) = orders(len(going), 1, size.seed + number)
            for kind in [going[index] for index in order]:
                say(f"{kind}, {rate:.3g} prompts a second")
                took = _arrive(found, kind, times)
                group.values[f"{kind}, a token at {rate:.2f} prompts a second, ms"] = took
                if took <= KEPT * alone:
                    keeping[kind] = rate
                else:
                    going.remove(kind)
        group.values |= {f"{kind}, keeps up with, prompts a second": rate for kind, rate in keeping.items()}
        if keeping["private"]:
            group.values["half shared ÷ nothing shared, prompts a second"] = (
                keeping["half"] / keeping["private"]
            )
        yield []


def _due(rate: float, count: int, seed: int) -> list[float]:
    """Seconds of the arrivals of a Poisson process since the first one."""
    draw = random.Random(seed)
    return list(accumulate((draw.expovariate(rate) for _ in range(count - 1)), initial=0.0))


def _arrive(found: Crowd, kind: str, times: Sequence[float]) -> float:
    """Mean milliseconds of a token of prompts that arrive at these times, waiting included."""
    prompts, tickets = found.prompts(kind, len(times)), list[Ticket]()
    ended: SimpleQueue[tuple[int, float]] = SimpleQueue()
    began = time.perf_counter()
    for number, (prompt, after) in enumerate(zip(prompts, times, strict=True)):
        time.sleep(max(0.0, began + after - time.perf_counter()))
        tickets.append(found.submit(kind, prompt, found.size.new))
        tickets[-1].when_done(partial(_note, ended, number))
    waits = [at - began - times[number] for number, at in (ended.get() for _ in tickets)]
    for ticket in tickets:
        found.require_whole(kind, ticket.result())
    return statistics.fmean(waits) * 1000 / found.size.new


def _note(ended: SimpleQueue[tuple[int, float]], number: int) -> None:
    ended.put((number, time.perf_counter()))


@command(prompts=8, shared=2048, modules=8, own=64, tokens=64, repeats=5, seed=0)
def batch(
    options: ModelOptions,
    prompts: int,
    shared: int,
    modules: int,
    own: int,
    tokens: int,
    repeats: int,
    seed: int,
) -> Report:
    """Whole answers to many prompts at once, and the first token of a newcomer.

    All prompts read the same stored modules and end with a text of their own. `one_by_one` answers them one
    after the other, `batch` together, `batch_reordered` together in another order of modules each,
    `batch_plain` with the modules as plain text, and `private` with modules of its own for each prompt.
    """
    asked, size = Asked(shared, modules, own, tokens), size_of(options, shared, modules, own, seed)
    cases = [answers("", size, asked, prompts), newcomer("a newcomer", size, asked)]
    report = report_of(cases, pace_of(repeats, seed), narrate)
    rates(report["groups"][0])
    return report


@command(prompts=48, shared=2048, modules=8, own=64, tokens=32, seed=0)
def arrivals(
    options: ModelOptions, prompts: int, shared: int, modules: int, own: int, tokens: int, seed: int
) -> Report:
    """The time of a token by how many prompts arrive in a second, waiting included."""
    asked, size = Asked(shared, modules, own, tokens), size_of(options, shared, modules, own, seed)
    case = arriving("random arrivals", size, asked, replace(Rates(), count=prompts))
    return report_of([case], pace_of(1, seed), narrate)
