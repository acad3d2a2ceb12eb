"""One measurement: a setup, and sides that take turns. All measurements have one report and one table."""

from __future__ import annotations

import contextlib
import functools
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from app.cli.base.output import table
from app.studio.sweeps.machine import facts
from app.studio.sweeps.turns import Samples, Way, in_turns, known
from engine.base.errors import PromptCacheError
from engine.base.stopwatch import milliseconds
from engine.model.loading import load
from engine.model.model import Model

Say = Callable[[str], None]
Report = dict[str, Any]
OF_A_PEER = ":"  # in the name of a side, between the other program and its task
SAME_TEXT = "same text"  # the value "no": the sides gave different answers, so no goal is met


@dataclass(frozen=True)
class Size:
    """A model with random modules."""

    label: str  # the name in results
    model: str  # the name of the model
    dtype: str = "auto"  # its number format
    cached: int = 4096  # tokens in all modules
    modules: int = 8  # number of modules
    new: int = 32  # tokens after them
    seed: int = 0  # of the texts
    loading: tuple[tuple[str, Any], ...] = ()  # device, weights and quantization, as pairs
    peers: bool = False  # whether other programs take turns

    def __post_init__(self) -> None:
        if min(self.cached, self.modules, self.new) < 1 or self.cached < self.modules:
            raise PromptCacheError(
                f"--cached {self.cached} cannot be split over --modules {self.modules}: a module needs a "
                "token, and --new at least one."
            )

    def of(self, cached: int, modules: int = 0) -> Size:
        """The same model with other counts."""
        return replace(self, cached=cached, modules=modules or self.modules)

    def loaded(self, say: Say, more: int = 1) -> Model:
        """Loads the model."""
        say(f"loading {self.model}")
        model = _loaded(self.model, self.dtype, self.loading)
        if (longest := self.cached + self.new + more) >= model.context_length:
            raise PromptCacheError(
                f"{longest} tokens do not fit the model's {model.context_length}; lower --cached."
            )
        return model

    def open(self, group: Group, say: Say, more: int = 1) -> Model:
        """Loads the model, and writes its parameters into the group."""
        model = self.loaded(say, more)
        group.params = self.params(model)
        return model

    def params(self, model: Model) -> dict[str, Any]:
        """The parameters in a report."""
        counts = {name: getattr(self, name) for name in ("cached", "modules", "new", "seed")}
        return {"model": model.name, "dtype": model.dtype, "weights": model.weights, **counts}


@functools.lru_cache(maxsize=1)
def _loaded(name: str, dtype: str, loading: tuple[tuple[str, Any], ...]) -> Model:
    return load(name, dtype=dtype, **dict(loading))


@dataclass(frozen=True)
class Pace:
    """The number of samples."""

    rounds: int = 5  # samples of each side
    # rounds of sides that take seconds, and of sides that take half a minute
    fewer: tuple[int, int] | None = None
    seed: int = 0  # of the orders


@dataclass
class Group:
    """The results of a case."""

    name: str  # of the case
    params: dict[str, Any] = field(default_factory=dict)  # the parameters
    # milliseconds by side and round; None for a round without the side
    samples: Samples = field(default_factory=dict)
    values: dict[str, float | int | str] = field(default_factory=dict)  # single figures by name
    # version, reason for absence and settings of other programs, by name
    peers: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # remarks for the reader

    def percentile(self, name: str, samples: Sequence[float]) -> None:
        """Takes samples of a single side, and their 95th percentile."""
        self.samples[name] = list(samples)
        self.values[f"{name}, 95%"] = sorted(samples)[min(len(samples) - 1, int(len(samples) * 0.95))]

    def to_json(self) -> Report:
        return {
            "name": self.name,
            "params": self.params,
            "samples_ms": self.samples,
            "median_ms": {name: statistics.median(known(taken)) for name, taken in self.samples.items()},
            "values": self.values,
            "peers": self.peers,
            "notes": self.notes,
        }


Setup = Callable[[Group, Say], AbstractContextManager[Sequence[Way]]]
Sides = Iterator[Sequence[Way]]
"""A setup as a generator: it yields the sides once."""


@dataclass(frozen=True)
class Case:
    """A measurement."""

    name: str  # the name of its group
    setup: Setup  # opens what is measured and gives the sides; writes parameters and values into the group
    rounds: int = 0  # samples of each side, if not those of the pace

    def measure(self, pace: Pace, say: Say) -> Group:
        """Opens the sides and runs them in turns. A side of another program may fail, which is noted."""
        group = Group(self.name)

        def failed(way: Way, error: Exception) -> None:
            if OF_A_PEER not in way.name:
                raise error
            group.notes.append(f"{way.name} failed: {type(error).__name__}: {error}")

        with self.setup(group, say) as sides:
            rounds = self.rounds or pace.rounds
            words = f"{self.name}: " if self.name else ""
            group.samples |= in_turns(
                sides, rounds, pace.seed, lambda what: say(f"{words}{what}"), fewer=pace.fewer, failed=failed
            )
        return group


def case(setup: Callable[..., Sides]) -> Callable[..., Case]:
    """Turns a generator `(group, say, ...)` into a function `(name, ..., rounds=0)` that makes a case."""
    opened = contextlib.contextmanager(setup)

    @functools.wraps(setup)
    def made(name: str, *given: Any, rounds: int = 0, **named: Any) -> Case:
        return Case(name, lambda group, say: opened(group, say, *given, **named), rounds)

    return made


def report_of(cases: Iterable[Case], pace: Pace, say: Say) -> Report:
    """Measures cases: `groups`, and the `machine`."""
    return {"groups": [case.measure(pace, say).to_json() for case in cases], "machine": facts()}


def words_of(report: Report) -> str:
    """The report as tables: the median and range of each side, and the first side's median ÷ its own."""
    parts = []
    for group in report["groups"]:
        rows, base = [], None
        for name, median in group["median_ms"].items():
            base = base or median
            samples = known(group["samples_ms"][name])
            span = f"{milliseconds(min(samples))} to {milliseconds(max(samples))}"
            rows.append([name, milliseconds(median), span, f"{base / median:.2f}"])
        lines = [group["name"]] if group["name"] else []
        if rows:
            lines.append(table(["", "MEDIAN", "RANGE", f"{rows[0][0].upper()} ÷"], rows))
        for name, value in group["values"].items():
            lines.append(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}")
        lines += [f"{name}: {one['absent']}" for name, one in group["peers"].items() if one["absent"]]
        parts.append("\n".join([*lines, *group["notes"]]))
        model = ", ".join(f"{name} {value}" for name, value in group["params"].items())
        parts[-1] += f"\n{model}" if model else ""
    return "\n\n".join([*parts, place(report)])


def place(report: Report) -> str:
    """The machine in one line."""
    return ", ".join(f"{name} {value}" for name, value in report["machine"].items())
