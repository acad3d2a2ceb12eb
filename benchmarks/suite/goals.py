"""The goals of the suite, and whether its reports meet them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.studio.sweeps.turns import known, ratio
from benchmarks.base.case import SAME_TEXT

Reports = Mapping[str, dict[str, Any]]


@dataclass(frozen=True)
class Figure:
    """A measured value, with the lowest and highest of a round."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Goal:
    """A figure and its bound."""

    part: str  # of the suite
    words: str  # its name
    group: str  # of the part
    over: str  # the side in the numerator, or the name of a value
    under: str  # the side in the denominator; "" for a value, or for the median of a side
    bound: float  # the goal
    unit: str = ""  # of the figure
    sign: str = "≤"  # "≥" or "≤"; "" if the figure must equal the bound

    def figure(self, reports: Reports) -> Figure | None:
        """The measured figure; None if it was not measured."""
        group = self.found(reports)
        if group is None:
            return None
        if self.under:
            found = ratio(group["samples_ms"], self.over, self.under)
            return Figure(found["ratio"], found["low"], found["high"]) if found else None
        if self.over in group["values"]:
            value = float(group["values"][self.over])
            return Figure(value, value, value)
        if self.over in group["median_ms"]:
            samples = known(group["samples_ms"][self.over])
            return Figure(group["median_ms"][self.over], min(samples), max(samples))
        return None

    def found(self, reports: Reports) -> dict[str, Any] | None:
        """The group; None if it was not measured."""
        groups = reports.get(self.part, {}).get("groups", ())
        return next((group for group in groups if group["name"] == self.group), None)

    def met(self, figure: Figure) -> bool:
        """Whether the unrounded figure meets the bound."""
        if not self.sign:
            return figure.value == self.bound
        return figure.value >= self.bound if self.sign == "≥" else figure.value <= self.bound

    @property
    def asked(self) -> str:
        """The goal in words."""
        return f"{self.sign} {amount(self.bound, self.unit)}".lstrip()


_LARGE, _FP32, _BF16 = LABELS = ("1.1B bf16", "0.1B fp32", "0.1B bf16")
_SHELL, _LLAMA = "from the shell", "llama.cpp:decode"
_most = Goal
_least = partial(Goal, sign="≥")
_exact = partial(Goal, sign="")


def _each(
    part: str, words: str, over: str, under: str, bounds: tuple[float, ...], sign: str
) -> tuple[Goal, ...]:
    """A goal for each model; with two bounds, for the small ones."""
    labels = LABELS[-len(bounds) :]
    return tuple(
        Goal(part, words, label, over, under, bound, sign=sign)
        for label, bound in zip(labels, bounds, strict=True)
    )


GOALS = (
    _least("T1", "TTFT, uncached ÷ cached", _LARGE, "uncached", "cached", 110),
    *_each("T2", "TTFT, uncached ÷ cached", "uncached", "cached", (70, 80), "≥"),
    *_each("T3", "cached ÷ new tokens alone", "cached", "floor", (1.35, 1.8, 1.8), "≤"),
    *_each("T4", "paper's method ÷ ours", "copy", "cached", (1.1, 1.1, 1.1), "≥"),
    *_each("T5", "files, page cache warm ÷ memory", "files_later", "cached", (1.05, 1.15, 1.15), "≤"),
    *_each("T5", "files, page cache dropped ÷ memory", "files_cold", "cached", (1.2, 1.6, 1.6), "≤"),
    _most("T6", "64 modules ÷ 8, same tokens", "time to first token", "64", "8", 1.1),
    _most("T6", "64 modules ÷ one cache", "time per token", "64", "1", 1.05),
    _exact("T7", "tokens encoded outside the edited module", _FP32, "beyond the edited module", "", 0),
    _exact("T7", "tokens encoded after a reorder", _FP32, "after another order", "", 0),
    _exact("T7", "tokens encoded after text in between", _FP32, "after text between", "", 0),
    _most("T8", "first run ÷ uncached", "travel sample", "first", "uncached", 1.05),
    _most("T8", "first run with writing ÷ uncached", _LARGE, "first_written", "uncached", 0.8),
    _most("T9", "TTFT without the forward pass", _FP32, "all but the forward pass", "", 5, "ms"),
    _most("T10", "all diagnostics, p95", "2,000 lines", "diagnostics, 95%", "", 50, "ms"),
    _most("T10", "key press to mark, p95", "2,000 lines", "key to mark, 95%", "", 150, "ms"),
    *(
        _least("T11", f"attention {words} ÷ ours", f"{shape} heads, {shared} shared", side, "ours", bound)
        for words, side, shared, bounds in (
            ("over copies", "private", "all", (9, 2.5)),
            ("over copies", "private", "nothing", (0.95, 0.95)),
            ("without sharing", "unaware", "all", (2.5, 2.5)),
        )
        for shape, bound in zip(("own", "grouped"), bounds, strict=True)
    ),
    _least(
        "T11", "bytes of copies ÷ ours", "own heads, all shared", "keys and values, private ÷ ours", "", 20
    ),
    _least("T11", "one by one ÷ together", "8 prompts at once", "one_by_one", "batch", 4),
    _least("T11", "one by one ÷ together", "32 prompts at once", "one_by_one", "batch", 8),
    _most("T11", "reordered ÷ one order", "8 prompts at once", "batch_reordered", "batch", 1.05),
    _most("T11", "reordered ÷ one order", "32 prompts at once", "batch_reordered", "batch", 1.05),
    _most("T11", "TTFT of a newcomer ÷ alone", "a newcomer", "newcomer", "newcomer_alone", 2),
    _least(
        "arrivals",
        "rate, half shared ÷ nothing shared",
        "random arrivals",
        "half shared ÷ nothing shared, prompts a second",
        "",
        1.6,
    ),
    _most("T13", "token ÷ llama.cpp", _LARGE, "token", _LLAMA, 1.7),
    _most("T13", "token ÷ llama.cpp", _BF16, "token", _LLAMA, 1.7),
    *(
        _most("T13", "token with guesses ÷ llama.cpp", f"{name}, quoting", "step with guesses", _LLAMA, 1)
        for name in (_LARGE, _BF16, "bundled model")
    ),
    _most("T14", "`pml run`", _SHELL, "pml run", "", 3000, "ms"),
    _most("T14", "`pml run`", "with a studio running", "pml run", "", 500, "ms"),
    _most("T14", "`pml studio` to its page", _SHELL, "studio to its page", "", 4000, "ms"),
    _most("T14", "`pml check`", _SHELL, "pml check", "", 180, "ms"),
    _most("M1", "stored bytes ÷ keys and values", _LARGE, "stored by theory", "", 1.01),
    _most("M1", "stored bytes ÷ keys and values", _FP32, "stored by theory", "", 1.01),
)


def amount(value: float, unit: str = "") -> str:
    """A figure with three digits; whole numbers and figures of 100 and more have no decimals."""
    digits = f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return f"{digits} {unit}".rstrip()


def verdicts(reports: Reports) -> list[tuple[Goal, Figure | None, str]]:
    """Every goal with its figure, and "met", "missed" or the reason for no figure."""
    found: list[tuple[Goal, Figure | None, str]] = []
    for goal in GOALS:
        figure, group = goal.figure(reports), goal.found(reports)
        if figure is None:
            found.append((goal, None, _missing(goal, reports, group)))
            continue
        other = ": another text" if group and group["values"].get(SAME_TEXT) == "no" else ""
        found.append((goal, figure, "met" if goal.met(figure) and not other else f"missed{other}"))
    return found


def _missing(goal: Goal, reports: Reports, group: dict[str, Any] | None) -> str:
    """The reason for no figure."""
    if error := reports.get(goal.part, {}).get("error"):
        return f"failed: {error}"
    peer = goal.under.partition(":")[0]
    absent = group["peers"].get(peer, {}).get("absent") if group else ""
    return f"not measured: {absent}" if absent else "not measured"


def rows(reports: Reports) -> list[list[str]]:
    """The table of goals: part, figure, group, measured value with its range, goal, verdict."""
    found = []
    for goal, figure, verdict in verdicts(reports):
        measured = "–"
        if figure is not None:
            measured = amount(figure.value, goal.unit)
            if (low := amount(figure.low)) != (high := amount(figure.high)):
                measured += f" ({low} to {high})"
        found.append([goal.part, goal.words, goal.group, measured, goal.asked, verdict])
    return found
