"""The goals of the suite, and whether its reports meet them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.suite.sampling import ratio

Reports = Mapping[str, dict[str, Any]]
SAME_TEXT = "same text"  # "no": the faster way gave another answer, so the goal is missed


@dataclass(frozen=True)
class Figure:
    """A measured value and its range.

    Attributes:
        value: the figure.
        low: the lowest of a round, or the figure.
        high: the highest.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Goal:
    """A figure and its bound.

    Attributes:
        part: the part of the suite that measures it.
        words: its name.
        group: the group of the part.
        over: the way in the numerator, or the name of a value.
        under: the way in the denominator; "" for a value, or for the median of a way in milliseconds.
        bound: the goal.
        least: whether the bound is a minimum, not a maximum.
        exact: whether the figure must equal the bound.
        unit: of the figure.
    """

    part: str
    words: str
    group: str
    over: str
    under: str
    bound: float
    least: bool = False
    exact: bool = False
    unit: str = ""

    def figure(self, reports: Reports) -> Figure | None:
        """The measured figure; None if it was not measured."""
        for group in reports.get(self.part, {}).get("groups", ()):
            if group["name"] != self.group:
                continue
            if self.under:
                found = ratio(group["samples_ms"], self.over, self.under)
                return Figure(found["ratio"], found["low"], found["high"]) if found else None
            if self.over in group["values"]:
                value = float(group["values"][self.over])
                return Figure(value, value, value)
            if self.over in group["median_ms"]:
                known = [sample for sample in group["samples_ms"][self.over] if sample is not None]
                return Figure(group["median_ms"][self.over], min(known), max(known))
        return None

    def met(self, figure: Figure) -> bool:
        """Whether the unrounded figure meets the bound."""
        if self.exact:
            return figure.value == self.bound
        return figure.value >= self.bound if self.least else figure.value <= self.bound

    @property
    def asked(self) -> str:
        """The goal in words."""
        sign = "" if self.exact else "≥ " if self.least else "≤ "
        return f"{sign}{amount(self.bound, self.unit)}"


_LARGE, _FP32, _BF16 = "1.1B bf16", "0.1B fp32", "0.1B bf16"
_SHELL = "from the shell"


def _at_most(part: str, words: str, group: str, over: str, under: str, bound: float, unit: str = "") -> Goal:
    return Goal(part, words, group, over, under, bound, unit=unit)


def _at_least(part: str, words: str, group: str, over: str, under: str, bound: float) -> Goal:
    return Goal(part, words, group, over, under, bound, least=True)


_UNCACHED = "TTFT, uncached ÷ cached"
_FLOOR = "cached ÷ new tokens alone"
_PAPER = "paper's method ÷ ours"
_GUESSED, _LLAMA = "token with guesses ÷ llama.cpp", "llama.cpp:decode"
_COPIES, _UNAWARE = "attention over copies ÷ ours", "attention without sharing ÷ ours"
_REORDERED, _ARRIVING = "reordered ÷ one order", "random arrivals"
_KEPT = "half shared ÷ nothing shared, prompts a second"
_HELD, _ONE_BY_ONE = "keys and values, private ÷ ours", "one by one ÷ together"
_LATER, _COLD = "files, page cache warm ÷ memory", "files, page cache dropped ÷ memory"
GOALS = (
    _at_least("T1", _UNCACHED, _LARGE, "uncached", "cached", 110),
    _at_least("T2", _UNCACHED, _FP32, "uncached", "cached", 70),
    _at_least("T2", _UNCACHED, _BF16, "uncached", "cached", 80),
    _at_most("T3", _FLOOR, _LARGE, "tokens_cached", "tokens_floor", 1.35),
    _at_most("T3", _FLOOR, _FP32, "tokens_cached", "tokens_floor", 1.8),
    _at_most("T3", _FLOOR, _BF16, "tokens_cached", "tokens_floor", 1.8),
    _at_least("T4", _PAPER, _LARGE, "tokens_copy", "tokens_cached", 1.1),
    _at_least("T4", _PAPER, _FP32, "tokens_copy", "tokens_cached", 1.1),
    _at_least("T4", _PAPER, _BF16, "tokens_copy", "tokens_cached", 1.1),
    _at_most("T5", _LATER, _LARGE, "files_later", "cached", 1.05),
    _at_most("T5", _LATER, _FP32, "files_later", "cached", 1.15),
    _at_most("T5", _LATER, _BF16, "files_later", "cached", 1.15),
    _at_most("T5", _COLD, _LARGE, "files_cold", "cached", 1.2),
    _at_most("T5", _COLD, _FP32, "files_cold", "cached", 1.6),
    _at_most("T5", _COLD, _BF16, "files_cold", "cached", 1.6),
    _at_most("T6", "64 modules ÷ 8, same tokens", "time to first token", "64", "8", 1.1),
    _at_most("T6", "64 modules ÷ one cache", "time per token", "64", "1", 1.05),
    Goal(
        "T7", "tokens encoded outside the edited module", _FP32, "beyond the edited module", "", 0, exact=True
    ),
    Goal("T7", "tokens encoded after a reorder", _FP32, "after another order", "", 0, exact=True),
    Goal("T7", "tokens encoded after text in between", _FP32, "after text between", "", 0, exact=True),
    _at_most("T8", "first run ÷ uncached", "travel sample", "first", "uncached", 1.05),
    _at_most("T8", "first run with writing ÷ uncached", _LARGE, "first_written", "uncached", 0.8),
    _at_most("T9", "TTFT without the forward pass", _FP32, "all but the forward pass", "", 5, "ms"),
    _at_most("T10", "all diagnostics, p95", "2,000 lines", "diagnostics, 95%", "", 50, "ms"),
    _at_most("T10", "key press to mark, p95", "2,000 lines", "key to mark, 95%", "", 150, "ms"),
    _at_least("T11", _COPIES, "own heads, all shared", "private", "ours", 9),
    _at_least("T11", _COPIES, "grouped heads, all shared", "private", "ours", 2.5),
    _at_least("T11", _COPIES, "own heads, nothing shared", "private", "ours", 0.95),
    _at_least("T11", _COPIES, "grouped heads, nothing shared", "private", "ours", 0.95),
    _at_least("T11", _UNAWARE, "own heads, all shared", "unaware", "ours", 2.5),
    _at_least("T11", _UNAWARE, "grouped heads, all shared", "unaware", "ours", 2.5),
    _at_least("T11", "bytes of copies ÷ ours", "own heads, all shared", _HELD, "", 20),
    _at_least("T11", _ONE_BY_ONE, "8 prompts at once", "one_by_one", "batch", 4),
    _at_least("T11", _ONE_BY_ONE, "32 prompts at once", "one_by_one", "batch", 8),
    _at_most("T11", _REORDERED, "8 prompts at once", "batch_reordered", "batch", 1.05),
    _at_most("T11", _REORDERED, "32 prompts at once", "batch_reordered", "batch", 1.05),
    _at_most("T11", "TTFT of a newcomer ÷ alone", "a newcomer", "newcomer", "newcomer_alone", 2),
    _at_least("arrivals", "rate, half shared ÷ nothing shared", _ARRIVING, _KEPT, "", 1.6),
    _at_most("T13", "token ÷ llama.cpp", _LARGE, "token", "llama.cpp:decode", 1.7),
    _at_most("T13", "token ÷ llama.cpp", _BF16, "token", "llama.cpp:decode", 1.7),
    *(
        _at_most("T13", _GUESSED, f"{name}, quoting", "step with guesses", _LLAMA, 1)
        for name in (_LARGE, _BF16, "bundled model")
    ),
    _at_most("T14", "`pml run`", _SHELL, "pml run", "", 3000, "ms"),
    _at_most("T14", "`pml run`", "with a studio running", "pml run", "", 500, "ms"),
    _at_most("T14", "`pml studio` to its page", _SHELL, "studio to its page", "", 4000, "ms"),
    _at_most("T14", "`pml check`", _SHELL, "pml check", "", 180, "ms"),
    _at_most("M1", "stored bytes ÷ keys and values", _LARGE, "stored by theory", "", 1.01),
    _at_most("M1", "stored bytes ÷ keys and values", _FP32, "stored by theory", "", 1.01),
)


def amount(value: float, unit: str = "") -> str:
    """A figure with three digits; whole numbers and figures of 100 and more have no decimals."""
    digits = f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return f"{digits} {unit}".rstrip()


def verdicts(reports: Reports) -> list[tuple[Goal, Figure | None, str]]:
    """Every goal in order with its figure, and "met", "missed" or the reason that it has none."""
    found: list[tuple[Goal, Figure | None, str]] = []
    for goal in GOALS:
        figure = goal.figure(reports)
        if figure is not None:
            other = ": another text" if _another_text(goal, reports) else ""
            found.append((goal, figure, "met" if goal.met(figure) and not other else f"missed{other}"))
        else:
            found.append((goal, None, _missing(goal, reports)))
    return found


def _another_text(goal: Goal, reports: Reports) -> bool:
    groups = reports[goal.part]["groups"]
    return any(group["name"] == goal.group and group["values"].get(SAME_TEXT) == "no" for group in groups)


def _missing(goal: Goal, reports: Reports) -> str:
    """The reason that a goal has no figure."""
    report = reports.get(goal.part)
    if report is None:
        return "not measured"
    if "error" in report:
        return f"failed: {report['error']}"
    for group in report["groups"]:
        peer, _, what = goal.under.partition(":")
        if group["name"] == goal.group and what and group["peers"].get(peer, {}).get("absent"):
            return f"not measured: {group['peers'][peer]['absent']}"
    return "not measured"


def rows(reports: Reports) -> list[list[str]]:
    """The table of goals: part, figure, where, measured with its range, goal, verdict."""
    found = []
    for goal, figure, verdict in verdicts(reports):
        measured = "–"
        if figure is not None:
            measured = amount(figure.value, goal.unit)
            if (low := amount(figure.low)) != (high := amount(figure.high)):
                measured += f" ({low} to {high})"
        found.append([goal.part, goal.words, goal.group, measured, goal.asked, verdict])
    return found


def goals_table(reports: Reports) -> str:
    """The table of goals of these parts, for a terminal."""
    from app.cli.base.output import table

    return table(
        ["", "FIGURE", "OF", "MEASURED", "GOAL", ""], [row for row in rows(reports) if row[0] in reports]
    )
