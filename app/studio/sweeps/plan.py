"""The plan of a sweep: one thing changes from point to point. Also its cost, and its report as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from app.batch.batch_table import safe_cell
from engine.base.choices import SCOPES, TIMELINE_PARTS
from engine.base.errors import PromptCacheError

Axis = Literal["cached", "new", "modules", "scope", "repair", "prompts"]
Value: TypeAlias = int | str
AXES: Final[Mapping[Axis, str]] = MappingProxyType(
    {
        "cached": "tokens in stored modules",
        "new": "new tokens after them",
        "modules": "modules that the same tokens are split over",
        "scope": "what a module sees while it is encoded",
        "repair": "cached tokens that are computed again",
        "prompts": "prompts that are answered at once",
    }
)
DEFAULTS: Final[Mapping[Axis, tuple[Value, ...]]] = MappingProxyType(
    {
        "cached": (128, 256, 512, 1024),
        "new": (8, 32, 128, 256),
        "modules": (1, 4, 16, 64),
        "scope": tuple(SCOPES),
        "repair": ("none", "link:8", "blend:0.15", "query:0.15", "impact:0.15"),
        "prompts": (1, 2, 4, 8),
    }
)
IN_WORDS: Final = ("scope", "repair")
MOST_POINTS = 12
MOST_REPEATS = 50
ANSWER_TOKENS = 16  # of each answer of the axis `prompts`
FEW = 4  # prompts one by one: the time of a token does not depend on their number
SAMPLE_RUNS = 2  # to a sample: the first warms up
_PASS = 16  # what a pass costs besides its tokens, in tokens


@dataclass(frozen=True)
class Sweep:
    """What is measured: the points of one axis, and what stays the same at all of them.

    Attributes:
        axis: what changes.
        values: its values, each a point; () for the usual ones.
        cached: tokens in all modules together.
        modules: how many modules there are.
        new: tokens behind them.
        repeats: samples of each way at each point.
        seed: the seed of texts, tokens and orders.

    Raises:
        PromptCacheError: a number or a name that cannot be measured.
    """

    axis: Axis
    values: tuple[Value, ...] = ()
    cached: int = 512
    modules: int = 8
    new: int = 32
    repeats: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.axis not in AXES:
            raise PromptCacheError(f"There is no axis {self.axis!r}. Use {_or(AXES)}.")
        values = tuple(dict.fromkeys(self.values or DEFAULTS[self.axis]))
        if len(values) > MOST_POINTS:
            raise PromptCacheError(f"A sweep has at most {MOST_POINTS} points, not {len(values)}.")
        in_words = self.axis in IN_WORDS
        wrong = [one for one in values if isinstance(one, str) != in_words]
        if wrong:
            kind = "a name" if in_words else "a whole number"
            raise PromptCacheError(f"{wrong[0]!r} is not a value of {self.axis!r}, which needs {kind}.")
        if self.axis == "scope" and not set(values) <= set(SCOPES):
            raise PromptCacheError(
                f"A scope is {_or(SCOPES)}, not {next(iter(set(values) - set(SCOPES)))!r}."
            )
        object.__setattr__(self, "values", values)
        if not 1 <= self.repeats <= MOST_REPEATS:
            raise PromptCacheError(f"Repeats are {self.repeats}; they must be 1 to {MOST_REPEATS}.")
        for value in values:
            self._require(value)

    def _require(self, value: Value) -> None:
        cached, modules, new = self.at(value)
        if min(cached, modules, new) < 1 or (self.axis == "prompts" and int(value) < 1):
            raise PromptCacheError("Tokens, modules, new tokens and prompts must each be at least 1.")
        if cached < modules:
            raise PromptCacheError(
                f"{cached} cached tokens cannot be split over {modules} modules: a module needs a token."
            )

    def at(self, value: Value) -> tuple[int, int, int]:
        """Cached tokens, modules and new tokens of a point."""
        fixed = {"cached": self.cached, "modules": self.modules, "new": self.new}
        if self.axis in fixed:
            fixed[self.axis] = int(value)
        return fixed["cached"], fixed["modules"], fixed["new"]

    def longest(self) -> int:
        """The most tokens that a prompt of it and its answer have."""
        more = ANSWER_TOKENS if self.axis == "prompts" else 1
        return max(sum(self.at(value)) for value in self.values) + more

    def units(self, value: Value, hidden: int) -> float:
        """What a point costs, in passes of one token; by it the time left is told.

        Args:
            value: the point.
            hidden: the model's width, by which the share of attention in a pass goes.
        """
        cached, modules, new = self.at(value)
        whole, rest = units(cached + new, 0, hidden), units(new, cached, hidden)
        encoding = modules * units(cached // modules, 0, hidden)
        runs = self.repeats * SAMPLE_RUNS
        if self.axis == "prompts":
            answer = rest + ANSWER_TOKENS * units(1, cached + new, hidden)
            return encoding + runs * answer * (int(value) + min(FEW, int(value)))
        if self.axis in IN_WORDS:
            again = 1.5 * cached if value not in ("none", *SCOPES) else 0.0
            return encoding + runs * (whole + rest + again)
        return encoding + runs * (whole + 3 * rest)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields by name."""
        names = ("axis", "cached", "modules", "new", "repeats", "seed")
        return {**{name: getattr(self, name) for name in names}, "values": list(self.values)}


def units(tokens: int, before: int, hidden: int) -> float:
    """What a pass over tokens behind others costs, in passes of one token."""
    return _PASS + tokens * (1 + (before + tokens / 2) / (6 * hidden))


COLUMNS: Final = (
    *("axis", "value", "way", "cached", "modules", "new", "samples", "median_ms", "least_ms", "most_ms"),
    *(
        "tokens_per_s",
        "encode_once_ms",
        "kl_first_token",
        *(f"{part}_ms" for part in TIMELINE_PARTS),
        "model",
        "dtype",
        "device",
    ),
)


def as_csv(report: Mapping[str, Any]) -> str:
    """The results of a report as a table, a row to each way at each point."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for one in report["results"]:
        samples, params = one["samples_ms"], one["params"]
        writer.writerow(
            {
                "axis": report["sweep"]["axis"],
                "value": one["value"],
                "way": one["name"],
                **{name: params[name] for name in ("cached", "modules", "new")},
                "samples": len(samples),
                "median_ms": f"{one['median_ms']:.3f}",
                "least_ms": f"{min(samples):.3f}",
                "most_ms": f"{max(samples):.3f}",
                **{name: one[name] for name in ("tokens_per_s", "kl_first_token") if name in one},
                **{f"{part}_ms": f"{ms:.3f}" for part, ms in one.get("timeline_ms", {}).items()},
                **{name: report["model"][name] for name in ("dtype", "device")},
                "encode_once_ms": f"{one['encode_ms']:.3f}" if "encode_ms" in one else "",
                "model": safe_cell(report["model"]["name"]),
            }
        )
    return out.getvalue()


def parsed_values(axis: Axis, words: Sequence[str]) -> tuple[Value, ...]:
    """Values as somebody wrote them.

    Raises:
        PromptCacheError: one is not a value of the axis.
    """
    if axis in IN_WORDS:
        return tuple(words)
    found: list[Value] = []
    for word in words:
        if not word.isascii() or not word.isdigit():
            raise PromptCacheError(f"{word!r} is not a whole number above 0, which axis {axis!r} needs.")
        found.append(int(word))
    return tuple(found)


def _or(names: Mapping[Any, str]) -> str:
    *most, last = names
    return f"{', '.join(most)} or {last}"
