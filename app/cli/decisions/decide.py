"""`pml decide`: answers questions about a prompt with probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from app.batch.batch_table import table_text
from app.batch.decided_rows import decision_columns
from app.cli.base.documents import (
    STDIN,
    Document,
    FaultyDocumentError,
    read_prompt,
    read_schema,
    read_text,
    require_sound,
)
from app.cli.base.files import require_place, save
from app.cli.base.map_options import MapOptions, map_options, report_of, say_used
from app.cli.base.options import (
    ModelOptions,
    batch_output_option,
    debug_option,
    engine_options,
    json_option,
    schema_option,
)
from app.cli.base.output import print_json, progress_bar, say
from app.cli.base.param_types import DOCUMENT, Name, Number, UserPath, Whole
from app.cli.base.setting_options import reuse_options
from app.cli.decisions.tables import agreement, in_words
from engine.decisions.questions import (
    Question,
    QuestionError,
    choice,
    predicate,
    require_questions,
    score,
    written,
)
from engine.exchange import ExchangeError
from engine.exchange.base.json_files import parsed_json
from engine.exchange.decisions import read_questions
from engine.inference.run_settings import RunSettings
from engine.pml import Prompt, PromptError, Schema, bind

if TYPE_CHECKING:
    from engine.base.events import Side


@click.command()
@click.argument("prompt_path", metavar="[PROMPT]", required=False, type=DOCUMENT)
@schema_option
@click.option(
    "--question",
    "asked",
    multiple=True,
    metavar="TEXT",
    help="A question; yes or no without --options and --levels. Repeatable. Default: those of PROMPT.",
)
@click.option("--options", metavar="A,B,…", help="The options of each --question.")
@click.option("--levels", metavar="A,B,…", help="The levels of each --question, from the lowest.")
@click.option(
    "--questions",
    "questions_path",
    type=DOCUMENT,
    metavar="FILE",
    help="JSON with the questions of a request to OpenAI's Decisions API.",
)
@click.option(
    "--side",
    type=Name(["cached", "uncached", "both"]),
    help="Read segments, compute every token, or both. Default: both; with --batch cached.",
)
@click.option(
    "--permutations",
    type=Whole(1, 64),
    default=1,
    show_default=True,
    help="Number of orders of the options to average over.",
)
@click.option(
    "--calibrate", is_flag=True, help="Subtract the scores of the same question with N/A for new text."
)
@click.option("--per-token", is_flag=True, help="Divide each label's log-probability by its tokens.")
@click.option(
    "--temperature",
    type=Number(0.01, 100),
    default=1.0,
    show_default=True,
    help="Divides the scores; --fit-temperature measures a good one.",
)
@click.option(
    "--list-options/--no-list-options",
    default=True,
    show_default=True,
    help="Whether the model reads the options. Few-shot prompts show the labels already.",
)
@click.option(
    "--batch",
    "batch_path",
    type=DOCUMENT,
    metavar="FILE",
    help="Answer for each row of this JSONL or CSV file, as `pml run --batch` reads it.",
)
@batch_output_option
@click.option(
    "--csv", "table_path", type=UserPath(path_type=Path), help="Also write all probabilities as a CSV table."
)
@click.option(
    "--fit-temperature",
    is_flag=True,
    help="Fit a temperature to one half of the rows with a gold column, and try it on the other.",
)
@map_options
@click.option("--force", is_flag=True, help="Replace existing files.")
@reuse_options
@engine_options
@json_option
@debug_option
def decide(
    prompt_path: str | None,
    schema_path: str,
    asked: tuple[str, ...],
    options: str | None,
    levels: str | None,
    questions_path: str | None,
    side: str | None,
    permutations: int,
    calibrate: bool,
    per_token: bool,
    temperature: float,
    list_options: bool,
    batch_path: str | None,
    output: Path | None,
    table_path: Path | None,
    fit_temperature: bool,
    maps_folder: Path | None,
    threshold: float | None,
    force: bool,
    scope: Any,
    repair: str,
    placement: Any,
    as_json: bool,
    **engine_choice: Any,
) -> int:
    """Answer questions about PROMPT with the probabilities of their options, without generating text.

    The model scores the text of each label after the prompt and the question. All questions share one pass
    over the prompt. With --batch, a column `gold` (or `gold NAME` for one of several questions) has the right
    label; accuracy, macro F1, calibration error and a confusion table are then reported.

    \b
    pml decide ticket.pml --schema support.pml --question "Is it urgent?"
    pml decide ticket.pml --schema support.pml --question "How is the mood?" --levels angry,calm,happy
    """
    map_choice = MapOptions(maps_folder, threshold)
    _require_usage(prompt_path, batch_path, bool(output or fit_temperature), as_json and output is None)
    schema = read_schema(schema_path)
    prompt = None if prompt_path is None else _sound_prompt(prompt_path, schema)
    questions = _questions(prompt, asked, options, levels, questions_path)
    from engine.decisions.readout import Readout

    readout = Readout(permutations, calibrate, per_token, temperature, list_options)
    settings = RunSettings(scope=scope, repair=repair, placement=placement, reuse="off")
    model = ModelOptions(**engine_choice)
    if batch_path is not None:
        from app.cli.decisions.rows import RowDecisions, decide_rows

        sides = _sides(side or "cached")
        job = RowDecisions(questions, readout, sides, table_path, fit_temperature, map_choice)
        over = prompt.source if prompt else None
        status = decide_rows(job, batch_path, schema, settings, model, output, over, force=force)
        if as_json:
            print_json({"schema": schema.tree.name, "readout": asdict(readout), "figures": job.figures})
        return status
    assert prompt is not None
    if table_path is not None:
        require_place(table_path, force=force)
    sides = _sides(side or "both")
    try:
        with model.open() as engine, progress_bar() as progress:
            prepared = engine.schema(schema.tree).prompt(prompt.tree)
            maps = map_choice.open(engine.model)
            decided = {
                one: prepared.decide(questions, readout, settings, mode=one, maps=maps, progress=progress)
                for one in sides
            }
            name, place = engine.model.name, engine.placement(placement)
    except PromptError as error:
        raise FaultyDocumentError(prompt.name, "prompt", prompt.source, error.diagnostics) from error
    by_side: dict[str, Any] = {one: decisions.to_json() for one, decisions in decided.items()}
    if table_path is not None:
        text, _ = table_text([decision_columns(questions, by_side)])
        save(table_path, text, force=force)
    if as_json:
        print_json(
            {
                "schema": schema.tree.name,
                "model": name,
                "scope": scope,
                "repair": repair,
                "placement": place,
                "readout": asdict(readout),
                **by_side,
                **({"agreement": agreement(by_side)} if len(sides) > 1 else {}),
                **({} if maps is None else {"maps": report_of(maps)}),
            }
        )
        return 0
    say(in_words(questions, by_side))
    for warning in dict.fromkeys(warning for one in decided.values() for warning in one.warnings):
        say(f"pml: {warning}", err=True)
    if maps is not None:
        say_used(maps)
    return 0


def _sides(side: str) -> tuple[Side, ...]:
    return ("cached", "uncached") if side == "both" else (cast("Side", side),)


def _require_usage(prompt: str | None, batch: str | None, for_batch: bool, bare_json: bool) -> None:
    fault = ""
    if batch is None:
        if prompt is None:
            fault = "Missing argument 'PROMPT'; or give --batch FILE."
        elif for_batch:
            fault = "--output and --fit-temperature are for --batch."
    elif STDIN == prompt == batch:
        fault = "PROMPT and --batch cannot both be read from standard input; name a file for one of them."
    elif bare_json:
        fault = "--json prints the figures of a batch; name a file for its rows with --output."
    if fault:
        raise click.UsageError(fault, click.get_current_context())


def _sound_prompt(path: str, schema: Document[Schema]) -> Document[Prompt]:
    prompt = read_prompt(path)
    require_sound(prompt.name, "prompt", prompt.source, bind(schema.tree, prompt.tree).diagnostics)
    return prompt


def _questions(
    prompt: Document[Prompt] | None,
    asked: Sequence[str],
    options: str | None,
    levels: str | None,
    path: str | None,
) -> list[Question]:
    """The questions of the command line and of its file, or else those of the prompt."""
    if options is not None and levels is not None:
        raise click.UsageError("--options makes a choice, and --levels a score; give one of them.")
    if not asked and (options or levels):
        raise click.UsageError("--options and --levels belong to --question.")
    if options is not None:
        questions = [choice(text, options.split(",")) for text in asked]
    elif levels is not None:
        questions = [score(text, levels.split(",")) for text in asked]
    else:
        questions = [predicate(text) for text in asked]
    if path is not None:
        try:
            questions += written(read_questions(parsed_json(read_text(path))))
        except (ExchangeError, QuestionError) as error:
            raise ExchangeError(f"{path}: {error}") from None
    elif not asked and prompt is not None:
        questions = written(prompt.tree.questions)
    if not questions:
        raise click.UsageError("There is no question. Give --question, or write a <decide> into PROMPT.")
    require_questions(questions)
    return questions
