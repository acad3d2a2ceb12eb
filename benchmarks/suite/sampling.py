"""Samples of ways that take turns, the long ones in few of the rounds, other software among them."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from benchmarks.suite.scale import Scale, Size
from benchmarks.turns import Way, orders

Samples = dict[str, list[float | None]]
Say = Callable[[str], None]
PER_SECOND = "tokens per second, "  # before the name of a way, of a value
OF_A_PEER = ":"  # in a way's name, between the peer's and what it does
# How long a first run takes: from here on a way is warmed up once, and is in some of the rounds.
SECONDS_MS = 2_000.0
# And from here on in few, its first run among the samples: it is warm soon after its start.
LONG_MS = 20_000.0


@dataclass
class Group:
    """What was measured together, and can be compared.

    Attributes:
        name: of the group within its part.
        params: what it was measured over.
        samples: milliseconds by way and round; None in a round that the way was left out of.
        values: single figures by name.
        peers: by the name of other software: version, why it was not measured, "" where it was, and settings
            that were chosen because they are faster, where there is a choice.
        notes: what a reader must know of it.
    """

    name: str
    params: dict[str, Any] = field(default_factory=dict)
    samples: Samples = field(default_factory=dict)
    values: dict[str, float | int | str] = field(default_factory=dict)
    peers: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def measure(self, ways: Sequence[Way], scale: Scale, say: Say, *, rounds: int = 0) -> None:
        """Takes the samples of ways that take turns. How long a first run takes decides how many there are.

        Args:
            ways: with different names; one of a peer may fail, which is noted.
            scale: how often each is run.
            say: is told of each round.
            rounds: samples of ways that are soon done, if not those of the scale.
        """
        count = rounds or scale.rounds
        samples: Samples = {way.name: [] for way in ways}
        took: dict[str, float] = {}  # by the first run of a way
        within: dict[str, frozenset[int]] = {}  # the rounds that a way is in; empty where it has failed
        for number, order in enumerate(orders(len(ways), count, 0)):
            for index in order:
                way = ways[index]
                if number not in within.get(way.name, {number}):
                    samples[way.name].append(None)
                    continue
                try:
                    if way.name in within:
                        soon = took[way.name] < SECONDS_MS
                        samples[way.name].append(_warm_sample(way) if soon else _sample(way))
                        continue
                    took[way.name] = first = _sample(way)
                    within[way.name] = _rounds_of(first, count, scale)
                    samples[way.name].append(first if first >= LONG_MS else _sample(way))
                except Exception as error:
                    if OF_A_PEER not in way.name:
                        raise
                    within[way.name] = frozenset()
                    samples[way.name] = [None] * (number + 1)  # half a set of samples is none
                    self.notes.append(f"{way.name} failed: {type(error).__name__}: {error}")
            say(f"{self.name}: round {number + 1} of {count}")
        self.samples |= {name: taken for name, taken in samples.items() if any(s is not None for s in taken)}

    def add(self, name: str, samples: Sequence[float]) -> None:
        """Takes samples of something that took turns with nothing, and their 95th percentile."""
        self.samples[name] = list(samples)
        self.values[f"{name}, 95%"] = sorted(samples)[min(len(samples) - 1, int(len(samples) * 0.95))]

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name, and the median of every way."""
        return {
            "name": self.name,
            "params": self.params,
            "samples_ms": self.samples,
            "median_ms": {name: statistics.median(known(taken)) for name, taken in self.samples.items()},
            "values": self.values,
            "peers": self.peers,
            "notes": self.notes,
        }


def known(samples: Sequence[float | None]) -> list[float]:
    """The samples of the rounds that a way was in."""
    return [sample for sample in samples if sample is not None]


def ratio(samples: Mapping[str, Sequence[float | None]], over: str, under: str) -> dict[str, float] | None:
    """One time by another: of the medians, and the least and the greatest of a round that both were in.

    Where they share no round, the least and the greatest are of any two samples; the ratio itself is never
    outside of them. None where one is missing.
    """
    upper, lower = known(samples.get(over, ())), known(samples.get(under, ()))
    if not upper or not lower:
        return None
    pairs = zip(samples[over], samples[under], strict=False)
    each = [one / other for one, other in pairs if one is not None and other is not None]
    each = each or [min(upper) / max(lower), max(upper) / min(lower)]
    whole = statistics.median(upper) / statistics.median(lower)
    return {"ratio": whole, "low": min(whole, *each), "high": max(whole, *each)}


def _rounds_of(first_ms: float, count: int, scale: Scale) -> frozenset[int]:
    """The rounds that a way is in whose first run took so long, as far apart as they can be."""
    many = scale.few if first_ms >= LONG_MS else scale.some if first_ms >= SECONDS_MS else count
    many = min(many, count)
    return frozenset(round(number * (count - 1) / max(many - 1, 1)) for number in range(many))


def _sample(way: Way) -> float:
    way.prepare()
    return way.run()


def _warm_sample(way: Way) -> float:
    """The second of two runs."""
    _sample(way)
    return _sample(way)


@contextlib.contextmanager
def beside(
    group: Group, size: Size, scale: Scale, wanted: Iterable[str], say: Say, *, answers: Sequence[int] = ()
) -> Iterator[list[Way]]:
    """Opens other software over the same shape, as far as it is here.

    Args:
        group: is told which there is, which is missing, and why.
        size: the shape.
        scale: whether others are measured at all.
        wanted: what they are to do, as in "prefix".
        say: is told what goes on.
        answers: counts of tokens of answers; each is a way of its own, named "peer:answer 16".

    Yields:
        Their ways, named "peer:what".
    """
    if not scale.peers:
        yield []
        return
    from benchmarks.peers import Opened, Shape, all_peers

    threads = torch.get_num_threads()
    longest = max(answers, default=16)
    shape = Shape(size.model, size.dtype, size.cached, size.modules, size.new, 0, threads, longest)
    kinds = set(wanted)
    ways: list[Way] = []
    running: dict[str, Opened] = {}
    with contextlib.ExitStack() as stack:
        for peer in all_peers():
            group.peers[peer.name] = {"version": peer.version, "absent": peer.absent}
            if peer.absent:
                continue
            say(f"{group.name}: opening {peer.name}")
            try:
                running[peer.name] = one = stack.enter_context(peer.open(shape))
                found = one.ways()
                if any(way.name.endswith(":answer") for way in found):
                    ways += [replace(one.answer(n), name=f"{peer.name}:answer {n}") for n in answers]
            except Exception as error:
                group.peers[peer.name]["absent"] = f"failed: {type(error).__name__}: {error}"
                continue
            ways += [way for way in found if way.name.partition(OF_A_PEER)[2] in kinds]
        yield ways
        for name, opened in running.items():
            if chosen := opened.settings():
                group.peers[name]["settings"] = grouped(chosen)


def grouped(settings: Mapping[str, str]) -> str:
    """What was chosen for each way, in words: those of one choice together."""
    kinds: dict[str, list[str]] = {}
    for way, words in settings.items():
        kinds.setdefault(words, []).append(way.partition(OF_A_PEER)[2])
    return "; ".join(f"{', '.join(sorted(found))} {words}" for words, found in kinds.items())


def arithmetic(model: Any, size: Size) -> dict[str, float]:
    """The time that the products of the new tokens' forward pass take at the rate of large ones here, in ms.

    A limit of arithmetic alone: reading weights, keys and values from memory is not in it.
    """
    rate = _rate(model.torch_dtype, model.network.device)
    config = model.config
    layers, hidden = config.num_hidden_layers, config.hidden_size
    heads, kv = config.num_attention_heads, config.num_key_value_heads
    width = getattr(config, "head_dim", None) or hidden // heads
    weights = layers * (hidden * width * (2 * heads + 2 * kv) + 3 * hidden * config.intermediate_size)
    projections = 2.0 * weights * size.new + 2.0 * hidden * config.vocab_size
    seen = size.new * (size.cached + size.new / 2)
    attention = 4.0 * layers * heads * width * seen
    return {"gflops_per_s": rate / 1e9, "limit_ms": (projections + attention) / rate * 1000}


def _rate(dtype: torch.dtype, device: Any, side: int = 1024) -> float:
    """Floating-point operations per second of the fastest of some large products."""
    import time

    left = torch.randn(side, side, device=device).to(dtype)
    right = torch.randn(side, side, device=device).to(dtype)
    best = float("inf")
    for _ in range(8):
        started = time.perf_counter()
        left @ right
        if left.device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return 2.0 * side**3 / best
