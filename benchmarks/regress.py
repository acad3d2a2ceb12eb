"""Two commits against each other on this machine, in one run: is the new one slower?

What both commits have in common is their command line, so every figure comes from that: from what its own
benchmarks or its runs report, or from a clock around it. Each sample has a process of its own; the sides take
turns, and a round has every figure of both. The environment is the same for both, and the installed packages
are.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.checkouts import PROJECT, checked_out, commit
from benchmarks.turns import orders, ratio
from engine.base.errors import PromptCacheError

SIDES = ("old", "new")
_TOKENS = 33  # of the answer whose tokens are timed
Say = Callable[[str], None]


@dataclass(frozen=True)
class Work:
    """What every sample does.

    Attributes:
        model: name of the model.
        options: words that choose where and how it computes, for instance `--dtype bf16`.
        cached: tokens in stored modules; letters, where documents are written for the shell.
        modules: how many they are in.
        new: tokens behind them.
        repeats: samples of a side in a round, in one process where the figure comes from a benchmark.
        seed: the seed of texts, tokens and orders.
    """

    model: str = "random:llama-100m"
    options: tuple[str, ...] = ()
    cached: int = 512
    modules: int = 8
    new: int = 32
    repeats: int = 3
    seed: int = 0

    @property
    def words(self) -> tuple[str, ...]:
        """Options of a benchmark."""
        sizes = {"cached": self.cached, "modules": self.modules, "repeats": self.repeats, "seed": self.seed}
        given = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
        return (*given, "--model", self.model, *self.options, "--json")


class LackingError(Exception):
    """A side has no such figure; why, in its own words."""


class Commands:
    """The command line of one commit.

    Args:
        folder: where the commit is laid out.
        place: a folder for what it keeps.
        work: what every sample does.
    """

    def __init__(self, folder: Path, place: Path, work: Work) -> None:
        self.folder, self.place, self.work = folder, place, work
        self.schema, self.prompt = place / "drawn.pml", place / "drawn.prompt.1.pml"
        place.mkdir(parents=True)
        for path, text in zip((self.schema, self.prompt), documents(work), strict=True):
            path.write_text(text, encoding="utf-8")
        self._environment = _environment(folder, place)

    def require_own_code(self) -> None:
        """Sees that what would run is the commit's.

        Raises:
            PromptCacheError: another installation comes first.
        """
        found = self._run([sys.executable, "-c", "import app, engine; print(app.__file__, engine.__file__)"])
        if found.returncode == 0 and not all(
            Path(path).resolve().is_relative_to(self.folder) for path in found.stdout.split()
        ):
            raise PromptCacheError(
                f"Python takes {found.stdout.strip()!r} in place of the commit's own files. Install the "
                "project in the environment by `pip install -e .`, or not at all."
            )

    def report(self, *words: str) -> dict[str, Any]:
        """The JSON that a command prints.

        Raises:
            LackingError: it fails, or prints none.
        """
        done = self._called(*words)
        try:
            found: dict[str, Any] = json.loads(done.stdout)
        except ValueError as error:
            raise LackingError("it prints no JSON") from error
        return found

    def wall_ms(self, *words: str) -> float:
        """How long a command takes, from the call to its end, in milliseconds.

        Raises:
            LackingError: it fails.
        """
        started = time.perf_counter()
        self._called(*words)
        return (time.perf_counter() - started) * 1000

    def check_ms(self) -> float:
        """`pml check` of the drawn documents."""
        return self.wall_ms("check", str(self.schema), str(self.prompt))

    def run_ms(self) -> float:
        """`pml run` of one token over what is stored, the start of the process and of the model included."""
        started = time.perf_counter()
        self.ran(1)
        return (time.perf_counter() - started) * 1000

    def ran(self, tokens: int) -> dict[str, Any]:
        """What `pml run` reports of an answer of so many tokens, by the cached side.

        Raises:
            LackingError: it fails, or prints no JSON.
        """
        where = ["--schema", str(self.schema), "--cache-dir", str(self.place / "store")]
        what = ["--mode", "cached", "--max-new-tokens", str(tokens), "--json"]
        model = ["--model", self.work.model, *self.work.options]
        return self.report("run", str(self.prompt), *where, *what, *model)

    def _called(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = self._run([sys.executable, "-m", "app", *words])
        if done.returncode:
            raise LackingError((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1])
        return done

    def _run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )


def _reported(command: str, *rows: str) -> Callable[[Commands], list[float]]:
    """Asks a benchmark of a commit once, for the medians of some of its rows."""

    def ask(side: Commands) -> list[float]:
        results = side.report("bench", command, "--new", str(side.work.new), *side.work.words)["results"]
        found = {one["name"]: float(one["median_ms"]) for one in results}
        if missing := [row for row in rows if row not in found]:
            raise LackingError(f"its `pml bench {command}` has no row {missing[0]}")
        return [found[row] for row in rows]

    return ask


def _token(side: Commands) -> list[float]:
    """The mean of an answer's tokens but the first, as the engine gives them by itself: guesses and all."""
    answer = side.ran(_TOKENS).get("cached", {})
    if not answer.get("tpot_ms"):
        raise LackingError("its answer has no time of a token, or ends with the first one")
    return [float(answer["tpot_ms"])]


def _check(side: Commands) -> list[float]:
    return [side.check_ms()]


def _run(side: Commands) -> list[float]:
    return [side.run_ms()]


@dataclass(frozen=True)
class Asked:
    """Figures that one process gives.

    Attributes:
        names: of the figures.
        ask: runs the process and returns milliseconds, one for each name.
        by_clock: whether these are samples of one process, of which a round has several after one to warm
            up, and not medians already.
    """

    names: tuple[str, ...]
    ask: Callable[[Commands], list[float]]
    by_clock: bool = False


FIGURES = (
    Asked(("ttft_cached", "ttft_uncached"), _reported("ttft", "cached", "uncached")),
    Asked(("first_run",), _reported("first", "first")),
    Asked(("time_per_token",), _token, by_clock=True),
    Asked(("pml_check",), _check, by_clock=True),
    Asked(("pml_run",), _run, by_clock=True),
)
NAMES = tuple(name for asked in FIGURES for name in asked.names)


def run(
    old: str,
    new: str,
    work: Work,
    *,
    rounds: int = 6,
    only: tuple[str, ...] = (),
    root: Path = PROJECT,
    progress: Say | None = None,
) -> dict[str, Any]:
    """Compares two commits.

    Args:
        old: a commit, as git names it.
        new: another one.
        work: what every sample does.
        rounds: how often each side is asked for each figure; with an even number each begins as often.
        only: names of `NAMES`, for a part of the figures.
        root: the top folder of a checkout.
        progress: called with a line of text now and then.

    Returns:
        `old` and `new` (name, commit), `params`, `results` (name, side, samples_ms: a median for each round,
        median_ms), `ratios` (name → new by old: ratio of the medians, low and high of one round), `lacking`
        (name, side, why), `machine`.

    Raises:
        PromptCacheError: not in a checkout, no such commit, or git cannot lay one out.
    """
    say = progress or (lambda _: None)
    commits = {side: commit(root, name) for side, name in zip(SIDES, (old, new), strict=True)}
    asked = [one for one in FIGURES if not only or set(one.names) & set(only)]
    lacking: dict[tuple[str, str], str] = {}
    samples: dict[str, dict[str, list[float]]] = {name: {side: [] for side in SIDES} for name in NAMES}
    with checked_out(root, commits) as folders, tempfile.TemporaryDirectory(prefix="pml-bench-") as place:
        sides = {side: Commands(folders[side], Path(place) / side, work) for side in SIDES}
        for commands in sides.values():
            commands.require_own_code()
        for number in range(rounds):
            for place_of, one in enumerate(asked):
                order = [SIDES[index] for index in orders(2, rounds, work.seed + place_of)[number]]
                say(f"round {number + 1} of {rounds}: {', '.join(one.names)}")
                for side, taken in _round(one, sides, order, lacking).items():
                    for name, values in zip(one.names, zip(*taken, strict=True), strict=False):
                        samples[name][side].append(statistics.median(values))
    from benchmarks.machine import facts

    kept = [name for name in NAMES if any(samples[name].values()) and (not only or name in only)]
    return {
        **{side: {"name": one.name, "commit": one.digest} for side, one in commits.items()},
        "params": {**asdict(work), "rounds": rounds},
        "results": [
            {"name": name, "side": side, "samples_ms": values, "median_ms": statistics.median(values)}
            for name in kept
            for side, values in samples[name].items()
            if values
        ],
        "ratios": {
            name: ratio(samples[name], "new", "old")
            for name in kept
            if all(len(samples[name][side]) == rounds for side in SIDES)
        },
        "lacking": [{"name": name, "side": side, "why": why} for (name, side), why in lacking.items()],
        "machine": facts(),
    }


def beyond(report: dict[str, Any], bound: float) -> list[str]:
    """Names of figures that are more than `bound` times the old ones, or of which nobody knows.

    Unknown is what the new side lacks, and what the old side gave at first and then not. What the old side
    has never had is new, and no figure to hold the other to.
    """
    slower = {name for name, found in report["ratios"].items() if found["ratio"] > bound}
    lacks = {one["name"] for one in report["lacking"] if one["side"] == "new"}
    had = {one["name"] for one in report["results"] if one["side"] == "old"} - set(report["ratios"])
    return [name for name in NAMES if name in slower | lacks | had]


def _round(
    one: Asked, sides: Mapping[str, Commands], order: list[str], lacking: dict[tuple[str, str], str]
) -> dict[str, list[list[float]]]:
    """What each side gave, call by call; what it cannot give is written down, and not asked for again."""
    taken: dict[str, list[list[float]]] = {side: [] for side in order}
    repeats = sides[order[0]].work.repeats
    for number in range(1 + repeats if one.by_clock else 1):
        for side in order[:: -1 if number % 2 else 1]:
            if (one.names[0], side) in lacking:
                continue
            try:
                found = one.ask(sides[side])
            except LackingError as error:
                lacking.update({(name, side): str(error) for name in one.names})
                continue
            if number or not one.by_clock:
                taken[side].append(found)
    return taken


def documents(work: Work) -> tuple[str, str]:
    """A schema of drawn words and a prompt that imports all of it: about a letter for each token."""
    draw = random.Random(work.seed)
    each = work.cached // work.modules
    modules = "".join(f'<module name="m{i}">{_words(each, draw)}</module>' for i in range(work.modules))
    imports = "".join(f"<m{i}/>" for i in range(work.modules))
    behind = _words(work.new, draw)
    return f'<schema name="drawn">{modules}</schema>', f'<prompt schema="drawn">{imports}{behind}</prompt>'


def _words(letters: int, draw: random.Random) -> str:
    text = ""
    while len(text) < letters:
        text += "".join(draw.choices(string.ascii_lowercase, k=draw.randint(2, 8))) + " "
    return text[:letters].rstrip() or "a"


def _environment(folder: Path, place: Path) -> dict[str, str]:
    """The same for both sides but for their code, and for the folder of what they remember."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])),
        "HF_HOME": os.environ.get("HF_HOME") or str(Path(home) / "huggingface"),
        "XDG_CACHE_HOME": str(place / "cache"),
    }
