"""What reuse costs in quality: the same prompts answered uncached and under several scopes and repairs.

Every prompt is answered greedily by each. Both sides answer the same prompts, so scores are compared in pairs
(`benchmarks.paired`). KL and flips are over the whole answer: each side reads the uncached answer, and their
distributions are compared before each of its tokens. `same answer` is the share of prompts whose own answers
are equal to the last token. Segments are encoded before the clock of a cached answer starts.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.answered import Outcome, answered, read_again
from benchmarks.figures import Sample, figures, grouped, pooled
from benchmarks.machine import machine
from benchmarks.metrics import score
from benchmarks.quality_journal import Journal
from benchmarks.shortening import TooLongError, fits, shortened
from benchmarks.tasks import Questions, Task
from engine.base.choices import SCOPES, Quantize, Weights
from engine.base.errors import PromptCacheError
from engine.engine import Engine
from engine.fidelity.teacher_forcing import Reading
from engine.inference.run_settings import ReuseParams, RunSettings
from engine.model.loading import load
from engine.pml import PromptError
from engine.prepared import PreparedPrompt, PreparedSchema
from engine.store import Store

UNCACHED, DEFAULT = "uncached", "default"
REPAIRS = {
    "anchored": ("link:8", "blend:0.15", "query:0.15", "impact:0.05", "impact:0.15", "impact:0.3"),
    "preceding": ("impact:0.05", "impact:0.15"),
}


@dataclass(frozen=True)
class Variant:
    """A scope with a repair."""

    scope: Any
    repair: str = "none"

    @property
    def name(self) -> str:
        """The name that the table gives it."""
        return self.scope if self.repair == "none" else f"{self.scope} {self.repair}"


def variants(scopes: Sequence[str] = (), repairs: Sequence[str] = ()) -> list[Variant]:
    """Every scope with every repair; by default every scope plain, and the repairs of `REPAIRS`."""
    if not scopes and not repairs:
        return [Variant(scope, r) for scope in SCOPES for r in ("none", *REPAIRS.get(scope, ()))]
    return [Variant(s, r) for s in scopes or ("anchored",) for r in repairs or ("none",)]


def run(
    model: str,
    files: Sequence[Questions],
    wanted: Sequence[Variant],
    *,
    device: str = "auto",
    dtype: str = "auto",
    weights: Weights = "auto",
    quantize: Quantize = "none",
    placement: str = "compact",
    most_tokens: int | None = None,
    folder: Path | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Answers every task uncached, under every variant, and as a run with no setting given does.

    Args:
        model: name of the model.
        files: the tasks of every file. Where a prompt is too long its context loses its middle; what
            cannot be shortened is left out. Both are named.
        wanted: the variants.
        device: "auto", "cpu" or "cuda".
        dtype: "auto", "fp32", "bf16" or "fp16".
        weights: "auto", "packed" or "plain".
        quantize: how they are rounded: "none", "int8" or "int4".
        placement: the placement of the prompts.
        most_tokens: the longest prompt; by default the model's window bounds it.
        folder: keeps every sample at once, and samples that it holds already are not measured again.
        progress: called with (done, total, what).

    Returns:
        `model`: its name; `files`: a report by name of the file, with `results` (name, params, what
        `figures.figures` and `figures.grouped` give, samples), `prompts`, `left_out` and `shortened` (names);
        `all`: the figures of all files together; `machine`.

    Raises:
        PromptCacheError: no task fits the model, the model cannot be used, or the folder holds samples of
            another model or file.
    """
    with tempfile.TemporaryDirectory(prefix="pml-quality-") as store:
        engine = Engine(
            load(model, device=device, dtype=dtype, weights=weights, quantize=quantize),
            Store.open(Path(store)),
        )
        try:
            found = engine.model
            setup = {
                "model": found.fingerprint,
                "dtype": found.dtype,
                "device": str(found.device),
                "quantize": quantize,
                "placement": placement,
                "max_tokens": most_tokens,
            }
            journal = Journal(folder, setup)
            for file in files:
                journal.require_file(file.name, file.identity)
            measuring = _Measuring(engine, journal, _rows(wanted, placement), most_tokens)
            measuring.measure(files, progress or (lambda *_: None))
            where = machine(found)
        finally:
            engine.close()
    params = {"model": model, "dtype": found.dtype, "placement": placement}
    reports = {file.name: _report(file, journal, measuring.rows, params) for file in files}
    whole = [report for report in reports.values() if report["prompts"]]
    if not whole:
        left_out = [one for report in reports.values() for one in report["left_out"]]
        raise PromptCacheError(f"none of the {len(left_out)} prompts could be run: {left_out[0]['why']}")
    return {"model": model, "files": reports, "all": pooled(whole), "machine": where}


def _rows(wanted: Sequence[Variant], placement: Any) -> dict[str, RunSettings]:
    """The settings of each row beside the uncached one; `default` is `pml run` without options."""
    rows = {v.name: RunSettings(scope=v.scope, repair=v.repair, placement=placement) for v in wanted}
    return {**rows, DEFAULT: RunSettings(reuse="auto")}


def _way(settings: RunSettings) -> str:
    """What samples of these settings are kept under: equal ones are measured once."""
    return ", ".join(f"{one.name}={getattr(settings, one.name)}" for one in fields(ReuseParams))


class _Measuring:
    """Measures what a journal does not hold yet.

    Attributes:
        rows: the settings of each row of the table beside the uncached one.
    """

    def __init__(
        self, engine: Engine, journal: Journal, rows: Mapping[str, RunSettings], most_tokens: int | None
    ) -> None:
        self._engine, self._journal, self._most_tokens = engine, journal, most_tokens
        self.rows = rows
        self._plain = RunSettings(placement=next(iter(rows.values())).placement)
        self._prepared: PreparedSchema | None = None

    def measure(self, files: Sequence[Questions], say: Callable[[int, int, str], None]) -> None:
        """Measures task by task; one that fits no prompt is left out."""
        missing = [
            (file, number, task, ways)
            for file in files
            for number, task in enumerate(file.tasks)
            if (ways := self._missing(file.name, number))
        ]
        if not missing:
            return
        total, done, started = sum(len(ways) for *_, ways in missing), 0, time.monotonic()
        for file, number, task, ways in missing:
            try:
                for at, name in enumerate(self._samples(file.name, number, task, ways)):
                    say(done + at, total, f"{task.name}, {name}{_left(started, done + at, total)}")
            except (PromptError, TooLongError) as error:
                self._journal.leave_out(file.name, number, str(error))
            done += len(ways)
        say(total, total, "done")

    def _missing(self, file: str, number: int) -> dict[str, RunSettings | None]:
        """What is to be measured of a task: settings by the way, those of the uncached side None."""
        entry = self._journal.entry(file, number)
        if entry["left_out"] is not None:
            return {}
        ways: dict[str, RunSettings | None] = {UNCACHED: None}
        ways |= {_way(settings): settings for settings in self.rows.values()}
        return {way: settings for way, settings in ways.items() if way not in entry["samples"]}

    def _samples(
        self, file: str, number: int, task: Task, ways: Mapping[str, RunSettings | None]
    ) -> Iterator[str]:
        """Measures one task; before each way it says which comes."""
        names = {_way(settings): name for name, settings in reversed(list(self.rows.items()))}
        yield UNCACHED
        asked = self._fitted(task)
        prompt = self._prompt(asked)
        plain_settings = task.settings(self._plain)
        held = self._journal.entry(file, number)["samples"].get(UNCACHED)
        if held is None:
            plain = answered(self._engine, prompt, plain_settings, "uncached")
            full, said = plain.reading, plain.answer.token_ids
            sample = _taken(task, plain, full, said) | {"shortened": asked is not task}
            self._journal.add(file, number, UNCACHED, sample)
        else:
            said = tuple(held["token_ids"])
            full = read_again(self._engine, prompt, plain_settings, said)
        for way, settings in ways.items():
            if settings is None:
                continue
            yield names[way]
            chosen = task.settings(settings)
            prompt.encode(chosen)
            outcome = answered(self._engine, prompt, chosen, "cached", said)
            self._journal.add(file, number, way, _taken(task, outcome, full, said))

    def _prompt(self, task: Task) -> PreparedPrompt:
        """The prompt, over the schema of the one before where both are equal; else that one is let go of."""
        if self._prepared is None or self._prepared.tree != task.schema:
            self._engine.memory_tier.clear()
            self._engine.store.clear()
            self._prepared = self._engine.schema(task.schema)
        return self._prepared.prompt(task.prompt)

    def _fitted(self, task: Task) -> Task:
        """The task, with a shorter context where it has one that is too long.

        Raises:
            PromptError: it does not fit the model.
            TooLongError: it is longer than what is to be measured, and cannot be shortened.
        """
        settings, most = task.settings(self._plain), self._most_tokens
        if task.question is None:
            if most is not None and (found := self._prompt(task).plan(settings).total_tokens) > most:
                raise TooLongError(f"The prompt has {found} tokens; at most {most} are to be measured.")
            return task
        if fits(self._engine, task, settings, most):
            return task
        short = shortened(self._engine, task, settings, most)
        if short is None and most is not None:
            raise TooLongError(f"The question alone has more than {most} tokens.")
        return short or task


def _left(started: float, done: int, total: int) -> str:
    """How long the rest takes, where that can be told."""
    if not done:
        return ""
    seconds = (time.monotonic() - started) / done * (total - done)
    if seconds < 90:
        return f", {seconds:.0f} s left"
    return f", {seconds / 60:.0f} min left" if seconds < 5400 else f", {seconds / 3600:.1f} h left"


def _taken(task: Task, outcome: Outcome, full: Reading, said: Sequence[int]) -> Sample:
    """One prompt's figures; `figures.figures` says what they mean."""
    answer, reading = outcome.answer, outcome.reading
    apart, agreement = reading.divergence(full), reading.agreement(full)
    counts, given = answer.tokens, None
    if task.metric:
        text = answer.text.strip()
        given = score(task.metric, text, task.answers, classes=task.classes, dataset=task.dataset)
    cached, again = counts["prompt"] - outcome.new_tokens, counts["computed"] - outcome.new_tokens
    repaired = again / cached if cached else None  # on the uncached side no token is cached
    return {
        "task": task.name,
        "dataset": task.dataset,
        "documents": task.documents,
        "kind": task.kind,
        "position": task.position,
        "chosen_on": task.chosen_on,
        "score": given,
        "answer_tokens": len(apart),
        "kl_answer": float(apart.mean()),
        "kl_worst": float(apart.max()),
        "flips": int((~agreement).sum()),
        "same_answer": tuple(answer.token_ids) == tuple(said),
        "first_token_agrees": bool(agreement[0]),
        "kl_first_token": float(apart[0]),
        "prompt_tokens": counts["prompt"],
        "ttft_ms": answer.ttft_ms,
        "computed_share": (counts["computed"] + counts["choosing"]) / counts["prompt"],
        "repaired_share": repaired,
        "text": answer.text,
        "token_ids": list(answer.token_ids),
    }


def _report(
    file: Questions, journal: Journal, rows: Mapping[str, RunSettings], params: dict[str, Any]
) -> dict[str, Any]:
    """Sums up what was measured of a file."""
    ways = {UNCACHED: UNCACHED, **{name: _way(settings) for name, settings in rows.items()}}
    samples: dict[str, list[Sample]] = {name: [] for name in ways}
    left_out = []
    for number, task in enumerate(file.tasks):
        entry = journal.entry(file.name, number)
        if entry["left_out"] is not None:
            left_out.append({"task": task.name, "why": entry["left_out"]})
            continue
        for name, way in ways.items():
            samples[name].append(entry["samples"][way])
    plain = samples[UNCACHED]
    results = [
        {"name": name, "params": params, **figures(found, plain), **grouped(found, plain), "samples": found}
        for name, found in samples.items()
        if found
    ]
    short = [sample["task"] for sample in plain if sample["shortened"]]
    return {"results": results, "prompts": len(plain), "left_out": left_out, "shortened": short}
