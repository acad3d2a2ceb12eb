"""`pml run`: answers a prompt with and without cached segments, and compares both."""

from __future__ import annotations

import datetime
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from app.cli.base.documents import (
    STDIN,
    Document,
    FaultyDocumentError,
    read_prompt,
    read_schema,
    read_text,
    require_sound,
    self_contained_source,
)
from app.cli.base.grammar_options import faults_of, grammar_of, grammar_options, verdict
from app.cli.base.judging import Judging
from app.cli.base.options import (
    ModelOptions,
    batch_output_option,
    debug_option,
    engine_options,
    json_option,
    schema_option,
    server_option,
)
from app.cli.base.output import print_json, progress_bar, say, table
from app.cli.base.param_types import DOCUMENT, Name, UserPath
from app.cli.base.run_answers import Mode, Outcome, Work, check, computed, follow, handed, prepared
from app.cli.base.setting_options import setting_option, setting_options
from engine.base.stopwatch import milliseconds
from engine.exchange.base.errors import ExchangeError
from engine.fidelity.findings import nats
from engine.grammars.grammar import FREE
from engine.inference.run_settings import CHOOSES, RunSettings
from engine.pml import Prompt, PromptError, Schema, bind
from engine.rows.evaluations import FILES, Tool
from engine.rows.expectations import KINDS, Expectation, expected

_ONE_BY_ONE = "rows are answered one by one, on both sides; --mode cached answers up to 32 at once"
_NO_PROMISE = "--max-kl belongs to --reuse auto, which --reuse off, --scope or --repair turns off."
KEPT_PLACES = "segments of this model cannot be moved, so the prompt uses the schema's positions"


@click.command()
@click.argument("prompt_path", metavar="[PROMPT]", required=False, type=DOCUMENT)
@schema_option
@click.option(
    "--mode",
    type=Name(["cached", "uncached", "both"]),
    default="both",
    show_default=True,
    help="Answer with segments, without them, or both in turn.",
)
@click.option(
    "--batch",
    "batch_path",
    type=DOCUMENT,
    metavar="FILE",
    help="Answer each row of this JSONL or CSV file, alone or as a change of PROMPT: one JSON line each.",
)
@batch_output_option
@click.option(
    "--csv",
    "table_path",
    type=UserPath(path_type=Path),
    help="Also write all rows of a batch to this file, as a CSV table.",
)
@click.option(
    "--export",
    "exports",
    type=(Name(tuple(FILES)), UserPath(path_type=Path)),
    multiple=True,
    metavar="TOOL FOLDER",
    help="Also write all rows of a batch for promptfoo or langfuse, into this folder. Repeatable.",
)
@click.option(
    "--expect",
    "expect",
    type=(str, str),
    multiple=True,
    metavar="KIND VALUE",
    help=f"Expectation for every answer of a batch: {', '.join(KINDS)}. Repeatable.",
)
@click.option("--expect-any", is_flag=True, help="An answer passes if any expectation is met, not all.")
@click.option(
    "--judge",
    default="",
    metavar="URL",
    help="Let a server with OpenAI's API on this machine grade every answer of a batch from 0 to 1; the word "
    "model names the loaded model.",
)
@click.option(
    "--judge-model", default="", metavar="NAME", help="Model of the server.  [default: its first one]"
)
@click.option(
    "--judge-template",
    type=DOCUMENT,
    metavar="FILE",
    help="Prompt of the judge, with {question}, {prompt} and {answer}.",
)
@click.option("--as-they-end", is_flag=True, help="Write the lines of a batch in order of completion.")
@click.option("--force", is_flag=True, help="Replace an existing output of a batch.")
@setting_options(
    *("max_new_tokens", "temperature", "seed", "top_p", "top_k", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "stop"),
    *("speculate", "store_conversation", "sync"),
)
@setting_option("reuse", default="auto")
@setting_options("max_kl", "scope", "repair", "placement")
@grammar_options
@engine_options
@server_option
@json_option
@debug_option
def run(
    prompt_path: str | None,
    schema_path: str,
    mode: Mode,
    batch_path: str | None,
    output: Path | None,
    table_path: Path | None,
    exports: tuple[tuple[Tool, Path], ...],
    expect: tuple[tuple[str, str], ...],
    expect_any: bool,
    judge: str,
    judge_model: str,
    judge_template: str | None,
    as_they_end: bool,
    force: bool,
    as_json: bool,
    model: str | None,
    device: str,
    dtype: str,
    cache_dir: Path | None,
    verify: str,
    memory: int | None,
    date: datetime.datetime | None,
    weights: str,
    quantize: str,
    server: str,
    json_schema: str | None,
    regex: str,
    choice: str,
    **given: Any,
) -> int:
    """Answer PROMPT, with and without the cache; or each row of a file, with --batch.

    Both sides see the same tokens at the same positions. TTFT, the time to first token, starts at the text of
    the prompt and includes the encoding of missing modules. PROMPT may be - for standard input. A running
    studio with the same model and cache folder computes the answer; otherwise the model is loaded here.

    A row of --batch is {"id", "picks", "arguments", "text"} or {"id", "prompt"} as JSON, or cells of CSV
    under the columns id, text, picks, prompt, module/parameter, "set temperature" and "expect contains". With
    PROMPT each row changes it. Rows without an id get their line number. A failing row does not stop the
    others; the exit status is 3 then, and 4 if an answer is not as expected.
    """
    for_batch = bool(as_they_end or force or output or table_path or exports or expect or expect_any or judge)
    if not judge and (judge_model or judge_template):
        raise click.UsageError(
            "--judge-model and --judge-template are for --judge.", click.get_current_context()
        )
    _require_usage(prompt_path, batch_path, server, for_batch, as_json)
    _require_one_choice(given)
    schema = read_schema(schema_path)
    options = ModelOptions(model, device, dtype, cache_dir, verify, memory, date, weights, quantize)
    # The process ends after one answer, so segments for its turns would never be reused.
    chosen = any(_source(name) is not ParameterSource.DEFAULT for name in ("scope", "repair"))
    if chosen and _source("reuse") is ParameterSource.DEFAULT:
        given["reuse"] = "off"
    if given["reuse"] == "off" and _is_written("max_kl"):
        raise click.UsageError(_NO_PROMISE, click.get_current_context())
    grammar = grammar_of(json_schema, regex, choice)
    settings = RunSettings(**given, grammar=grammar, hold_conversation=False)
    if batch_path is not None:
        from app.cli.commands.batch import Batch, answer_batch

        over = None if prompt_path is None else self_contained_source(_sound_prompt(prompt_path, schema))
        batch = Batch(
            batch_path,
            schema,
            settings,
            mode,
            output,
            as_they_end,
            force,
            over,
            expect=_expectations(expect),
            combine="any" if expect_any else "all",
            table=table_path,
            exports=exports,
            judging=Judging(
                judge.strip(), judge_model.strip(), read_text(judge_template) if judge_template else None
            )
            if judge.strip()
            else None,
        )
        chosen = _source("mode") is not ParameterSource.DEFAULT
        status, placement = answer_batch(batch, options, advice="" if chosen else _ONE_BY_ONE)
        if placement != settings.placement:
            say(f"pml: {KEPT_PLACES}", err=True)
        return status
    assert prompt_path is not None
    prompt = _sound_prompt(prompt_path, schema)
    try:
        with progress_bar() as progress:
            work = Work(schema, prompt, settings, mode)

            def answered(outcome: Outcome) -> None:
                if not as_json:
                    say(_summary(outcome))

            outcome = handed(work, options, server, progress, aloud=not as_json, answered=answered)
            if outcome is None:
                with options.open() as engine:
                    asked = prepared(work, engine)
                    outcome = follow(computed(work, engine, asked), progress, Outcome(), aloud=not as_json)
                    answered(outcome)
                    check(work, asked, outcome, progress)
    except PromptError as error:
        raise FaultyDocumentError(prompt.name, "prompt", prompt.source, error.diagnostics) from error
    wanted = grammar if grammar != FREE or prompt.tree.format is None else prompt.tree.format.grammar
    faults = faults_of(wanted, outcome.answers)
    if as_json:
        taken, reuse = outcome.reuse, dict[str, Any]()
        how: dict[str, Any] = {"scope": settings.scope, "repair": settings.repair}
        if taken is not None:
            how = {"scope": taken.scope or None, "repair": taken.repair}
            reuse = {"reuse": taken.to_json()}
        print_json(
            {
                "schema": schema.tree.name,
                "model": options.name,
                **how,
                **reuse,
                "placement": outcome.begun["placement"],
                "probe": outcome.begun["probe"],
                "studio": outcome.studio,
                **outcome.answers,
                **outcome.comparison,
                **({"valid": {side: not fault for side, fault in faults.items()}} if faults else {}),
            }
        )
    else:
        if faults:
            say(verdict(faults))
        if outcome.reuse is not None:
            say(f"{outcome.reuse.why}.")
        if outcome.differs and sys.stdout.isatty() and (outcome.comparison or outcome.reuse is None):
            command = _fidelity(prompt_path, schema_path, model)
            say(f"{outcome.differs} How much, and how to fix it: {command}")
    if outcome.begun["placement"] != settings.placement:
        say(f"pml: {KEPT_PLACES}", err=True)
    for warning in outcome.warnings():
        say(f"pml: {warning}", err=True)
    return 0


def _require_one_choice(given: Mapping[str, Any]) -> None:
    """Rejects a scope or a repair together with a reuse that chooses them."""
    chosen = next((name for name in ("scope", "repair") if _is_written(name)), None)
    if chosen and given["reuse"] == "auto" and _source("reuse") is not ParameterSource.DEFAULT:
        raise click.UsageError(f"--{chosen} is given, and {CHOOSES}", click.get_current_context())


def _fidelity(prompt: str, schema: str, model: str | None) -> str:
    """The command that measures the effect of reuse on the answer."""
    chosen = ["--model", model] if model and _is_written("model") else []
    return shlex.join(["pml", "fidelity", prompt, "--schema", schema, *chosen])


def _sound_prompt(path: str, schema: Document[Schema]) -> Document[Prompt]:
    prompt = read_prompt(path)
    require_sound(prompt.name, "prompt", prompt.source, bind(schema.tree, prompt.tree).diagnostics)
    return prompt


def _require_usage(
    prompt: str | None, batch: str | None, server: str, for_batch: bool, as_json: bool
) -> None:
    """Rejects options that contradict each other."""
    fault = ""
    if batch is None:
        if prompt is None:
            fault = "Missing argument 'PROMPT'; or give --batch FILE."
        elif for_batch:
            options = "--output, --csv, --export, --expect, --expect-any, --judge, --as-they-end and --force"
            fault = f"{options} are for --batch."
    elif as_json:
        fault = "--json is for one prompt; the output of --batch is always JSON lines."
    elif STDIN == prompt == batch:
        fault = "PROMPT and --batch cannot both be read from standard input; name a file for one of them."
    elif server not in ("auto", "never") and _is_written("server"):
        fault = "--server is for one prompt; a batch is computed here."
    if fault:
        raise click.UsageError(fault, click.get_current_context())


def _expectations(given: Iterable[tuple[str, str]]) -> tuple[Expectation, ...]:
    """The expectations for every answer."""
    expectations = []
    for number, (kind, value) in enumerate(given, 1):
        try:
            expectations.append(expected(kind, value))
        except ExchangeError as error:
            raise click.UsageError(f"--expect {number}: {error}", click.get_current_context()) from None
    return tuple(expectations)


def _is_written(option: str) -> bool:
    """Whether an option is on the command line, not in the environment."""
    return _source(option) is ParameterSource.COMMANDLINE


def _source(option: str) -> ParameterSource | None:
    return click.get_current_context().get_parameter_source(option)


def _summary(outcome: Outcome) -> str:
    """A table of the figures of both sides."""
    answers = outcome.answers
    sides = [side for side in ("cached", "uncached") if side in answers]
    figures = [
        ["time to first token", *(milliseconds(answers[side]["ttft_ms"]) for side in sides)],
        ["prompt tokens", *(str(answers[side]["tokens"]["prompt"]) for side in sides)],
        ["found in the cache", *(str(_found(answers[side])) for side in sides)],
        ["encoded in this run", *(str(answers[side]["tokens"]["encoded"]) for side in sides)],
        ["computed for the prompt", *(str(answers[side]["tokens"]["computed"]) for side in sides)],
        ["generated", *(str(answers[side]["tokens"]["generated"]) for side in sides)],
        ["time per further token", *(_pace(answers[side]["tpot_ms"]) for side in sides)],
    ]
    figures.append(["whole answer", *(milliseconds(_whole_ms(answers[side])) for side in sides)])
    if any(answers[side]["tokens"].get("drafted") for side in sides):
        figures.insert(-2, ["forward passes", *(str(answers[side]["passes"] + 1) for side in sides)])
        figures.insert(-2, ["guessed tokens accepted", *(_guesses(answers[side]) for side in sides)])
    lines = [table(["", *sides], figures), ""]
    lines += [f"{side}: {_timeline(answers[side]['timeline_ms'])}" for side in sides]
    if outcome.comparison:
        lines.append(_verdict(outcome.comparison, answers["cached"], outcome.begun["keeps"]))
    if outcome.studio:
        lines.append(f"Computed by the studio at {outcome.studio}.")
    return "\n".join(lines)


def _pace(tpot_ms: float | None) -> str:
    return milliseconds(tpot_ms) if tpot_ms else "-"


def _guesses(answer: Mapping[str, Any]) -> str:
    tokens = answer["tokens"]
    return f"{tokens['accepted']} of {tokens['drafted']}"


def _whole_ms(answer: Mapping[str, Any]) -> float:
    return float(answer["ttft_ms"] + (answer["tpot_ms"] or 0.0) * (answer["tokens"]["generated"] - 1))


def _timeline(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{part} {milliseconds(value)}" for part, value in parts.items())


def _found(answer: Mapping[str, Any]) -> int:
    return int(answer["tokens"]["from_cache"] - answer["tokens"]["encoded"])


def _verdict(comparison: Mapping[str, Any], cached: Mapping[str, Any], keeps: bool) -> str:
    speedup = comparison["ttft_speedup"]
    speed = f"{speedup:.1f} times faster" if speedup >= 1 else f"{1 / speedup:.1f} times slower"
    encode_ms = cached["timeline_ms"].get("encode", 0.0)
    saving = "" if cached["warnings"] or not keeps else ", saved in the next run"
    saving = f" ({milliseconds(encode_ms)} of it encoding{saving})" if encode_ms else ""
    agrees = "agrees" if comparison["first_token_agrees"] else "differs"
    same = "the texts are the same" if comparison["same_text"] else "the texts differ"
    return (
        f"Cached is {speed} to the first token{saving}; the first token {agrees} "
        f"(KL {nats(comparison['kl_first_token'])}); {same}."
    )
