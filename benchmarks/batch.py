"""Many prompts at once against one after the other: tokens per second, and what a newcomer waits for.

All prompts read the same modules and end with a text of their own; the modules are stored and in memory.

- `one_by_one`: each has its whole answer before the next begins.
- `batch`: all at once, the modules in the order of the schema.
- `batch_reordered`: the same with the modules in another order in every prompt, so that no two begin alike.
- `batch_plain`: the same text stands as plain text at the beginning of every prompt, found at run time.
- `newcomer_alone`, `newcomer`: from handing a prompt in to its first token, by itself and among others.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.answers import text_of
from benchmarks.machine import machine
from benchmarks.turns import Way, ratio, timed
from engine.batch.ticket import Ticket
from engine.cache.store import Store
from engine.choices import Quantize, Weights
from engine.engine import Engine
from engine.errors import PromptCacheError
from engine.events import Answer, Delta, FirstToken
from engine.model.loading import load
from engine.model.model import Model
from engine.prepared import PreparedPrompt

DECODERS = 16  # answers under way when a newcomer comes
ARRIVALS = 32  # prompts of one trial of a rate


@dataclass(frozen=True)
class Size:
    """What is asked of every prompt.

    Attributes:
        prompts: how many there are.
        shared: tokens in the modules that all of them read.
        modules: how many these are.
        own: tokens of each one's own text.
        new: tokens of each answer.
    """

    prompts: int = 8
    shared: int = 2048
    modules: int = 8
    own: int = 64
    new: int = 64

    def __post_init__(self) -> None:
        counts = (self.prompts, self.shared, self.modules, self.own, self.new)
        if min(counts) < 1 or self.shared < self.modules or self.new < 2:
            raise PromptCacheError(
                "--prompts, --shared, --modules and --own must be at least 1, --shared at least --modules, "
                "--new at least 2."
            )


class Crowd:
    """Prompts over the same modules, and two engines over one model: one takes many at once, one does not.

    Args:
        model: the model that answers.
        folder: for two stores.
        size: how many prompts, and of what.
        seed: the seed of the texts.
        say: is told what goes on.

    Raises:
        PromptCacheError: an answer would not fit the model's context window.
    """

    def __init__(self, model: Model, folder: Path, size: Size, seed: int, say: Callable[[str], None]) -> None:
        longest = size.shared + size.own + size.new + size.modules
        if longest >= model.context_length:
            raise PromptCacheError(
                f"{longest} tokens do not fit the model's {model.context_length}; lower --shared."
            )
        self.size = size
        draw = random.Random(seed)
        sizes = [
            size.shared * (i + 1) // size.modules - size.shared * i // size.modules
            for i in range(size.modules)
        ]
        texts = [text_of(model, tokens, draw) for tokens in sizes]
        own = [text_of(model, size.own, draw) for _ in range(size.prompts + 1)]
        modules = "".join(f'<module name="m{i}">{text}</module>' for i, text in enumerate(texts))
        schema = f'<schema name="crowd">{modules}</schema>'
        self.batch = Engine(model, Store.open(folder / "batch"))
        self.single = Engine(model, Store.open(folder / "single"), deterministic=True)
        orders = [list(range(size.modules)) for _ in own]
        shuffled = [draw.sample(order, len(order)) for order in orders]
        plain = " ".join(texts)
        self.prompts: dict[str, list[PreparedPrompt]] = {}
        for name, engine, starts in (
            ("one_by_one", self.single, [_imports(order) for order in orders]),
            ("batch", self.batch, [_imports(order) for order in orders]),
            ("batch_reordered", self.batch, [_imports(order) for order in shuffled]),
            ("batch_plain", self.batch, [plain + " "] * len(orders)),
        ):
            prepared = engine.schema(schema)
            say(f"{name}: encoding")
            prepared.encode()
            self.prompts[name] = [
                prepared.prompt(f'<prompt schema="crowd">{start}{text}</prompt>')
                for start, text in zip(starts, own, strict=True)
            ]

    def close(self) -> None:
        """Closes both engines."""
        self.batch.close()
        self.single.close()

    def ways(self) -> list[Way]:
        """Answers to all prompts: milliseconds of the whole."""
        return [Way(name, self._asking(name)) for name in self.prompts]

    def _asking(self, name: str) -> Callable[[], float]:
        engine = self.single if name == "one_by_one" else self.batch
        prompts = self.prompts[name][: self.size.prompts]

        def run() -> float:
            started = time.perf_counter()
            answers = [
                found
                for _, found in engine.answer_all(prompts, max_new_tokens=self.size.new, speculate="off")
            ]
            taken = (time.perf_counter() - started) * 1000
            self._require_whole(name, answers)
            return taken

        return run

    def _require_whole(self, name: str, answers: Sequence[object]) -> None:
        for one in answers:
            if not isinstance(one, Answer):
                raise PromptCacheError(f"{name}: a prompt has no answer: {one}")
            if one.tokens["generated"] != self.size.new:
                raise PromptCacheError(
                    f"{name}: an answer ended after {one.tokens['generated']} tokens of {self.size.new}; "
                    "drawn weights may end one anywhere: try another --seed."
                )

    def newcomer(self, among: int) -> dict[str, float]:
        """Milliseconds to the first token of one more prompt while so many decode, and what these wait.

        Args:
            among: answers under way; 0 for none.

        Returns:
            `first_token` of the newcomer, and, of one of the others, `gap`, the longest time between two
            tokens while it was read, and `step`, the median before it came.
        """
        *others, last = (self.prompts["batch"] * (among // self.size.prompts + 1))[: among + 1]
        tickets = [self.batch.submit(one, max_new_tokens=1024, speculate="off") for one in others]
        begun = [threading.Event() for _ in tickets]
        times: list[list[float]] = [[] for _ in tickets]

        def follow(number: int) -> None:
            try:
                for event in tickets[number].events():
                    if isinstance(event, Delta):
                        times[number].append(time.perf_counter())
                    if len(times[number]) == 4:
                        begun[number].set()
            except PromptCacheError:
                pass  # cancelled below

        threads = [threading.Thread(target=follow, args=(number,)) for number in range(len(tickets))]
        for thread in threads:
            thread.start()
        for event in begun:
            event.wait()
        started = time.perf_counter()
        ticket = self.batch.submit(last, max_new_tokens=2, speculate="off")
        next(event for event in ticket.events() if isinstance(event, FirstToken))
        ended = time.perf_counter()
        for one in (*tickets, ticket):
            one.cancel()
        for thread in threads:
            thread.join()
        found = {"first_token": (ended - started) * 1000}
        if times:
            steps = list(pairwise(times[0]))
            found["step"] = statistics.median(b - a for a, b in steps if b <= started) * 1000
            during = (b - a for a, b in steps if b > started and a < ended)
            found["gap"] = max(during, default=0.0) * 1000
        return found

    def arriving(self, name: str, rate: float, count: int, seed: int) -> float:
        """Milliseconds per token of answers to prompts that arrive by themselves, waiting included; the mean.

        Args:
            name: the kind of prompts.
            rate: how many arrive a second, in the mean; the times between two are drawn (a Poisson process).
            count: how many arrive.
            seed: of those times.
        """
        engine = self.single if name == "one_by_one" else self.batch
        draw, tickets, ended = random.Random(seed), list[Ticket](), dict[int, float]()
        due = time.perf_counter()
        came = list[float]()
        for number in range(count):
            time.sleep(max(0.0, due - time.perf_counter()))
            came.append(due)
            prompt = self.prompts[name][number % self.size.prompts]
            tickets.append(engine.submit(prompt, max_new_tokens=self.size.new, speculate="off"))
            tickets[-1].when_done(lambda number=number: ended.__setitem__(number, time.perf_counter()))  # type: ignore[misc]
            due += draw.expovariate(rate)
        for ticket in tickets:
            self._require_whole(name, [ticket.result()])
        waits = (ended[number] - at for number, at in enumerate(came))
        return statistics.mean(waits) * 1000 / self.size.new

    def keeps_up(self, name: str, seed: int, say: Callable[[str], None]) -> dict[str, float]:
        """The highest rate of arrivals at which a token takes at most twice as long as without company.

        Returns:
            `rate`, in prompts a second, to a tenth; `alone`, milliseconds per token of those that meet none.
        """
        started = time.perf_counter()
        alone = statistics.mean(self.arriving(name, 1e9, 1, seed) for _ in range(3))
        rate = found = 3 * 0.5 / (time.perf_counter() - started)
        while True:
            say(f"{name}: {rate:.3g} prompts a second")
            if self.arriving(name, rate, ARRIVALS, seed) > 2 * alone:
                return {"rate": found, "alone": alone}
            found, rate = rate, rate * 1.1


def _imports(order: Sequence[int]) -> str:
    return "".join(f"<m{number}/>" for number in order)


def run(
    model: str,
    size: Size,
    *,
    device: str = "auto",
    dtype: str = "auto",
    weights: Weights = "auto",
    quantize: Quantize = "none",
    repeats: int = 5,
    seed: int = 0,
    arrivals: bool = False,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measures every way.

    Args:
        model: name of the model.
        size: how many prompts, and of what.
        device: "auto", "cpu" or "cuda".
        dtype: "auto", "fp32", "bf16" or "fp16".
        weights: "auto", "packed" or "plain".
        quantize: how they are rounded: "none", "int8" or "int4".
        repeats: samples of each way, each after a run of the same way to warm up.
        seed: the seed of the texts, and of the orders in which the ways take turns.
        arrivals: whether to look for the rates of arrivals that the kinds keep up with; takes long.
        progress: called with a line of text now and then.

    Returns:
        `results` (name, params, samples_ms, median_ms, and of whole batches tokens_per_s), `ratios` (name →
        one by one ÷ it; of the newcomer, among others ÷ alone), `decoders` (what the others wait), `among`
        (how many these are), `arrivals` (by name, as `Crowd.keeps_up`), `alone` (why prompts cannot go
        together, in words), `machine`.

    Raises:
        PromptCacheError: numbers that cannot be run, or a model that cannot be loaded.
    """
    say = progress or (lambda _: None)
    say(f"loading {model}")
    loaded = load(model, device=device, dtype=dtype, weights=weights, quantize=quantize)
    params = {"model": model, "dtype": loaded.dtype, **vars(size), "seed": seed}
    with tempfile.TemporaryDirectory(prefix="pml-bench-") as folder:
        crowd = Crowd(loaded, Path(folder), size, seed, say)
        try:
            samples = timed(crowd.ways(), repeats, seed, say)
            found = [_came(crowd, among, repeats, say) for among in (0, DECODERS)]
            rates = {name: crowd.keeps_up(name, seed, say) for name in crowd.prompts} if arrivals else {}
        finally:
            crowd.close()
    tokens = size.prompts * size.new
    results = [
        {
            "name": name,
            "params": params,
            "samples_ms": values,
            "median_ms": statistics.median(values),
            "tokens_per_s": 1000 * tokens / statistics.median(values),
        }
        for name, values in samples.items()
    ]
    for name, one in zip(("newcomer_alone", "newcomer"), found, strict=True):
        values = one["first_token"]
        results.append(
            {"name": name, "params": params, "samples_ms": values, "median_ms": statistics.median(values)}
        )
    among = {"newcomer": found[1]["first_token"], "alone": found[0]["first_token"]}
    return {
        "results": results,
        "ratios": {
            **{f"one_by_one/{name}": ratio(samples, "one_by_one", name) for name in samples},
            "newcomer/alone": ratio(among, "newcomer", "alone"),
        },
        "decoders": {"step": statistics.median(found[1]["step"]), "gap": max(found[1]["gap"])},
        "among": DECODERS,
        "arrivals": rates,
        "alone": loaded.alone,
        "machine": machine(loaded),
    }


def _came(crowd: Crowd, among: int, repeats: int, say: Callable[[str], None]) -> dict[str, list[float]]:
    """Samples of each figure, after a run to warm up."""
    found: dict[str, list[float]] = {}
    for number in range(repeats + 1):
        say(f"a newcomer among {among}: {number} of {repeats}")
        for name, ms in crowd.newcomer(among).items():
            if number:
                found.setdefault(name, []).append(ms)
    return found
