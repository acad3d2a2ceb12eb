"""What reuse costs in quality: the same prompts answered uncached and under several scopes and repairs.

Every prompt is answered greedily by each. Both sides answer the same prompts, so scores are compared in pairs
(`benchmarks.paired`). KL and flips are over the whole answer: each side reads the uncached answer, and their
distributions are compared before each of its tokens. `same answer` is the share of prompts whose own answers
are equal to the last token.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.figures import Sample, figures, grouped
from benchmarks.machine import machine
from benchmarks.metrics import score
from benchmarks.shortening import fits, shortened
from benchmarks.tasks import Task
from engine.cache.store import Store
from engine.choices import SCOPES, Quantize, Weights
from engine.engine import Engine
from engine.errors import PromptCacheError
from engine.events import Answer
from engine.inference.comparison import compare
from engine.inference.params import RunSettings
from engine.inference.reading import Reading
from engine.model.loading import load
from engine.pml import PromptError

UNCACHED = "uncached"
REPAIRS = (
    "link:2",
    "link:8",
    "blend:0.05",
    "blend:0.15",
    "query:0.05",
    "query:0.15",
    "impact:0.05",
    "impact:0.15",
)


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
    """Every scope with every repair; by default every scope plain, and the repairs on `anchored`."""
    if not scopes and not repairs:
        return [*(Variant(scope) for scope in SCOPES), *(Variant("anchored", r) for r in REPAIRS)]
    return [Variant(s, r) for s in scopes or ("anchored",) for r in repairs or ("none",)]


def run(
    model: str,
    tasks: Sequence[Task],
    wanted: Sequence[Variant],
    *,
    device: str = "auto",
    dtype: str = "auto",
    weights: Weights = "auto",
    quantize: Quantize = "none",
    placement: str = "compact",
    progress: Callable[[int, int, str], None] | None = None,
) -> dict[str, Any]:
    """Answers every task uncached and under every variant.

    Args:
        model: name of the model.
        tasks: at least one. Where one does not fit the context window its context loses its middle; what
            cannot be shortened is left out. Both are named.
        wanted: the variants.
        device: "auto", "cpu" or "cuda".
        dtype: "auto", "fp32", "bf16" or "fp16".
        weights: "auto", "packed" or "plain".
        quantize: how they are rounded: "none", "int8" or "int4".
        placement: the placement of the prompts.
        progress: called with (done, total, what).

    Returns:
        `results` (name, params, what `figures.figures` and `figures.grouped` give, samples), `prompts`,
        `left_out`, `shortened` (names), `machine`.

    Raises:
        PromptCacheError: no task fits the model, or the model cannot be used.
    """
    say = progress or (lambda *_: None)
    with tempfile.TemporaryDirectory(prefix="pml-quality-") as folder:
        engine = Engine(
            load(model, device=device, dtype=dtype, weights=weights, quantize=quantize),
            Store.open(Path(folder)),
        )
        samples: dict[str, list[Sample]] = {name: [] for name in (UNCACHED, *(v.name for v in wanted))}
        left_out, short = [], []
        try:
            for done, task in enumerate(tasks):
                say(done, len(tasks), task.name)
                try:
                    asked = _fitted(engine, task, _settings(task, placement))
                    _sample(engine, asked, wanted, placement, samples)
                    if asked is not task:
                        short.append(task.name)
                except PromptError as error:
                    left_out.append({"task": task.name, "why": str(error)})
                engine.memory_tier.clear()
                engine.store.clear()
            say(len(tasks), len(tasks), "done")
            where = machine(engine.model)
        finally:
            engine.close()
    if not samples[UNCACHED]:
        raise PromptCacheError(f"none of the {len(tasks)} prompts could be run: {left_out[0]['why']}")
    params = {"model": model, "dtype": engine.model.dtype, "placement": placement}
    return {
        "results": _results(samples, params),
        "prompts": len(samples[UNCACHED]),
        "left_out": left_out,
        "shortened": short,
        "machine": where,
    }


def _sample(
    engine: Engine, task: Task, wanted: Sequence[Variant], placement: Any, samples: dict[str, list[Sample]]
) -> None:
    settings = _settings(task, placement)
    prompt = task.on(engine)
    plain = prompt.answer(settings, mode="uncached")
    full = prompt.reading(plain.token_ids, settings, "uncached")
    samples[UNCACHED].append(_taken(task, plain, plain, full, full))
    for variant in wanted:
        chosen = replace(settings, scope=variant.scope, repair=variant.repair)
        answer = prompt.answer(chosen)
        reading = prompt.reading(plain.token_ids, chosen, "cached")
        samples[variant.name].append(_taken(task, answer, plain, reading, full))


def _fitted(engine: Engine, task: Task, settings: RunSettings) -> Task:
    """The task, with a shorter context where it has one that is too long."""
    if task.question is None or fits(engine, task, settings):
        return task
    return shortened(engine, task, settings) or task


def _settings(task: Task, placement: Any) -> RunSettings:
    return RunSettings(max_new_tokens=task.new_tokens, placement=placement)


def _taken(task: Task, answer: Answer, plain: Answer, reading: Reading, full: Reading) -> Sample:
    """One prompt's figures; `figures.figures` says what they mean."""
    compared, apart = compare(answer, plain), reading.divergence(full)
    counts, given = answer.tokens, None
    if task.metric:
        text = answer.text.strip()
        given = score(task.metric, text, task.answers, classes=task.classes, dataset=task.dataset)
    return {
        "task": task.name,
        "documents": task.documents,
        "kind": task.kind,
        "position": task.position,
        "chosen_on": task.chosen_on,
        "score": given,
        "answer_tokens": len(apart),
        "kl_answer": float(apart.mean()),
        "kl_worst": float(apart.max()),
        "flips": int((~reading.agreement(full)).sum()),
        "same_answer": compared.same_text,
        "first_token_agrees": compared.first_token_agrees,
        "kl_first_token": compared.kl_first_token,
        "computed_share": (counts["computed"] + counts["choosing"]) / counts["prompt"],
        "text": answer.text,
    }


def _results(samples: dict[str, list[Sample]], params: dict[str, Any]) -> list[dict[str, Any]]:
    plain = samples[UNCACHED]
    return [
        {"name": name, "params": params, **figures(found, plain), **grouped(found, plain), "samples": found}
        for name, found in samples.items()
    ]
