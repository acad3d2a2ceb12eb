"""Compares the speed of two commits on this machine: is the new one slower?

Each commit is measured by its own command line, in processes of its own. A figure is a case with two sides.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from app.base.signals import as_interrupts
from app.cli.base.options import ModelOptions, debug_option, json_option, model_options, quantize_option
from app.cli.base.output import print_json, say
from app.cli.base.param_types import Name, Number, Whole
from app.studio.sweeps.turns import Way, ratio
from benchmarks.base.case import OF_A_PEER, Group, Pace, Report, Say, Sides, case, report_of, words_of
from benchmarks.base.options import narrate, numbers
from engine.base.errors import PromptCacheError

PROJECT = Path(__file__).resolve().parents[2]
OLD, NEW = SIDES = (f"commit{OF_A_PEER}old", f"commit{OF_A_PEER}new")  # a side may lack a figure
_TOKENS = 33  # of the answer whose tokens are timed


@dataclass(frozen=True)
class Work:
    """The work of every sample."""

    model: str = "random:llama-100m"  # name of the model
    options: tuple[str, ...] = ()  # more model options
    cached: int = 512  # tokens in stored modules
    modules: int = 8  # number of modules
    new: int = 32  # tokens after them
    repeats: int = 3  # samples in a process of a benchmark
    seed: int = 0  # of texts and orders

    @property
    def words(self) -> tuple[str, ...]:
        """Options of a benchmark."""
        names = ("cached", "modules", "new", "repeats", "seed")
        given = [word for name in names for word in (f"--{name}", str(getattr(self, name)))]
        return (*given, "--model", self.model, *self.options, "--json")


class LackingError(Exception):
    """A side does not have a figure."""


class Commands:
    """The command line of one commit."""

    def __init__(self, folder: Path, place: Path, work: Work) -> None:
        self.folder, self.place, self.work = folder, place, work
        self.schema, self.prompt = place / "drawn.pml", place / "drawn.prompt.1.pml"
        place.mkdir(parents=True)
        for path, text in zip((self.schema, self.prompt), documents(work), strict=True):
            path.write_text(text, encoding="utf-8")
        home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self._environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])),
            "HF_HOME": os.environ.get("HF_HOME") or str(Path(home) / "huggingface"),
            "XDG_CACHE_HOME": str(place / "cache"),
        }

    def require_own_code(self) -> None:
        """Checks that Python imports the commit's files."""
        found = self._run("-c", "import app, engine; print(app.__file__, engine.__file__)").stdout.split()
        if not all(Path(path).resolve().is_relative_to(self.folder) for path in found):
            raise PromptCacheError(f"Python imports {found} instead of the commit's own files.")

    def median(self, name: str, row: str) -> float:
        """The median of a row of a benchmark. A commit may have it as `pml bench`."""
        module = (self.folder / "benchmarks" / "__main__.py").is_file()
        report = self._json(*(("benchmarks", name) if module else ("app", "bench", name)), *self.work.words)
        found = {one["name"]: one["median_ms"] for one in report.get("results", ())}
        for group in reversed(report.get("groups", ())):
            found |= group["median_ms"]
        if row not in found:
            raise LackingError(f"its benchmark {name} has no row {row}")
        return float(found[row])

    def check_ms(self) -> float:
        """Milliseconds of `pml check`."""
        return self._timed("app", "check", str(self.schema), str(self.prompt))

    def run_ms(self) -> float:
        """Milliseconds of `pml run` of one token over stored segments."""
        return self._timed(*self._run_words(1))

    def token_ms(self) -> float:
        """Mean milliseconds of an answer's tokens but the first."""
        found = self._json(*self._run_words(_TOKENS)).get("cached", {}).get("tpot_ms")
        if not found:
            raise LackingError("its answer has no time of a token, or ends with the first one")
        return float(found)

    def _run_words(self, tokens: int) -> tuple[str, ...]:
        where = ("--schema", str(self.schema), "--cache-dir", str(self.place / "store"))
        what = ("--mode", "cached", "--max-new-tokens", str(tokens), "--json", "--model", self.work.model)
        return ("app", "run", str(self.prompt), *where, *what, *self.work.options)

    def _timed(self, *words: str) -> float:
        started = time.perf_counter()
        self._called(*words)
        return (time.perf_counter() - started) * 1000

    def _json(self, *words: str) -> Report:
        try:
            found: Report = json.loads(self._called(*words))
        except ValueError as error:
            raise LackingError("it prints no JSON") from error
        return found

    def _called(self, *words: str) -> str:
        done = self._run("-m", *words)
        if done.returncode:
            raise LackingError((done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1])
        return done.stdout

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )


FIGURES: dict[str, Callable[[Commands], float]] = {
    "ttft_cached": lambda side: side.median("ttft", "cached"),
    "ttft_uncached": lambda side: side.median("ttft", "uncached"),
    "first_run": lambda side: side.median("first", "first"),
    "time_per_token": Commands.token_ms,
    "pml_check": Commands.check_ms,
    "pml_run": Commands.run_ms,
}


@case
def figure(group: Group, say: Say, sides: Mapping[str, Commands], ask: Callable[[Commands], float]) -> Sides:
    """One figure of both commits."""
    say(group.name)
    yield [Way(name, partial(ask, side)) for name, side in sides.items()]


def run(
    old: str,
    new: str,
    work: Work,
    *,
    rounds: int = 6,
    only: Sequence[str] = (),
    root: Path = PROJECT,
    say: Say = narrate,
) -> Report:
    """Compares two commits: `groups`, `commits`, `ratios` (new ÷ old, by name) and `machine`."""
    commits = {side: commit(root, name) for side, name in zip(SIDES, (old, new), strict=True)}
    with checked_out(root, commits) as folders, tempfile.TemporaryDirectory(prefix="pml-bench-") as place:
        sides = {side: Commands(folders[side], Path(place) / side[-3:], work) for side in SIDES}
        for commands in sides.values():
            commands.require_own_code()
        cases = [figure(name, sides, ask) for name, ask in FIGURES.items() if not only or name in only]
        report = report_of(cases, Pace(rounds, None, work.seed), say)
    ratios = {group["name"]: ratio(group["samples_ms"], NEW, OLD) for group in report["groups"]}
    return {**report, "commits": commits, "ratios": ratios}


def beyond(report: Report, bound: float) -> list[str]:
    """Figures over `bound` times the old ones, and figures that the new commit lacks."""
    slow = {name for name, found in report["ratios"].items() if found and found["ratio"] > bound}
    return [one["name"] for one in report["groups"] if one["name"] in slow or NEW not in one["samples_ms"]]


def documents(work: Work) -> tuple[str, str]:
    """A schema of random words and a prompt that imports all of it: about a letter for each token."""
    draw = random.Random(work.seed)

    def words(letters: int) -> str:
        text = ""
        while len(text) < letters:
            text += "".join(draw.choices(string.ascii_lowercase, k=draw.randint(2, 8))) + " "
        return text[:letters].rstrip() or "a"

    each = work.cached // work.modules
    modules = "".join(f'<module name="m{i}">{words(each)}</module>' for i in range(work.modules))
    imports = "".join(f"<m{i}/>" for i in range(work.modules))
    prompt = f'<prompt schema="drawn">{imports}{words(work.new)}</prompt>'
    return f'<schema name="drawn">{modules}</schema>', prompt


def commit(root: Path, name: str) -> str:
    """The digest of a commit."""
    top = _git(root, "rev-parse", "--show-toplevel")
    if top.returncode or Path(top.stdout.strip()).resolve() != root.resolve():
        raise PromptCacheError(f"{str(root)!r} is not a git checkout. Clone the project, and run this there.")
    found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if found.returncode:
        raise PromptCacheError(f"this checkout has no commit {name!r}; `git log` lists its commits.")
    return found.stdout.strip()


@contextlib.contextmanager
def checked_out(root: Path, commits: dict[str, str]) -> Iterator[dict[str, Path]]:
    """Checks commits out as worktrees in a temporary folder."""
    with as_interrupts(), tempfile.TemporaryDirectory(prefix="pml-commits-") as place:
        folders = {key: Path(place).resolve() / key[-3:] for key in commits}
        try:
            for key, digest in commits.items():
                done = _git(root, "worktree", "add", "--detach", str(folders[key]), digest)
                if done.returncode:
                    raise PromptCacheError(f"git cannot check out {digest}: {done.stderr.strip()}")
            yield folders
        finally:
            for folder in folders.values():  # with force twice, as an unfinished worktree is locked
                _git(root, "worktree", "remove", "--force", "--force", str(folder), alone=True)


def _git(root: Path, *words: str, alone: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs git; `alone` protects it from our Ctrl-C."""
    hooks = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    quiet = {name: value for name, value in os.environ.items() if name not in hooks}
    try:
        return subprocess.run(
            ["git", "-C", str(root), "-c", f"core.hooksPath={os.devnull}", *words],
            capture_output=True,
            text=True,
            errors="replace",
            env={**quiet, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
            stdin=subprocess.DEVNULL,
            check=False,
            start_new_session=alone,
        )
    except FileNotFoundError as error:
        raise PromptCacheError("git is not installed.") from error


@click.command()
@click.argument("old")
@click.argument("new")
@numbers(cached=512, modules=8)
@click.option("--new-tokens", type=Whole(1), default=32, show_default=True, help="New tokens after them.")
@numbers(rounds=6, repeats=3, seed=0)
@click.option("--only", type=Name([*FIGURES]), multiple=True, help="Only this figure; may be given again.")
@click.option(
    "--bound",
    type=Number(0, min_open=True),
    help="Exit with status 1 if NEW takes more than this times as long as OLD, or a figure is lost.",
)
@model_options
@quantize_option
@json_option
@debug_option
@click.pass_context
def regress(
    context: click.Context,
    /,
    old: str,
    new: str,
    cached: int,
    modules: int,
    new_tokens: int,
    rounds: int,
    repeats: int,
    seed: int,
    only: tuple[str, ...],
    bound: float | None,
    as_json: bool,
    **model_choice: Any,
) -> None:
    """Compare the commits OLD and NEW on this machine: is NEW slower?

    Git checks both out in a temporary folder, and their own command lines measure them in turns. The default
    model is random:llama-100m, because the passes of the bundled model are very short.
    """
    if cached < modules:
        raise click.UsageError(f"--cached {cached} cannot be split over --modules {modules}.")
    options = ModelOptions(cache_dir=None, **model_choice)
    chosen = {name: value for name, value in options.loading.items() if value not in ("auto", "none")}
    words = tuple(word for name, value in chosen.items() for word in (f"--{name}", str(value)))
    work = Work(options.model or Work.model, words, cached, modules, new_tokens, repeats, seed)
    report = run(old, new, work, rounds=rounds, only=only)
    found = beyond(report, bound) if bound is not None else []
    if as_json:
        print_json({**report, "bound": bound, "beyond": found})
    else:
        lines = [words_of(report), ""]
        for name, one in report["ratios"].items():
            if one:
                lines.append(f"{name}: new ÷ old {one['ratio']:.2f} ({one['low']:.2f} to {one['high']:.2f})")
        lines += [f"over {bound:g}: {', '.join(found) or 'none'}"] if bound is not None else []
        say("\n".join(lines))
    if found:
        context.exit(1)
