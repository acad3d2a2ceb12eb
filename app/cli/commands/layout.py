"""`pml layout` and `pml encode`: show the layout of a schema's modules, and encode them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from app.base.sizes import size
from app.cli.base.documents import Document, read_prompt, read_schema, require_sound
from app.cli.base.options import (
    ModelOptions,
    debug_option,
    engine_options,
    json_option,
    stored_model_options,
)
from app.cli.base.output import counted, print_json, progress_bar, say, table
from app.cli.base.param_types import DOCUMENT
from app.cli.base.setting_options import setting_option
from engine.base.stopwatch import milliseconds
from engine.pml import Schema, bind
from engine.pml.tree.conversation import conversation
from engine.pml.tree.whole_prompt import prompt_importing

if TYPE_CHECKING:
    from engine.base.choices import Scope


@click.command()
@click.argument("schema_path", metavar="SCHEMA", type=DOCUMENT)
@setting_option("scope", only=("isolated", "anchored"))
@click.option("--text", "as_text", is_flag=True, help="Print the text, turn by turn, before a chat template.")
@click.option(
    "--prompt",
    "prompt_path",
    type=DOCUMENT,
    metavar="PROMPT",
    help="With --text: print this prompt. Default: all modules, and the first of each union.",
)
@stored_model_options
@json_option
@debug_option
def layout(
    schema_path: str,
    scope: Scope,
    as_text: bool,
    prompt_path: str | None,
    as_json: bool,
    **engine_choice: Any,
) -> None:
    """Show the modules of SCHEMA with positions and sizes, or its text.

    START is where a module begins when everything before it is imported; members of a union start at the same
    position. TOKENS is the module's own text with its parameters; TOTAL includes nested modules.
    """
    if prompt_path is not None and not as_text:
        raise click.UsageError("--prompt requires --text")
    document = read_schema(schema_path)
    if as_text:
        _print_text(document, prompt_path, as_json)
        return
    engine = click.get_current_context().with_resource(ModelOptions(**engine_choice).open())
    result = engine.schema(document.tree).layout(scope=scope)
    if as_json:
        chosen = {"schema": document.tree.name, "model": engine.model.name, "scope": scope}
        print_json({**chosen, **result.to_json()})
        return
    rows = [
        [
            module.path,
            str(module.start),
            str(module.tokens),
            str(module.total_tokens),
            size(module.bytes),
            module.cached.label,
        ]
        for module in result.modules
    ]
    say(table(["MODULE", "START", "TOKENS", "TOTAL", "SIZE", "CACHED"], rows))
    say(
        f"\n{counted(result.total_positions, 'position')} at most, {result.anonymous_tokens} of them fixed "
        f"text; the context window of {engine.model.name} has {engine.model.context_length}."
    )


def _print_text(document: Document[Schema], prompt_path: str | None, as_json: bool) -> None:
    """Prints the turns of a prompt."""
    schema = document.tree
    prompt = prompt_importing(schema) if prompt_path is None else read_prompt(prompt_path).tree
    bound = bind(schema, prompt)
    if prompt_path is not None:
        require_sound(prompt_path, "prompt", prompt.source, bound.diagnostics)
    turns = conversation(bound.parts)
    if as_json:
        print_json(
            {"schema": schema.name, "turns": [{"role": part.role, "text": part.text} for part in turns]}
        )
        return
    for place, turn in enumerate(turns):
        heading = f"[{turn.role}]\n" if turn.role else ""
        say(f"{chr(10) if place else ''}{heading}{turn.text}")


@click.command()
@click.argument("schema_path", metavar="SCHEMA", type=DOCUMENT)
@setting_option("scope", only=("isolated", "anchored", "preceding"))
@engine_options
@json_option
@debug_option
def encode(schema_path: str, scope: Scope, as_json: bool, **engine_choice: Any) -> int:
    """Compute and store every segment of SCHEMA.

    Stored segments are reused, so an edit recomputes only its module. Interrupting loses at most
    the current pass. Exit status 1 if some segments could not be stored.
    """
    document = read_schema(schema_path)
    engine = click.get_current_context().with_resource(ModelOptions(**engine_choice).open())
    with progress_bar() as progress:
        report = engine.schema(document.tree).encode(scope=scope, progress=progress)
    for warning in report.warnings:
        say(f"pml: {warning}", err=True)
    status = 0 if report.kept == report.total else 1
    if status:
        budget, needed = engine.store.settings.budget, report.budget
        advice = (
            f"the budget of {size(budget)} is too small for this schema; pml cache budget "
            f"{math.ceil(needed / 1e6)}MB is enough"
            if budget < needed
            else "see the warnings, free space, and encode again"
        )
        say(f"pml: {report.kept} of {counted(report.total, 'segment')} are stored: {advice}.", err=True)
    if as_json:
        print_json(
            {
                "encoded": report.encoded,
                "reused": report.reused,
                "elsewhere": report.elsewhere,
                "kept": report.kept,
                "total": report.total,
                "budget_needed": report.budget,
                "tokens": report.tokens,
                "seconds": report.seconds,
                "bytes": report.bytes,
                "warnings": list(report.warnings),
            }
        )
        return status
    elsewhere = f", {report.elsewhere} came from another process" if report.elsewhere else ""
    say(
        f"Encoded {counted(report.encoded, 'segment')} ({counted(report.tokens, 'token')}, "
        f"{size(report.bytes)}) in {milliseconds(report.seconds * 1000)}; {report.reused} were there already"
        f"{elsewhere}."
    )
    return status
