"""Our figures beside those of other software, in words and tables: where it is faster, both say so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.markdown import head, row
from benchmarks.suite.sampling import OF_A_PEER, ratio
from engine.stopwatch import milliseconds

OURS = {  # by what a peer does: our way over the same tokens
    "full": ("uncached", "the whole prompt computed"),
    "prefix": ("cached", "the cached tokens there before"),
    "state_file": ("files_later", "what is cached read from files"),
    "decode": ("token", "a token of the answer"),
    "answer": ("cached", "a whole answer"),
    "batch": ("batch", "all answers, modules in one order"),
    "batch_reordered": ("batch_reordered", "all answers, modules in another order in every prompt"),
}
_LEVEL = 0.03  # a difference that a rounder clock would not show


@dataclass(frozen=True)
class Pair:
    """One way of theirs and ours over the same.

    Attributes:
        part: the part of the suite.
        group: its group.
        peer: the name of the other software.
        what: what both do.
        ours: our median, in milliseconds.
        theirs: theirs.
        ratio: theirs by ours: of the medians, least and greatest of a round.
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
        """Whether theirs is faster, in every round and by more than a rounder clock would show."""
        return self.ratio["high"] < 1 and self.ratio["ratio"] < 1 - _LEVEL

    @property
    def sentence(self) -> str:
        """Who is faster, and how many times."""
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
    """Every way of theirs that has one of ours in its group.

    Args:
        reports: of the suite by part.
        parts: the parts to look at; all where there are none.
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
                    what = "a token of answers that quote, ours with guesses"
                found = ratio(group["samples_ms"], way, mine)
                if found is not None:
                    medians = group["median_ms"]
                    yield Pair(part, group["name"], peer, what, medians[mine], medians[way], found)


def absent(reports: Mapping[str, dict[str, Any]]) -> list[str]:
    """A sentence for each piece of other software that was not measured, or failed in one way."""
    said: dict[str, None] = {}
    for report in reports.values():
        for group in report["groups"]:
            for name, peer in group["peers"].items():
                if peer["absent"]:
                    said[f"{name} was not measured: {peer['absent']}"] = None
            said |= dict.fromkeys(f"{group['name']}: {note}" for note in group["notes"])
    return list(said)


def versions(reports: Mapping[str, dict[str, Any]]) -> str:
    """What was measured, with its versions."""
    found = {
        f"{name} {peer['version']}".strip(): None
        for report in reports.values()
        for group in report["groups"]
        for name, peer in group["peers"].items()
        if not peer["absent"]
    }
    return ", ".join(found)


def settings(reports: Mapping[str, dict[str, Any]]) -> list[str]:
    """A sentence for each choice of settings of other software: the faster one each time."""
    where: dict[tuple[str, str], list[str]] = {}
    for part, report in reports.items():
        for group in report["groups"]:
            for name, peer in group["peers"].items():
                if found := peer.get("settings"):
                    where.setdefault((name, found), []).append(f"{part} {group['name']}")
    return [f"{name}, as it is faster: {found} ({', '.join(at)})." for (name, found), at in where.items()]


def beside(reports: Mapping[str, dict[str, Any]]) -> str:
    """The section: a table of every pair, and the sentences of those where other software is faster."""
    found = list(pairs(reports))
    missing = [f"- {sentence}" for sentence in absent(reports)]
    if not found:
        return "\n".join(["No other software was measured.", "", *missing]).rstrip()
    lines = head("part", "of", "what", "ours", "theirs", "theirs ÷ ours, least to greatest of a round")
    lines += [
        row(
            pair.part,
            pair.group,
            f"{pair.what}; {pair.peer}",
            milliseconds(pair.ours),
            milliseconds(pair.theirs),
            "{ratio:.2f} ({low:.2f} to {high:.2f})".format(**pair.ratio),
        )
        for pair in found
    ]
    faster = [f"- {pair.sentence}" for pair in found if pair.slower]
    head_line = f"{len(faster)} of {len(found)} comparisons go to other software:"
    none = "None of these comparisons goes to other software."
    words = [head_line, "", *faster] if faster else [none]
    said = [f"- {sentence}" for sentence in settings(reports)] + missing
    return "\n".join([f"{versions(reports)}.", "", *lines, "", *words, *([""] if said else []), *said])
