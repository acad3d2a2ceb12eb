"""What reuse costs in quality: the same prompts answered uncached and under several scopes and repairs.

Every prompt is answered greedily by each. Scores are means over the prompts with a 95% interval from 2,000
bootstrap draws; `ratio` divides by the uncached score. Agreement and KL compare the first token's
distribution with the uncached one; `same answer` is the share of prompts whose whole answers are equal.
"""

from __future__ import annotations

import random
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.metrics import score
from benchmarks.tasks import Task
from engine.engine import Engine
from engine.errors import PromptError, StudioError
from engine.events import Answer, Finished
from engine.generate import compare
from engine.loading import load
from engine.settings import RunSettings
from engine.store import Store

DRAWS = 2000
UNCACHED = "uncached"
PLAIN = ("isolated", "anchored", "scaffold")
REPAIRS = ("link:2", "link:8", "blend:0.05", "blend:0.15", "query:0.05", "query:0.15")


@dataclass(frozen=True)
class Variant:
    """A scope with a repair."""

    scope: Any
    repair: str = "none"

    @property
    def name(self) -> str:
        """As in the table."""
        return self.scope if self.repair == "none" else f"{self.scope} {self.repair}"


def variants(scopes: Sequence[str] = (), repairs: Sequence[str] = ()) -> list[Variant]:
    """Every scope with every repair; by default every scope plain, and the repairs on `anchored`."""
    if not scopes and not repairs:
        return [*(Variant(scope) for scope in PLAIN), *(Variant("anchored", r) for r in REPAIRS)]
    return [Variant(s, r) for s in scopes or ("anchored",) for r in repairs or ("none",)]


@dataclass
class _Samples:
    """One variant's figures, one entry per prompt."""

    scores: list[float] = field(default_factory=list)
    agrees: list[float] = field(default_factory=list)
    divergences: list[float] = field(default_factory=list)
    same: list[float] = field(default_factory=list)
    computed: list[float] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)


def run(
    model: str,
    tasks: Sequence[Task],
    wanted: Sequence[Variant],
    *,
    device: str = "auto",
    dtype: str = "auto",
    placement: str = "compact",
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Answers every task uncached and under every variant.

    Args:
        model: name of the model.
        tasks: at least one. Those that do not fit the context window are left out and counted.
        wanted: the variants.
        device: "auto", "cpu" or "cuda".
        dtype: "auto", "fp32", "bf16" or "fp16".
        placement: of the prompts.
        progress: called with (done, total, what).

    Returns:
        `results` (name, params, score with its interval, ratio, first_token_agreement, kl_first_token,
        same_answer, computed_share, by_documents, by_kind and by_position (in which third of the modules the
        answer stands), samples), `prompts`, `left_out`, `machine`.

    Raises:
        StudioError: no task fits the model, or the model cannot be used.
    """
    say = progress or (lambda *_: None)
    with tempfile.TemporaryDirectory(prefix="pml-quality-") as folder:
        engine = Engine(load(model, device=device, dtype=dtype), Store.open(Path(folder)))
        samples = {name: _Samples() for name in (UNCACHED, *(variant.name for variant in wanted))}
        left_out = []
        try:
            for done, task in enumerate(tasks):
                say(done, len(tasks), task.name)
                try:
                    _sample(engine, task, wanted, placement, samples)
                except PromptError as error:
                    left_out.append({"task": task.name, "why": str(error)})
                engine.residency.clear()
                engine.store.clear()
            say(len(tasks), len(tasks), "done")
            where = machine(engine.model)
        finally:
            engine.close()
    if not samples[UNCACHED].computed:
        raise StudioError(f"none of the {len(tasks)} prompts could be run: {left_out[0]['why']}")
    params = {"model": model, "dtype": engine.model.dtype, "placement": placement}
    return {
        "results": _results(samples, tasks, params),
        "prompts": len(samples[UNCACHED].computed),
        "left_out": left_out,
        "machine": where,
    }


def _sample(
    engine: Engine, task: Task, wanted: Sequence[Variant], placement: Any, samples: dict[str, _Samples]
) -> None:
    settings = RunSettings(max_new_tokens=task.new_tokens, placement=placement)
    plain = _answer(engine, task, settings, cached=False)
    _take(samples[UNCACHED], task, plain, plain)
    for variant in wanted:
        chosen = replace(settings, scope=variant.scope, repair=variant.repair)
        _take(samples[variant.name], task, _answer(engine, task, chosen, cached=True), plain)


def _answer(engine: Engine, task: Task, settings: RunSettings, *, cached: bool) -> Answer:
    events = engine.run(task.schema, task.prompt, settings, "cached" if cached else "uncached")
    return next(event.answer for event in events if isinstance(event, Finished))


def _take(samples: _Samples, task: Task, answer: Answer, plain: Answer) -> None:
    compared = compare(answer, plain)
    samples.agrees.append(float(compared.first_token_agrees))
    samples.divergences.append(compared.kl_first_token)
    samples.tasks.append(task)
    samples.same.append(float(compared.same_text))
    samples.computed.append(answer.tokens["computed"] / answer.tokens["prompt"])
    if task.metric:
        given = score(
            task.metric, answer.text.strip(), task.answers, classes=task.classes, dataset=task.dataset
        )
        samples.scores.append(given)


def _results(
    samples: dict[str, _Samples], tasks: Sequence[Task], params: dict[str, Any]
) -> list[dict[str, Any]]:
    plain = samples[UNCACHED].scores
    metrics = sorted({task.metric for task in tasks if task.metric})
    results: list[dict[str, Any]] = []
    for name, found in samples.items():
        row: dict[str, Any] = {"name": name, "params": {**params, "metrics": metrics}}
        if found.scores:
            low, high = interval(found.scores)
            mean = statistics.fmean(found.scores)
            whole = statistics.fmean(plain)
            row |= {"score": mean, "score_low": low, "score_high": high}
            row["ratio"] = mean / whole if whole else None
        row |= {
            "first_token_agreement": statistics.fmean(found.agrees),
            "kl_first_token": statistics.fmean(found.divergences),
            "same_answer": statistics.fmean(found.same),
            "computed_share": statistics.fmean(found.computed),
            "by_documents": _by(found, [str(task.documents or "") for task in found.tasks]),
            "by_kind": _by(found, [task.kind for task in found.tasks]),
            "by_position": _by(found, [_third(task.position) for task in found.tasks]),
            "samples": found.scores,
        }
        results.append(row)
    return results


def _by(found: _Samples, keys: Sequence[str]) -> dict[str, dict[str, float]]:
    """The figures apart by a key of each prompt; prompts whose key is "" are left out."""
    groups: dict[str, dict[str, float]] = {}
    for key in sorted({k for k in keys if k}, key=lambda k: (int(k) if k.isdigit() else 0, keys.index(k))):
        which = [i for i, k in enumerate(keys) if k == key]
        row = {"prompts": float(len(which))}
        lists = {
            "score": found.scores,
            "first_token_agreement": found.agrees,
            "kl_first_token": found.divergences,
            "same_answer": found.same,
        }
        for name, values in lists.items():
            if len(values) == len(keys):
                row[name] = statistics.fmean(values[i] for i in which)
        if "score" in row:
            row["score_low"], row["score_high"] = interval([found.scores[i] for i in which])
        groups[key] = row
    return groups


def _third(position: float | None) -> str:
    """In which third of the modules an answer stands."""
    return "" if position is None else ("first", "middle", "last")[min(2, int(position * 3))]


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """The 95% interval of a mean, by bootstrap."""
    draw = random.Random(seed)
    means = sorted(statistics.fmean(draw.choices(values, k=len(values))) for _ in range(DRAWS))
    return means[int(0.025 * DRAWS)], means[int(0.975 * DRAWS) - 1]
