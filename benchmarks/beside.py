"""Compares our times with those of other software, as a table and as sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.markdown import head, row
from benchmarks.suite.sampling import OF_A_PEER, ratio
from engine.base.stopwatch import milliseconds

OURS = {  # by the way of a peer: our way over the same tokens
    "full": ("uncached", "nothing cached"),
    "prefix": ("cached", "cached in memory"),
    "state_file": ("files_later", "cached in files"),
    "decode": ("token", "a token"),
    "answer": ("cached", "a whole answer"),
    "batch": ("batch", "all answers, one order"),
    "batch_reordered": ("batch_reordered", "all answers, reordered"),
}
LENGTHS = "lengths"
ABOUT = (
    "In parentheses: their time ÷ ours; **bold**: theirs is faster in every round; ~: the rounds disagree. "
    "Rows with fewer cached tokens are shown only if one is bold. llama.cpp: the faster of both settings of "
    "flash attention."
)
_LEVEL = 0.03  # smaller differences count as the same time


@dataclass(frozen=True)
class Pair:
    """A way of other software and our way over the same tokens.

    Attributes:
        part: the part of the suite.
        group: the group of the part.
        peer: the name of the other software.
        what: the task.
        ours: our median, in milliseconds.
        theirs: their median.
        ratio: theirs ÷ ours: of the medians, and the lowest and highest of a round.
    """

    part: str
    group: str
    peer: str
    what: str
    ours: float
    theirs: float
    ratio: dict[str, float]

    @property
    def slower(self) -> bool:
        """Whether theirs is faster in every round and by more than 3%."""
        return self.ratio["high"] < 1 and self.ratio["ratio"] < 1 - _LEVEL

    @property
    def cell(self) -> str:
        """Their time and the ratio: bold if theirs is faster, with ~ if the rounds disagree."""
        found = f"{milliseconds(self.theirs)} ({self.ratio['ratio']:.2f})"
        if self.slower:
            return f"**{found}**"
        return f"~{found}" if self.ratio["low"] <= 1 <= self.ratio["high"] else found

    @property
    def sentence(self) -> str:
        """Names the faster side and by how much."""
        times = f"{milliseconds(self.ours)} against {milliseconds(self.theirs)} of {self.peer}"
        about = f"{self.group}, {self.what}"
        if self.ratio["low"] <= 1 <= self.ratio["high"]:
            return f"{about}: neither is faster in every round ({times})."
        if self.ratio["ratio"] > 1 + _LEVEL:
            return f"{about}: ours is {self.ratio['ratio']:.2f} times as fast ({times})."
        if self.ratio["ratio"] < 1 - _LEVEL:
            return (
                f"{about}: **{self.peer} is {1 / self.ratio['ratio']:.2f} times as fast as ours** ({times})."
            )
        return f"{about}: both take the same time within 3% ({times})."


def pairs(reports: Mapping[str, dict[str, Any]], parts: tuple[str, ...] = ()) -> Iterator[Pair]:
    """Every way of other software that has one of ours in its group.

    Args:
        reports: of the suite by part.
        parts: the parts to compare; all if empty.
    """
    for part, report in reports.items():
        if parts and part not in parts:
            continue
        for group in report["groups"]:
            for way in group["samples_ms"]:
                peer, _, kind = way.partition(OF_A_PEER)
                if kind not in OURS:
                    continue
                mine, what = OURS[kind]
                if mine not in group["samples_ms"] and kind == "decode":
                    mine = "step with guesses"
                    what = "a token, ours with guesses"
                found = ratio(group["samples_ms"], way, mine)
                if found is not None:
                    medians = group["median_ms"]
                    yield Pair(part, group["name"], peer, what, medians[mine], medians[way], found)


def absent(reports: Mapping[str, dict[str, Any]]) -> list[str]:
    """A sentence for each other program that was not measured or failed."""
    said: dict[str, None] = {}
    for report in reports.values():
        for group in report["groups"]:
            for name, peer in group["peers"].items():
                if peer["absent"]:
                    said[f"{name} was not measured: {peer['absent']}"] = None
            said |= dict.fromkeys(f"{group['name']}: {note}" for note in group["notes"])
    return list(said)


def versions(reports: Mapping[str, dict[str, Any]]) -> str:
    """The names and versions of the other software."""
    found = {
        f"{name} {peer['version'].partition(' (')[0]}".strip(): None
        for report in reports.values()
        for group in report["groups"]
        for name, peer in group["peers"].items()
        if not peer["absent"]
    }
    return ", ".join(found)


def beside(reports: Mapping[str, dict[str, Any]]) -> str:
    """The section: a table of the pairs, of other lengths only the rows in which other software is faster."""
    found = list(pairs(reports))
    missing = [f"- {sentence}" for sentence in absent(reports)]
    if not found:
        return "\n".join(["No other software was measured.", "", *missing]).rstrip()
    tasks: dict[tuple[str, str, str], dict[str, Pair]] = {}
    for pair in found:
        tasks.setdefault((pair.part, pair.group, pair.what), {})[pair.peer] = pair
    peers = dict.fromkeys(pair.peer for pair in found)
    lines, before = head("", "", "ours", *peers), ""
    for (part, group, what), measured in tasks.items():
        if part == LENGTHS and not any(pair.slower for pair in measured.values()):
            continue
        ours = milliseconds(next(iter(measured.values())).ours)
        cells = (measured[peer].cell if peer in measured else "–" for peer in peers)
        lines.append(row("" if group == before else group, what, ours, *cells))
        before = group
    faster = sum(pair.slower for pair in found)
    words = f"Other software is faster in {faster} of {len(found)} comparisons. {ABOUT}"
    return "\n".join([words, "", *lines, "", f"{versions(reports)}.", *missing])
