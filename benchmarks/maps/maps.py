"""The command `python -m benchmarks maps`."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch

from app.cli.base.options import ModelOptions, debug_option, json_option, model_options
from app.cli.base.output import print_json, progress_bar, say
from app.cli.base.param_types import DOCUMENT, Number, Size, Whole
from app.studio.sweeps.machine import facts
from benchmarks.maps.controls import Controls
from benchmarks.maps.lengths import by_length
from benchmarks.maps.measure import Measurement, by_corpus
from benchmarks.maps.report import PAPER, figures, speedups, words
from benchmarks.maps.tasks import Task, clinc, corpus, sick, sts
from engine.base.errors import PromptCacheError
from engine.embeddings.embedder import Embedder
from engine.engine import Engine
from engine.maps.build import building
from engine.maps.passes import MapPasses
from engine.maps.projector import Training
from engine.maps.reuse import MapReuse
from engine.maps.sharing import divergence, lazyformer, san
from engine.maps.store import MapStore, key_of
from engine.model.loading import load
from engine.store import Store

_COMPARED = 32  # texts of the divergence of layers
_BY_CORPUS = (0.95, 0.98, 0.99)  # thresholds


def _file(name: str, words: str, *, required: bool = False) -> Any:
    return click.option(f"--{name}", type=DOCUMENT, required=required, help=words)


@click.command()
@_file("train", "CSV with two sentences and a score in each row, whose maps are stored.", required=True)
@_file("sts", "CSV of the same form to test.")
@_file("sick", "The tab-separated test file of SICK.")
@_file("clinc", "JSONL with `split`, `text` and `label`.")
@click.option("--corpus", "count", type=Whole(2), default=2000, show_default=True, help="Stored texts.")
@click.option(
    "--rows", type=Whole(4), default=200, show_default=True, help="Most texts of each file to test."
)
@click.option("--budget", type=Size(), default="8GiB", show_default=True, help="Most bytes of all maps.")
@click.option("--rounds", type=Whole(1), default=5, show_default=True, help="Turns of each side by length.")
@click.option(
    "--san", "least", type=Number(0, 1), help="Divergence that begins a sub-block. Default: the median."
)
@click.option("--by-layer/--no-by-layer", default=True, show_default=True, help="Measure AttnCache-f.")
@model_options
@json_option
@debug_option
def maps(
    train: str,
    sts: str | None,
    sick: str | None,
    clinc: str | None,
    count: int,
    rows: int,
    budget: int,
    rounds: int,
    least: float | None,
    by_layer: bool,
    as_json: bool,
    **choice_of_model: Any,
) -> None:
    """Measure embeddings with stored attention maps: quality, hits and time, with baselines and controls."""
    tasks = _tasks(sts, sick, clinc, rows)
    texts = corpus(train, tasks, count)
    options = ModelOptions(**choice_of_model)
    with (
        tempfile.TemporaryDirectory(prefix="pml-maps-") as folder,
        Engine(load(options.name, **options.loading), Store.open(Path(folder, "store"))) as engine,
        progress_bar() as tell,
    ):
        report: dict[str, Any] = {"model": options.name, "machine": facts(), "paper": PAPER}
        embedder = engine.embedder("last", "prompteol", normalize=False)
        tokens = [embedder.template.around(text)[0] for text in texts]
        passes = MapPasses(engine.model.network, engine.model.name)
        store = MapStore.create(Path(folder, "maps"), engine.model, passes.heads, by_layer=by_layer)
        say(f"building the maps of {len(tokens)} texts", err=True)
        plan, started = Training(), time.perf_counter()
        work = building(passes, store, tokens, budget, plan)
        built = engine.computing.finish(work, "uncached", progress=tell)
        report["corpus"] = {
            "texts": len(store.entries),
            "left_out": built.left_out,
            "bytes": store.bytes,
            "bytes_per_entry": store.bytes / len(store.entries),
            "seconds": time.perf_counter() - started,
            "losses": built.losses,
        }
        reuse = MapReuse(store, passes)
        sharing = _sharing(passes, tokens, least, report)
        thresholds = (0.99,) if by_layer else ()
        measurement = Measurement(reuse, Controls(reuse, plan.alpha), sharing, thresholds)
        with torch.inference_mode():
            report["tasks"], report["by_corpus"] = {}, {}
            for task in tasks:
                say(f"reading {len(task.texts)} texts of {task.name}", err=True)
                _task(task, embedder, measurement, tokens, report, tell)
            say("timing lengths", err=True)
            joined = [token for one in tokens for token in one]
            report["by_length"] = by_length(engine.model, passes, joined, rounds, lambda _: None)
    if as_json:
        print_json(report)
    else:
        say(words(report))


def _tasks(pairs: str | None, other: str | None, labelled: str | None, rows: int) -> list[Task]:
    tasks: list[Task] = []
    if pairs is not None:
        tasks.append(sts(pairs, rows // 2))
    if other is not None:
        tasks.append(sick(other, rows // 2))
    if labelled is not None:
        tasks.append(clinc(labelled, rows))
    if not tasks:
        raise PromptCacheError("There is nothing to test: give --sts, --sick or --clinc.")
    return tasks


def _sharing(
    passes: MapPasses, tokens: Sequence[Sequence[int]], least: float | None, report: dict[str, Any]
) -> dict[str, list[int]]:
    """The layer whose map each layer reads, for LazyFormer and SAN."""
    away = torch.stack([divergence(passes.record(text).maps) for text in tokens[:_COMPARED]]).mean(0).tolist()
    threshold = statistics.median(away) if least is None else least
    blocks = san(away, threshold)
    report["san"] = {"divergences": away, "threshold": threshold, "first_layers": blocks}
    return {"LazyFormer": lazyformer(passes.network.layers), "SAN": blocks}


def _task(
    task: Task,
    embedder: Embedder,
    measurement: Measurement,
    tokens: Sequence[Sequence[int]],
    report: dict[str, Any],
    tell: Any,
) -> None:
    own = [embedder.template.around(text)[0] for text in task.texts]
    found = measurement.rows(own, tell)
    examples = embedder.embed(task.examples).vectors
    result = figures(task, found, examples)
    started = time.perf_counter()
    embedder.embed(task.texts)
    result["packed_ms"] = (time.perf_counter() - started) * 1000 / len(own)
    report["tasks"][task.name] = result
    by_size = by_corpus(measurement.maps, [key_of(one) for one in tokens], own)
    for at in _BY_CORPUS:
        report["by_corpus"][f"{task.name} {at}"] = {
            str(count): speedups(found, similarities, at) for count, similarities in by_size.items()
        }
