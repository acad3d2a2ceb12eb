"""Measures a sweep on a model, point after point, for the Benchmark page and `python -m benchmarks sweep`."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from app.studio.sweeps.drawn import drawn_tokens
from app.studio.sweeps.machine import machine
from app.studio.sweeps.passes import floor_way
from app.studio.sweeps.plan import SAMPLE_RUNS, Sweep, Value, units
from app.studio.sweeps.points import point
from app.studio.sweeps.turns import Way, timed
from engine.base.errors import PromptCacheError
from engine.checkpoint.synthetic import Shape
from engine.model.model import Model

_PROBE = 32  # tokens of the pass by which a model's pace is taken
_SIDE = 2048  # of the matrix by which that of a shape is
_SHARE = 0.6  # of the pace of such a product that a whole pass has
Report = dict[str, Any]
Tell = Callable[[float, float, str], None]
"""Is given what is done and all there is, in the units of `Sweep.units`, and what goes on. It may raise."""


@dataclass
class Sweeping:
    """One sweep on one model.

    Args:
        model: the model that is measured.
        sweep: the points.
        tell: called before every run; what it raises ends the sweep, and what was measured stays.
        turn: a context in which each point is measured, so that nothing else computes meanwhile.

    Attributes:
        report: `sweep`, `model`, `machine`, when it `started`, the `seconds` and `units` that it took,
            how it `ended` ("done" or "stopped"), and `results`: a name, a value, params, samples_ms and
            median_ms each, with what is known besides.

    Raises:
        PromptCacheError: a point does not fit the model.
    """

    model: Model
    sweep: Sweep
    tell: Tell
    turn: Callable[[], AbstractContextManager[Any]] = nullcontext
    report: Report = field(init=False)

    def __post_init__(self) -> None:
        require_fit(self.model, self.sweep)
        self.report = {
            "sweep": self.sweep.to_json(),
            "model": facts(self.model),
            "machine": machine(self.model),
            "started": datetime.now().astimezone().isoformat(timespec="seconds"),
            "seconds": 0.0,
            "units": 0.0,
            "ended": "stopped",
            "results": [],
        }
        self._total = total(width(self.model), self.sweep)

    def run(self) -> Report:
        """Measures all points; returns the report."""
        for _ in self.points():
            pass
        return self.report

    def points(self) -> Iterator[Report]:
        """Measures point after point, and yields the report after each."""
        started = time.perf_counter()
        for value in self.sweep.values:
            results = self.measure(value)
            self.report["results"] = [*self.report["results"], *results]
            self.report["seconds"] = time.perf_counter() - started
            self.report["units"] += self.sweep.units(value, width(self.model))
            if value == self.sweep.values[-1]:
                self.report["ended"] = "done"
            yield self.report

    def measure(self, value: Value) -> list[Report]:
        """The results of a point."""
        what = f"{self.sweep.axis} {value}"
        self._say(value, 0, f"preparing {what}")
        with (
            self.turn(),
            tempfile.TemporaryDirectory(prefix="pml-bench-") as folder,
            contextlib.closing(point(self.model, self.sweep, value, Path(folder))) as measured,
        ):
            ways = self._told(measured.ways(), value, f"measuring {what}")
            samples = timed(ways, self.sweep.repeats, self.sweep.seed)
            cached, modules, new = self.sweep.at(value)
            params = {"cached": cached, "modules": modules, "new": new, "seed": self.sweep.seed}
            return [
                {
                    "name": name,
                    "value": value,
                    "params": params,
                    "samples_ms": found,
                    "median_ms": statistics.median(found),
                    **measured.about(name, found),
                }
                for name, found in samples.items()
            ]

    def _told(self, ways: list[Way], value: Value, what: str) -> list[Way]:
        """The same ways, each of whose runs says first how far the sweep is."""
        runs, done = len(ways) * self.sweep.repeats * SAMPLE_RUNS, 0

        def telling(way: Way) -> Way:
            def run() -> float:
                nonlocal done
                self._say(value, done / runs, what)
                done += 1
                return way.run()

            return replace(way, run=run)

        return [telling(way) for way in ways]

    def _say(self, value: Value, share: float, what: str) -> None:
        present = self.sweep.units(value, width(self.model))
        self.tell(self.report["units"] + share * present, self._total, what)


def require_fit(model: Model, sweep: Sweep) -> None:
    """Refuses a sweep that a model cannot do.

    Raises:
        PromptCacheError: a point does not fit its context window, or it takes one prompt at a time.
    """
    longest = sweep.longest()
    if longest >= model.context_length:
        raise PromptCacheError(
            f"{longest:,} tokens do not fit the model's context window of {model.context_length:,}. "
            "Take fewer cached or new tokens."
        )
    if sweep.axis == "prompts" and model.alone:
        raise PromptCacheError(f"This model answers prompts one by one: {model.alone}.")


def total(hidden: int, sweep: Sweep) -> float:
    """What all points cost a model of this width, in the units of `Sweep.units`."""
    return sum(sweep.units(value, hidden) for value in sweep.values)


def pace(model: Model, seed: int = 0) -> float:
    """Units of `Sweep.units` that a model does in a second, by one short pass after one that warms up."""
    tokens = drawn_tokens(int(model.config.vocab_size), _PROBE, seed)
    way = floor_way(model, tokens, 0)
    way.run()
    return units(_PROBE, 0, width(model)) / way.run() * 1000


def pace_of_shape(shape: Shape) -> float:
    """About the same of a model of random weights that is not loaded, by how fast matrices multiply here."""
    rows = torch.ones(_PROBE * 4, _SIDE, dtype=shape.dtype)
    square = torch.ones(_SIDE, _SIDE, dtype=shape.dtype)
    rows @ square  # warms up
    started = time.perf_counter()
    rows @ square
    products = _PROBE * 4 * _SIDE * _SIDE / (time.perf_counter() - started)
    return products * _SHARE / shape.parameters


def width(model: Model) -> int:
    """A model's width, by which the share of attention in a pass goes."""
    return int(getattr(model.config, "hidden_size", 0) or 1024)


def facts(model: Model) -> dict[str, Any]:
    """What a report says of its model."""
    return {
        "name": model.name,
        "family": model.family,
        "fingerprint": model.fingerprint,
        "dtype": model.dtype,
        "device": model.device,
        "weights": model.weights,
        "bytes_per_token": model.bytes_per_token,
        "context_length": model.context_length,
    }
