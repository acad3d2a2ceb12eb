"""What rounded weights cost in quality: the same prompts answered by a model and by its rounded forms.

Run it as `python -m benchmarks.rounding [--model NAME] [--limit N] [--json]`. All answer greedily and without
the cache, so nothing but the weights and the number format differs; the first side is what `--dtype fp32`
answers, and the second what bf16 alone changes. KL is over the whole answer of the first side, which each
side reads; `same answer` is the share of prompts whose own answers are equal to the last token.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.metrics import score
from benchmarks.tasks import Task, own_questions, read_tasks
from engine.base.choices import Quantize
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.model.model import Model

SIDES: dict[str, tuple[str, Quantize]] = {
    "fp32": ("fp32", "none"),
    "bf16": ("bf16", "none"),
    "int8": ("bf16", "int8"),
    "int4": ("bf16", "int4"),
}


def run(model: str, tasks: Sequence[Task]) -> dict[str, Any]:
    """Answers every prompt on all sides.

    Args:
        model: its name.
        tasks: the prompts, at least one; all have to fit the model's context.

    Returns:
        `results` (name, weight_bytes, score where answers are known, kl_answer and kl_worst in nats, flips as
        a share of the answers' tokens, same_answer), `prompts`, `machine`.

    Raises:
        ModelError: the model cannot be used.
        PromptError: a prompt does not fit it.
    """
    samples: dict[str, list[dict[str, Any]]] = {name: [] for name in SIDES}
    with tempfile.TemporaryDirectory(prefix="pml-rounding-") as folder, ExitStack() as open_engines:
        engines = {
            name: open_engines.enter_context(
                Engine.open(
                    model,
                    device="cpu",
                    dtype=dtype,
                    weights="plain",
                    quantize=quantize,
                    cache_dir=Path(folder) / name,
                )
            )
            for name, (dtype, quantize) in SIDES.items()
        }
        for task in tasks:
            for name, sample in _answered(task, engines).items():
                samples[name].append(sample)
        results = [
            {"name": name, "weight_bytes": _weight_bytes(engines[name].model), **_figures(found)}
            for name, found in samples.items()
        ]
        return {"results": results, "prompts": len(tasks), "machine": machine(engines["bf16"].model)}


def _answered(task: Task, engines: dict[str, Engine]) -> dict[str, dict[str, Any]]:
    """One prompt's figures on each side."""
    settings = RunSettings(max_new_tokens=task.new_tokens)
    found, first, full = {}, None, None
    for name, engine in engines.items():
        prompt = task.on(engine)
        answer = prompt.answer(settings, mode="uncached")
        first = first or answer
        reading = prompt.reading(first.token_ids, settings, "uncached")
        full = full or reading
        given = None
        if task.metric:
            text = answer.text.strip()
            given = score(task.metric, text, task.answers, classes=task.classes, dataset=task.dataset)
        found[name] = {
            "kl": reading.divergence(full).tolist(),
            "flips": (~reading.agreement(full)).tolist(),
            "same": answer.token_ids == first.token_ids,
            "score": given,
        }
    return found


def _figures(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    apart = [kl for sample in samples for kl in sample["kl"]]
    scores = [sample["score"] for sample in samples if sample["score"] is not None]
    return {
        "score": statistics.fmean(scores) if scores else None,
        "kl_answer": statistics.fmean(apart),
        "kl_worst": max(apart),
        "flips": statistics.fmean(flip for sample in samples for flip in sample["flips"]),
        "same_answer": statistics.fmean(sample["same"] for sample in samples),
    }


def _weight_bytes(model: Model) -> int:
    module = model.network.module
    return sum(one.nbytes for held in (module.parameters(), module.buffers()) for one in held)


def _main() -> None:
    from app.cli.base.output import print_json, say, table

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rounding", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--model", default="demo")
    parser.add_argument("--limit", type=int, help="the most prompts")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    report = run(given.model, read_tasks(own_questions(), limit=given.limit))
    if given.json:
        print_json(report)
        return
    rows = [
        [
            one["name"],
            f"{one['weight_bytes'] / 1e6:.1f} MB",
            "-" if one["score"] is None else f"{one['score']:.3f}",
            f"{one['kl_answer']:.2g}",
            f"{one['kl_worst']:.2g}",
            f"{one['flips']:.4f}",
            f"{one['same_answer']:.2f}",
        ]
        for one in report["results"]
    ]
    say(table(["", "WEIGHTS", "SCORE", "KL", "WORST", "FLIPS", "SAME ANSWER"], rows))
    say(f"\n{report['prompts']} prompts; KL in nats for each token of the answer")


if __name__ == "__main__":
    _main()
