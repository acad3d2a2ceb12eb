"""`pml bench store`: whether the store keeps its word."""

from __future__ import annotations

from typing import Any

import click

from app.cli.base.options import ModelOptions, debug_option, json_option, model_options
from app.cli.base.output import print_json, progress_bar, say
from app.cli.base.param_types import Whole
from engine.fidelity.findings import nats


@click.command()
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
            weights=options.weights,
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
