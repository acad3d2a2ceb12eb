"""Options for the format of an answer, and the check of the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from app.cli.base.documents import read_text
from app.cli.base.param_types import DOCUMENT
from engine.grammars.grammar import FREE, GrammarError, compiled, of_choices
from engine.rows.validity import format_fault, in_words

Command = TypeVar("Command", bound=Callable[..., Any])


def grammar_options(command: Command) -> Command:
    """Adds the options `--json-schema`, `--regex` and `--choice`; `grammar_of` reads them."""
    for option in (
        click.option(
            "--choice", default="", metavar="A,B,C", help="The answer is one of these texts, without commas."
        ),
        click.option("--regex", default="", metavar="PATTERN", help="The answer matches this whole pattern."),
        click.option(
            "--json-schema", type=DOCUMENT, metavar="FILE", help="The answer is JSON of this JSON Schema."
        ),
    ):
        command = option(command)
    return command


def grammar_of(json_schema: str | None, regex: str, choice: str) -> str:
    """Returns the grammar of an answer.

    Raises:
        UsageError: there are several, or it cannot be enforced.
    """
    choices = [one.strip() for one in choice.split(",") if one.strip()]
    given = {
        "--json-schema": "" if json_schema is None else f"schema:{read_text(json_schema)}",
        "--regex": f"regex:{regex}" if regex else "",
        "--choice": of_choices(choices) if choice else "",
    }
    chosen = {option: grammar for option, grammar in given.items() if grammar}
    context = click.get_current_context()
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} exclude each other. Give one.", context)
    for option, grammar in chosen.items():
        try:
            compiled(grammar)
        except GrammarError as error:
            raise click.UsageError(f"{option}: {error}", context) from None
        return grammar
    return FREE


def faults_of(grammar: str, answers: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Returns by side why an answer is not valid, "" if it is; empty without a format."""
    if grammar == FREE:
        return {}
    found = {side: format_fault(grammar, one["text"], one["stopped"]) for side, one in answers.items()}
    return {side: fault for side, fault in found.items() if fault is not None}


def verdict(faults: Mapping[str, str]) -> str:
    """Returns the result of the check as one line for each side."""
    return "\n".join(f"{side}: {in_words(fault)}" for side, fault in faults.items())
