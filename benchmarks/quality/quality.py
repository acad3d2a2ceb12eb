"""The cost of reuse in quality: the same prompts answered uncached and under several scopes and repairs.

All answers are greedy. KL and flips are over the whole uncached answer: both sides read it, and their
distributions are compared before each of its tokens. Segments are encoded before the clock of a cached answer
starts.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
import torch

from app.cli.base.options import ModelOptions, debug_option, json_option, model_options, quantize_option
from app.cli.base.output import print_json, progress_bar, say
from app.cli.base.param_types import DOCUMENT, Name, UserPath, Whole
from app.cli.base.setting_options import setting_option
from app.cli.command import INTERRUPTED
from app.studio.sweeps.machine import machine
from benchmarks.quality import report as quality_report
from benchmarks.quality.figures import Sample, figures, grouped, pooled
from benchmarks.quality.metrics import METRICS, score
from benchmarks.quality.tasks import (
    SUITES,
    Questions,
    Task,
    TooLongError,
    fits,
    own_questions,
    read_questions,
    shortened,
)
from benchmarks.quality.tasks import suite as files_of
from engine.base.choices import SCOPES
from engine.base.errors import PromptCacheError
from engine.base.events import Answer, Event, Side
from engine.engine import Engine
from engine.fidelity.teacher_forcing import Reading
from engine.inference.generate import Answering
from engine.inference.generation import Sequence as Answered
from engine.inference.run_settings import ReuseParams, RunSettings
from engine.model.loading import load
from engine.pml import PromptError
from engine.prepared import PreparedPrompt, PreparedSchema
from engine.prompt.tokenized import Planned
from engine.store import Store

UNCACHED, DEFAULT = "uncached", "default"
REPAIRS = {
    "anchored": ("link:8", "blend:0.15", "query:0.15", "impact:0.05", "impact:0.15", "impact:0.3"),
    "preceding": ("impact:0.05", "impact:0.15"),
}
JOURNAL = "samples.jsonl"


@dataclass(frozen=True)
class Variant:
    """A scope with a repair."""

    scope: Any
    repair: str = "none"

    @property
    def name(self) -> str:
        """The name in tables."""
        return self.scope if self.repair == "none" else f"{self.scope} {self.repair}"


def variants(scopes: Sequence[str] = (), repairs: Sequence[str] = ()) -> list[Variant]:
    """Every scope with every repair; by default every scope alone, and the repairs of `REPAIRS`."""
    if not scopes and not repairs:
        return [Variant(scope, r) for scope in SCOPES for r in ("none", *REPAIRS.get(scope, ()))]
    return [Variant(s, r) for s in scopes or ("anchored",) for r in repairs or ("none",)]


class Journal:
    """Samples by file, task and way. With a folder, each sample is appended to a file at once.

    Samples of another model, setup or version of a file are ignored.
    """

    def __init__(self, folder: Path | None, setup: dict[str, Any]) -> None:
        self._found: dict[tuple[str, int, str], Any] = {}
        self._setup, self._path = setup, None if folder is None else folder / JOURNAL
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lines = self._path.read_text("utf-8", "replace").split("\n") if self._path.exists() else [""]
        except OSError as error:
            raise PromptCacheError(f"{self._path} cannot be used: {error.strerror}.") from error
        for line in lines:
            try:
                of, task, way, sample = json.loads(line)
                self._found[of, task, way] = sample
            except (ValueError, TypeError):
                continue  # an interruption can shorten the last line
        if lines[-1]:
            self._append("\n")

    def key(self, file: Questions) -> str:
        """What the samples of a file depend on."""
        words = json.dumps([self._setup, file.name, file.identity], sort_keys=True)
        return hashlib.sha256(words.encode()).hexdigest()[:32]

    def get(self, file: Questions, task: int, way: str) -> Any:
        """A sample or note; None if there is none."""
        return self._found.get((self.key(file), task, way))

    def add(self, file: Questions, task: int, way: str, sample: Any) -> None:
        """Saves a sample or note."""
        self._found[self.key(file), task, way] = sample
        self._append(json.dumps([self.key(file), task, way, sample]) + "\n")

    def _append(self, text: str) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise PromptCacheError(f"{self._path} cannot be written: {error.strerror}.") from error


_LEFT_OUT = "left out"  # the way of a note on a task without samples


def run(
    options: ModelOptions,
    files: Sequence[Questions],
    wanted: Sequence[Variant],
    *,
    placement: Any = "compact",
    most_tokens: int | None = None,
    folder: Path | None = None,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> dict[str, Any]:
    """Answers every task uncached, under every variant, and by default settings.

    Returns:
        `model`; `files`: a report by name, with `results` (name, params, figures, samples), `prompts`,
        `left_out` and `shortened`; `all`: the figures of all files; `machine`.
    """
    rows = {v.name: RunSettings(scope=v.scope, repair=v.repair, placement=placement) for v in wanted}
    rows[DEFAULT] = RunSettings(reuse="auto")
    with (
        tempfile.TemporaryDirectory(prefix="pml-quality-") as store,
        Engine(load(options.name, **options.loading), Store.open(Path(store))) as engine,
    ):
        model = engine.model
        setup = {"model": model.fingerprint, "dtype": model.dtype, "device": str(model.device)}
        setup |= {"quantize": options.quantize, "placement": placement, "max_tokens": str(most_tokens)}
        journal = Journal(folder, setup)
        _Measuring(engine, journal, rows, RunSettings(placement=placement), most_tokens).measure(
            files, progress
        )
        where = machine(model)
    params = {"model": options.name, "dtype": model.dtype, "placement": placement}
    reports = {file.name: _report(file, journal, rows, params) for file in files}
    whole = [report for report in reports.values() if report["prompts"]]
    if not whole:
        left_out = [one for report in reports.values() for one in report["left_out"]]
        raise PromptCacheError(f"none of the {len(left_out)} prompts could be run: {left_out[0]['why']}")
    return {"model": options.name, "files": reports, "all": pooled(whole), "machine": where}


def _way(settings: RunSettings) -> str:
    """The key of samples with these settings: equal ones are measured once."""
    return ", ".join(f"{one.name}={getattr(settings, one.name)}" for one in fields(ReuseParams))


class _Measuring:
    """Measures missing samples."""

    def __init__(
        self,
        engine: Engine,
        journal: Journal,
        rows: Mapping[str, RunSettings],
        plain: RunSettings,
        most_tokens: int | None,
    ) -> None:
        self._engine, self._journal, self._most_tokens = engine, journal, most_tokens
        self._rows, self._plain = rows, plain
        self._names = {_way(settings): name for name, settings in reversed(list(rows.items()))}
        self._prepared: PreparedSchema | None = None

    def measure(self, files: Sequence[Questions], tell: Callable[[int, int, str], None]) -> None:
        """Measures task by task."""
        missing = [
            (file, number, task, ways)
            for file in files
            for number, task in enumerate(file.tasks)
            if (ways := self._missing(file, number))
        ]
        total, done, started = sum(len(ways) for *_, ways in missing), 0, time.monotonic()
        for file, number, task, ways in missing:
            try:
                for at, name in enumerate(self._samples(file, number, task, ways)):
                    tell(done + at, total, f"{task.name}, {name}{_left(started, done + at, total)}")
            except (PromptError, TooLongError) as error:
                self._journal.add(file, number, _LEFT_OUT, str(error))
            done += len(ways)
        tell(total, total, "done")

    def _missing(self, file: Questions, number: int) -> dict[str, RunSettings | None]:
        """Settings by way; None for the uncached side."""
        if self._journal.get(file, number, _LEFT_OUT) is not None:
            return {}
        ways: dict[str, RunSettings | None] = {UNCACHED: None}
        ways |= {_way(settings): settings for settings in self._rows.values()}
        return {way: one for way, one in ways.items() if self._journal.get(file, number, way) is None}

    def _samples(
        self, file: Questions, number: int, task: Task, ways: Mapping[str, RunSettings | None]
    ) -> Iterator[str]:
        """Measures one task; yields the name of each way before it."""
        yield UNCACHED
        asked = self._fitted(task)
        prompt, settings = self._prompt(asked), task.settings(self._plain)
        plain = answered(self._engine, prompt, settings, "uncached")
        full, tokens = plain.reading, plain.answer.token_ids
        if UNCACHED in ways:
            sample = _sample(task, plain, full, tokens) | {"shortened": asked is not task}
            self._journal.add(file, number, UNCACHED, sample)
        for way, given in ways.items():
            if given is not None:
                yield self._names[way]
                chosen = task.settings(given)
                prompt.encode(chosen)
                outcome = answered(self._engine, prompt, chosen, "cached", tokens)
                self._journal.add(file, number, way, _sample(task, outcome, full, tokens))

    def _prompt(self, task: Task) -> PreparedPrompt:
        """The prompt over its schema. Another schema removes the segments of the previous one."""
        if self._prepared is None or self._prepared.tree != task.schema:
            self._engine.memory_tier.clear()
            self._engine.store.clear()
            self._prepared = self._engine.schema(task.schema)
        return self._prepared.prompt(task.prompt)

    def _fitted(self, task: Task) -> Task:
        """The task, with a shorter context if necessary."""
        settings, most = task.settings(self._plain), self._most_tokens
        if task.question is None:
            if most is not None and (found := self._prompt(task).plan(settings).total_tokens) > most:
                raise TooLongError(f"The prompt has {found} tokens; at most {most} are measured.")
            return task
        if fits(self._engine, task, settings, most):
            return task
        short = shortened(self._engine, task, settings, most)
        if short is None and most is not None:
            raise TooLongError(f"The question alone has more than {most} tokens.")
        return short or task


def _left(started: float, done: int, total: int) -> str:
    """The remaining time."""
    if not done:
        return ""
    seconds = (time.monotonic() - started) / done * (total - done)
    if seconds < 90:
        return f", {seconds:.0f} s left"
    return f", {seconds / 60:.0f} min left" if seconds < 5400 else f", {seconds / 3600:.1f} h left"


@dataclass(frozen=True)
class Outcome:
    """The answer of one side."""

    answer: Answer  # with its figures
    reading: Reading  # the side's distributions over the given answer, or over its own
    new_tokens: int  # tokens of the prompt outside segments; all of them on the uncached side


def answered(
    engine: Engine,
    prompt: PreparedPrompt,
    settings: RunSettings,
    side: Side,
    given: Sequence[int] | None = None,
) -> Outcome:
    """Answers a prompt, and reads a given answer after the same prefill."""
    (asked,) = prompt.submissions(settings, mode=side)
    work = Answering(engine.segment_cache, asked)

    def steps() -> Generator[Event, None, Outcome]:
        try:
            sequence = Answered(engine.model, (yield from work.prepare()), asked.settings, work.clock)
            while sequence.ending is None:
                sequence.step()
            reading = _reading(sequence, sequence.token_ids if given is None else given)
            answer = work.answer(sequence)
        finally:
            work.close()
        return Outcome(answer, reading, len(_new(asked.planned)))

    return engine.computing.finish(steps(), side, work.clock)


def _new(planned: Planned) -> Sequence[int]:
    return planned.plan.token_ids if planned.scope is None else planned.plan.new_tokens


def _reading(sequence: Answered, tokens: Sequence[int]) -> Reading:
    """Reads tokens after the prompt of a sequence."""
    first, kv, end = sequence.first_logits, sequence.kv, sequence.prefill.end
    assert first is not None
    assert kv is not None
    if len(tokens) == 1:
        return Reading.of_logits(first[None])
    kv.truncate(len(sequence.prefill.token_ids))
    read = list(tokens[:-1])
    positions = list(range(end, end + len(read)))
    rest = sequence.model.network.forward(read, positions, kv, keep=len(read))
    return Reading.of_logits(torch.cat([first[None], rest.float()]))


def _sample(task: Task, outcome: Outcome, full: Reading, tokens: Sequence[int]) -> Sample:
    """The figures of one prompt; see `figures.figures`."""
    answer, reading = outcome.answer, outcome.reading
    apart, agreement = reading.divergence(full), reading.agreement(full)
    counts = answer.tokens
    cached, again = counts["prompt"] - outcome.new_tokens, counts["computed"] - outcome.new_tokens
    return {
        "task": task.name,
        **{name: getattr(task, name) for name in ("dataset", "documents", "kind", "position", "chosen_on")},
        "score": scored(task, answer.text),
        "answer_tokens": len(apart),
        "kl_answer": float(apart.mean()),
        "kl_worst": float(apart.max()),
        "flips": int((~agreement).sum()),
        "same_answer": tuple(answer.token_ids) == tuple(tokens),
        "first_token_agrees": bool(agreement[0]),
        "kl_first_token": float(apart[0]),
        "prompt_tokens": counts["prompt"],
        "ttft_ms": answer.ttft_ms,
        "computed_share": (counts["computed"] + counts["choosing"]) / counts["prompt"],
        "repaired_share": again / cached if cached else None,
        "text": answer.text,
        "token_ids": list(answer.token_ids),
    }


def scored(task: Task, text: str) -> float | None:
    """The score of an answer; None without references."""
    if not task.metric:
        return None
    return score(task.metric, text.strip(), task.answers, classes=task.classes, dataset=task.dataset)


def _report(
    file: Questions, journal: Journal, rows: Mapping[str, RunSettings], params: dict[str, Any]
) -> dict[str, Any]:
    """Sums the samples of a file up."""
    ways = {UNCACHED: UNCACHED, **{name: _way(settings) for name, settings in rows.items()}}
    samples: dict[str, list[Sample]] = {name: [] for name in ways}
    left_out = []
    for number, task in enumerate(file.tasks):
        if (why := journal.get(file, number, _LEFT_OUT)) is not None:
            left_out.append({"task": task.name, "why": why})
            continue
        for name, way in ways.items():
            samples[name].append(journal.get(file, number, way))
    plain = samples[UNCACHED]
    results = [
        {"name": name, "params": params, **figures(found, plain), **grouped(found, plain), "samples": found}
        for name, found in samples.items()
        if found
    ]
    short = [sample["task"] for sample in plain if sample["shortened"]]
    return {"results": results, "prompts": len(plain), "left_out": left_out, "shortened": short}


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=DOCUMENT)
@setting_option("scope", multiple=True, help="Repeatable. Default: all, some with repairs.")
@setting_option("repair", multiple=True, help="Repeatable; each is run with each scope.")
@click.option("--metric", type=Name([*METRICS]), help="Instead of the file's own metric.")
@click.option("--suite", type=Name([*SUITES]), help="Random prompts for the bundled model, of four kinds.")
@click.option("--limit", type=Whole(1), help="Most prompts of each file.")
@click.option("--max-tokens", type=Whole(1), help="The longest prompt; a longer context loses its middle.")
@click.option(
    "--out",
    "folder",
    type=UserPath(path_type=Path, file_okay=False),
    help="Saves tables, charts, and every sample at once: the same command resumes.",
)
@setting_option("placement")
@model_options
@quantize_option
@json_option
@debug_option
def quality(
    paths: tuple[str, ...],
    scope: tuple[str, ...],
    repair: tuple[str, ...],
    metric: str | None,
    suite: str | None,
    limit: int | None,
    max_tokens: int | None,
    folder: Path | None,
    placement: str,
    as_json: bool,
    **model_choice: Any,
) -> None:
    """The cost of reuse in quality: answers under every scope and repair, against the uncached ones.

    PATH is a file of questions in LongBench's format (one JSON object per line with input, context or
    documents, answers, and dataset), a file of labelled texts (one JSON object per line with split, text and
    label), or a folder with NAME.pml and NAME.prompt.*.pml. The default is the project's document questions.
    """
    if suite and paths:
        raise click.UsageError("--suite has files of its own: leave out PATH, or --suite.")
    files = [*files_of(suite).values()] if suite else [Path(path) for path in paths] or [own_questions()]
    questions = read_questions(files, metric=metric or "", limit=limit)
    options = ModelOptions(cache_dir=None, **model_choice)
    given: dict[str, Any] = {"placement": placement, "most_tokens": max_tokens, "folder": folder}
    try:
        with progress_bar() as progress:
            measured = run(options, questions, variants(scope, repair), **given, progress=progress)
    except KeyboardInterrupt:
        if folder is None:
            raise
        say(f"Interrupted. The samples are in {folder}: the same command resumes.", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None
    if folder is not None:
        quality_report.write(folder, measured)
    if as_json:
        print_json(measured)
    else:
        say(quality_report.words(measured, by_group=bool(suite)))
