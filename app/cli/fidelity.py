"""`pml fidelity`: what reuse did to an answer, module by module, and what would mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from app.cli.documents import FaultyDocumentError, read_prompt, read_schema, require_sound
from app.cli.options import (
    ModelOptions,
    debug_option,
    engine_options,
    json_option,
    reuse_options,
    schema_option,
)
from app.cli.output import print_json, progress_bar, say, table
from engine.pml import bind

if TYPE_CHECKING:
    from engine import Fidelity


@click.command()
@click.argument("prompt_path", metavar="PROMPT")
@schema_option
@click.option(
    "--max-new-tokens",
    type=click.IntRange(1, 4096),
    default=32,
    show_default=True,
    help="How much of the uncached answer is read, in tokens.",
)
@reuse_options
@engine_options
@json_option
@debug_option
def fidelity(
    prompt_path: str,
    schema_path: str,
    max_new_tokens: int,
    scope: Any,
    repair: str,
    placement: Any,
    as_json: bool,
    **engine_choice: Any,
) -> None:
    """Say how faithful the cached answer to PROMPT is, and which module suffers from reuse.

    The uncached side answers greedily; both sides read that answer, and their distributions are compared.
    For each module: how much the answer depends on it (KL without it), how far its keys and values are from
    those of a full pass, and how much of the difference is its doing. Repairs and scaffolds are then tried,
    and the best are listed.
    """
    schema = read_schema(schema_path)
    prompt = read_prompt(prompt_path)
    require_sound(prompt.name, "prompt", prompt.source, bind(schema.tree, prompt.tree).diagnostics)
    from engine import PromptError, RunSettings

    settings = RunSettings(max_new_tokens=max_new_tokens, scope=scope, repair=repair, placement=placement)
    engine = ModelOptions(**engine_choice).open()
    try:
        with progress_bar() as progress:
            steps = engine.fidelity(schema.tree, prompt.tree, settings)
            while True:
                try:
                    step = next(steps)
                except StopIteration as end:
                    found: Fidelity = end.value
                    break
                progress(step.done, step.total, step.what)
    except PromptError as error:
        raise FaultyDocumentError(prompt.name, "prompt", prompt.source, error.diagnostics) from error
    if as_json:
        print_json(
            {
                "schema": schema.tree.name,
                "model": engine.model.name,
                "scope": scope,
                "repair": repair,
                "placement": engine.placement(placement),
                **found.to_json(),
            }
        )
    else:
        say(_in_words(found))


def _in_words(found: Fidelity) -> str:
    agrees = "the same" if found.first_token_agrees else "another"
    lines = [
        f"The cached side finds {agrees} first token likeliest (KL {found.kl_first_token:.2g} nats). Over "
        f"the {found.answer_tokens} tokens of the uncached answer it agrees on {found.answer_agreement:.0%} "
        f"(KL {found.kl_answer:.2g} per token).",
        "",
        table(
            ["module", "tokens", "answer depends", "keys deviate", "values deviate", "harm"],
            [
                [
                    m.path or "(anonymous text)",
                    str(m.tokens),
                    f"{m.dependence:.3f}",
                    f"{m.key_deviation:.1%}",
                    f"{m.value_deviation:.1%}",
                    f"{m.harm:.2g}",
                ]
                for m in found.modules
            ],
        ),
        "",
    ]
    if found.remedies:
        tried = [
            [r.what, f"{r.kl_answer:.2g}", f"{r.answer_agreement:.0%}", f"+{r.computed}"]
            for r in found.remedies
        ]
        lines += [table(["tried", "KL left", "agrees", "computed"], tried), ""]
    return "\n".join([*lines, found.advice])
