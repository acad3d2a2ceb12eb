"""`pml bench`: times and qualities that can be measured again, on any model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from app.cli.options import (
    ModelOptions,
    debug_option,
    json_option,
    model_options,
)
from app.cli.output import print_json, progress_bar, say, table
from app.cli.param_types import Name, Whole
from app.cli.setting_options import setting_option
from engine.inference.findings import nats
from engine.stopwatch import milliseconds


@click.group()
def bench() -> None:
    """Measure speed and quality on this machine."""


@bench.command()
@click.option("--cached", type=Whole(1), default=1024, show_default=True, help="Tokens in stored modules.")
@click.option("--modules", type=Whole(1), default=8, show_default=True, help="Modules they are split over.")
@click.option("--new", type=Whole(1), default=32, show_default=True, help="New tokens after them.")
@click.option("--repeats", type=Whole(1), default=5, show_default=True, help="Measured runs of each kind.")
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Of texts, tokens and orders.")
@model_options
@json_option
@debug_option
def ttft(
    cached: int, modules: int, new: int, repeats: int, seed: int, as_json: bool, **model_choice: Any
) -> None:
    """Time to first token: uncached, from segments in memory and in files, repaired, and the floor.

    From the text of a prompt: parsing, binding, planning, loading and repair are in it. Files are read as
    later in a process (their digests were checked before), as at its first load (checked now), and cold.
    Rows that begin with tokens_ begin at token ids with the segments in hand: `floor` is the new tokens with
    nothing before them; `copy` and `concat` bring the modules into one buffer first, a kept or a fresh one.

    The kinds take turns in orders that favour none, each after a run of its own to warm up. With --model
    random:tinyllama-1.1b a model of that shape is timed without a download.
    """
    if cached < modules:
        raise click.UsageError(
            f"--cached {cached} cannot be split over --modules {modules}: a module needs a token."
        )
    options = ModelOptions(cache_dir=None, **model_choice)
    from benchmarks import ttft as measurement

    report = measurement.run(
        options.name,
        device=options.device,
        dtype=options.dtype,
        weights=options.weights,
        cached=cached,
        modules=modules,
        new=new,
        repeats=repeats,
        seed=seed,
        progress=_narrate if sys.stderr.isatty() else None,
    )
    _show(report, as_json)


@bench.command()
@click.option("--cached", type=Whole(1), default=512, show_default=True, help="Tokens in stored modules.")
@click.option("--modules", type=Whole(1), default=8, show_default=True, help="Modules they are split over.")
@click.option("--steps", type=Whole(2), default=16, show_default=True, help="Tokens of an answer.")
@click.option("--repeats", type=Whole(1), default=5, show_default=True, help="Measured answers of each side.")
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Of tokens and orders.")
@model_options
@json_option
@debug_option
def decode(
    cached: int, modules: int, steps: int, repeats: int, seed: int, as_json: bool, **model_choice: Any
) -> None:
    """Time per token of an answer after cached tokens, with plain and with packed weights in turn.

    A sample is the median step of one answer: from the token before to the text of this one. The model is
    held twice, once for each side, unless --weights names one.
    """
    options = ModelOptions(cache_dir=None, **model_choice)
    from benchmarks import decode as measurement

    report = measurement.run(
        options.name,
        device=options.device,
        dtype=options.dtype,
        cached=cached,
        modules=modules,
        steps=steps,
        repeats=repeats,
        seed=seed,
        sides=measurement.SIDES if options.weights == "auto" else (options.weights,),
        progress=_narrate if sys.stderr.isatty() else None,
    )
    if as_json:
        print_json(report)
        return
    rows = [
        [one["name"], milliseconds(one["median_ms"]), milliseconds(min(one["samples_ms"]))]
        for one in report["results"]
    ]
    machine = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    say(f"{table(['', 'MEDIAN', 'LEAST'], rows)}\n\n{machine}")


@bench.command()
@click.argument("prompts", nargs=-1, required=True, metavar="PROMPT...", type=click.Path(path_type=Path))
@click.option("--schema", required=True, type=click.Path(path_type=Path), help="Of the prompts.")
@click.option("--tokens", type=Whole(1), default=128, show_default=True, help="Of an answer, at most.")
@click.option("--repeats", type=Whole(1), default=5, show_default=True, help="Measured answers of each side.")
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Of the orders.")
@model_options
@json_option
@debug_option
def guesses(
    prompts: tuple[Path, ...],
    schema: Path,
    tokens: int,
    repeats: int,
    seed: int,
    as_json: bool,
    **model_choice: Any,
) -> None:
    """Passes and time per token of answers to each PROMPT, with guesses and without, in turns."""
    options = ModelOptions(cache_dir=None, **model_choice)
    from benchmarks import guesses as measurement

    report = measurement.run(
        options.name,
        prompts,
        schema,
        device=options.device,
        dtype=options.dtype,
        weights=options.weights,
        tokens=tokens,
        repeats=repeats,
        seed=seed,
        progress=_narrate if sys.stderr.isatty() else None,
    )
    if as_json:
        print_json(report)
        return
    rows = [
        [
            one["prompt"],
            str(one["tokens"]),
            f"{one['passes']['off']} / {one['passes']['on']}",
            f"{one['accepted']} of {one['drafted']}",
            f"{milliseconds(one['median_ms']['off'])} / {milliseconds(one['median_ms']['on'])}",
            "yes" if one["same_text"] else "NO",
        ]
        for one in report["results"]
    ]
    machine = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    head = ["", "TOKENS", "PASSES WITHOUT / WITH", "GUESSED RIGHT", "PER TOKEN", "SAME TEXT"]
    say(f"{table(head, rows)}\n\n{machine}")


@bench.command()
@click.argument("documents", nargs=-1, metavar="[SCHEMA PROMPT]")
@click.option("--cached", type=Whole(1), default=1024, show_default=True, help="Tokens in drawn modules.")
@click.option("--modules", type=Whole(1), default=8, show_default=True, help="How many are drawn.")
@click.option("--new", type=Whole(1), default=32, show_default=True, help="New tokens after them.")
@click.option("--repeats", type=Whole(1), default=5, show_default=True, help="Measured runs of each kind.")
@click.option("--seed", type=Whole(0), default=0, show_default=True, help="Of texts and orders.")
@model_options
@json_option
@debug_option
def first(
    documents: tuple[str, ...],
    cached: int,
    modules: int,
    new: int,
    repeats: int,
    seed: int,
    as_json: bool,
    **model_choice: Any,
) -> None:
    """Time to first token of a prompt of which nothing is stored, against no cache at all.

    Every run has an empty store. `first` writes behind the answer, `first_sync` before its first token, and
    `first_written` is over when all is written. Without SCHEMA and PROMPT the modules are drawn.
    """
    if len(documents) not in (0, 2):
        raise click.UsageError("name a schema and a prompt over it, or neither.")
    options = ModelOptions(cache_dir=None, **model_choice)
    from benchmarks import first as measurement
    from engine.pml.text_files import read_text_file

    texts = [read_text_file(Path(path)) for path in documents]
    report = measurement.run(
        options.name,
        device=options.device,
        dtype=options.dtype,
        weights=options.weights,
        cached=cached,
        modules=modules,
        new=new,
        documents=(texts[0], texts[1]) if texts else None,
        repeats=repeats,
        seed=seed,
        progress=_narrate if sys.stderr.isatty() else None,
    )
    _show(report, as_json)


@bench.command()
@click.argument("path", required=False, metavar="[PATH]")
@setting_option("scope", multiple=True, help="May be given again. Default: all, and the repairs on anchored.")
@setting_option("repair", multiple=True, help="May be given again; each is run with each scope.")
@click.option(
    "--metric",
    type=Name(["exact", "f1", "rouge-l", "accuracy", "numbers", "edit-similarity", "mentions"]),
    help="In place of what the file says, or its data set implies.",
)
@click.option(
    "--suite",
    type=Name(["demo"]),
    help="Drawn prompts for the bundled model: documents, trips, lessons and programs; 60 chose its weights.",
)
@click.option("--limit", type=Whole(1), help="The most prompts.")
@setting_option("placement")
@model_options
@json_option
@debug_option
def quality(
    path: str | None,
    scope: tuple[str, ...],
    repair: tuple[str, ...],
    metric: str | None,
    suite: str | None,
    limit: int | None,
    placement: str,
    as_json: bool,
    **model_choice: Any,
) -> None:
    """What reuse costs in quality: answers under every scope and repair, against the uncached ones.

    PATH is a file of questions in LongBench's format (one JSON object per line with input, context or
    documents, answers, and dataset), or a folder with NAME.pml and NAME.prompt.*.pml, which need no right
    answers to be compared. Without PATH it runs over the document questions that come with the project.
    """
    if suite and path:
        raise click.UsageError("--suite has files of its own: leave out PATH, or --suite.")
    options = ModelOptions(cache_dir=None, **model_choice)
    from benchmarks import quality as measurement
    from benchmarks.figures import pooled
    from benchmarks.tasks import own_questions, read_tasks
    from benchmarks.tasks import suite as files_of

    files = files_of(suite) if suite else {"": Path(path) if path else own_questions()}
    tasks = {name: read_tasks(file, metric=metric or "", limit=limit) for name, file in files.items()}
    reports: dict[str, dict[str, Any]] = {}
    for name, found in tasks.items():
        with progress_bar() as progress:
            reports[name] = measurement.run(
                options.name,
                found,
                measurement.variants(scope, repair),
                device=options.device,
                dtype=options.dtype,
                placement=placement,
                progress=progress,
            )
    together = pooled(list(reports.values())) if suite else []
    if as_json:
        print_json({"suite": suite, "worlds": reports, "all": together} if suite else reports[""])
        return
    for name, report in reports.items():
        if name:
            say(f"{name}\n")
        say(f"{_quality_table(report['results'])}\n\n{_quality_notes(report)}")
        if suite:
            say(f"\n{_groups_table(report)}\n")
    if suite:
        say(f"all worlds, {together[0]['prompts']} prompts\n\n{_quality_table(together)}")
    say(f"\n{_READING}")


def _quality_table(results: list[dict[str, Any]]) -> str:
    """Every way to answer beside the uncached one, prompt by prompt."""
    rows = []
    for result in results:
        cells = ["-"] * 5
        if "score" in result:
            pair = result["paired"]
            cells = [
                f"{result['score']:.3f} ({result['score_low']:.3f} to {result['score_high']:.3f})",
                "{difference:+.1f} ({difference_low:+.1f} to {difference_high:+.1f})".format(**pair),
                f"{pair['wins']} / {pair['losses']} / {pair['ties']}",
                f"{pair['p']:.3g}",
                _ratio(pair),
            ]
        rows.append(
            [
                result["name"],
                *cells,
                nats(result["kl_answer"]),
                nats(result["kl_worst"]),
                f"{result['flipped']:.2f}",
                f"{result['same_answer']:.2f}",
                f"{result['computed_share']:.1%}",
            ]
        )
    head = ["", "SCORE (95%)", "POINTS (95%)", "WON/LOST/TIED", "P", "÷ UNCACHED (95%)"]
    return table([*head, "KL", "KL WORST", "FLIPS", "SAME ANSWER", "COMPUTED"], rows)


def _ratio(pair: dict[str, Any]) -> str:
    if pair["ratio"] is None:
        return "-"
    return f"{pair['ratio']:.3f} ({pair['ratio_low']:.3f} to {pair['ratio_high']:.3f})"


def _quality_notes(report: dict[str, Any]) -> str:
    """How many prompts there are, what was left out or shortened, and where it was measured."""
    lines = [f"{report['prompts']} prompts"]
    if report["shortened"]:
        lines.append(f"{len(report['shortened'])} shortened in the middle, as LongBench does, to fit")
    if report["left_out"]:
        first = report["left_out"][0]
        lines.append(f"{len(report['left_out'])} left out; {first['task']}: {first['why']}")
    machine = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    return "\n".join([*lines, machine])


_READING = """Points, wins and losses are against the uncached side on the same prompts (95% by bootstrap in
pairs, P of the exact sign test). KL is in nats per token of the whole uncached answer, which both sides
read, mean and worst; FLIPS is the share of prompts in which another token becomes the likeliest at least
once. COMPUTED has in it what a repair takes to choose its tokens."""


def _groups_table(report: dict[str, Any]) -> str:
    """Scores by how many modules there are, by where the answer stands, and by kind of question."""
    results = {result["name"]: result for result in report["results"]}
    rows = []
    titles = {
        "by_choice": "{}",
        "by_documents": "modules: {}",
        "by_position": "answer in {} third",
        "by_kind": "{}",
    }
    for group, title in titles.items():
        for key in results["uncached"][group]:
            cells = [results[name][group][key] for name in results]
            rows.append(
                [
                    title.format(key),
                    str(cells[0]["prompts"]),
                    *(f"{cell['score']:.2f}" if "score" in cell else "-" for cell in cells),
                ]
            )
    return table(["", "PROMPTS", *(name.upper() for name in results)], rows)


@bench.command()
@click.option("--kills", type=Whole(0), default=200, show_default=True, help="Writers to kill.")
@click.option("--damages", type=Whole(0), default=1000, show_default=True, help="Files to damage.")
@click.option("--seconds", type=Whole(1), default=60, show_default=True, help="Four processes share a store.")
@click.option(
    "--questions",
    type=Whole(1, 60),
    default=40,
    show_default=True,
    help="To measure compression over.",
)
@model_options
@json_option
@debug_option
def store(kills: int, damages: int, seconds: int, questions: int, as_json: bool, **model_choice: Any) -> None:
    """Whether the store keeps its word: killed writers, damaged files, many processes, fewer bits."""
    options = ModelOptions(cache_dir=None, **model_choice)
    from benchmarks import store as measurement

    with progress_bar() as progress:
        report = measurement.run(
            options.name,
            kills=kills,
            damages=damages,
            seconds=seconds,
            questions=questions,
            device=options.device,
            dtype=options.dtype,
            progress=progress,
        )
    if as_json:
        print_json(report)
        return
    say(store_words(report))


def _compression(result: dict[str, Any]) -> str:
    return _COMPRESSION.format(**result | {name: nats(result[name]) for name in ("kl_answer", "kl_worst")})


def store_words(report: dict[str, Any]) -> str:
    """What the trials of the store gave, a line or two each."""
    found = {result["name"]: result for result in report["results"]}
    told = {name: words for name, words in _STORE.items() if name in found}
    if not found.get("full disk", {}).get("tried", 1):
        told["full disk"] = "a full disk was not tried: none of its own could be mounted here"
    lines = [words.format(**found[name]) for name, words in told.items()]
    lines += [
        f"{name.removeprefix('compression ')} against plain: {_compression(result)}"
        for name, result in found.items()
        if name.startswith("compression ") and not name.endswith(" plain")
    ]
    return "\n".join([*lines, ", ".join(f"{name} {value}" for name, value in report["machine"].items())])


_STORE = {
    "kills": "{kills} writers killed: after {right} of them index and files agreed and nothing wrong was "
    "served\n"
    "  died writing a file {killed_writing_a_file}, entering a row {killed_entering_a_row}, removing "
    "{killed_removing}, reading {killed_reading}, opening {killed_opening}, between {killed_between}; an "
    "unfinished file lay there after {half_written}",
    "damages": "{damages} files damaged: {served_wrong} served wrong, {noticed} noticed, {mended} mended",
    "processes": "4 processes on one store for {seconds} s: {failed} failed, {corrupt} segments found "
    "damaged, index and files agree: {clean}",
    "full disk": "a disk without a free block, {tried} ways: {answers} right answers; opened for reading "
    "{opened_read_only}, room made by pruning {freed}, index and files agree {clean} (of 1 each)",
    "verify": "reading and checking all files: {seconds_per_gb:.2f} s per GB; files take "
    "{bytes_by_theory:.3f} of the bytes of their keys and values",
    "trace": "computing that the policy cost causes: {cost_by_lru:.2f} of what lru causes, over {requests} "
    "requests",
}
_COMPRESSION = """{bytes_by_bf16:.3f} of the bytes in bf16, {bytes_by_plain:.3f} of those stored plainly
  over {questions} questions with {answer_tokens} answer tokens: KL {kl_answer} nats per token, worst
  {kl_worst}; likeliest token the same for {answer_agreement:.2%}, same answer {same_answer:.1%}
  time to first token from files {ttft_from_disk_by_plain:.2f} times as long"""


def _narrate(what: str) -> None:
    say(what, err=True)


def _show(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
    else:
        say(_as_table(report))


def _as_table(report: dict[str, Any]) -> str:
    results = report["results"]
    medians = {result["name"]: result["median_ms"] for result in results}
    rows = []
    for result in results:
        level = "tokens_" if result["name"].startswith("tokens_") else ""
        slowest = medians.get(f"{level}uncached")
        rows.append(
            [
                result["name"],
                milliseconds(result["median_ms"]),
                f"{milliseconds(min(result['samples_ms']))} to {milliseconds(max(result['samples_ms']))}",
                f"{slowest / result['median_ms']:.1f}" if slowest else "-",
            ]
        )
    counts = report["tokens"]
    about = f"{counts['from_cache']:,} tokens from the cache, {counts['prompt'] - counts['from_cache']} new"
    machine = ", ".join(f"{name} {value}" for name, value in report["machine"].items())
    return f"{table(['', 'MEDIAN', 'RANGE', 'UNCACHED ÷'], rows)}\n\n{about}\n{machine}"
