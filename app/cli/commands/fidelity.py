"""`pml fidelity`: measures how reuse changed an answer, by module, and how to fix it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from app.cli.base.documents import FaultyDocumentError, read_prompt, read_schema, require_sound
from app.cli.base.options import (
    ModelOptions,
    debug_option,
    engine_options,
    json_option,
    schema_option,
)
from app.cli.base.output import counted, print_json, progress_bar, say, table
from app.cli.base.param_types import DOCUMENT
from app.cli.base.setting_options import reuse_options, setting_option
from engine.fidelity.findings import nats
from engine.files.places import user_data
from engine.pml import bind

if TYPE_CHECKING:
    from engine import Fidelity
    from engine.fidelity.findings import Flip, ModuleFidelity

MOST_FLIPS = 8
SHOWN_BEFORE = 30


@click.command()
@click.argument("prompt_path", metavar="PROMPT", type=DOCUMENT)
@schema_option
@setting_option("max_new_tokens", help="Maximum answer length in tokens, as in a run.")
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
    """Measure whether caching changed the answer to PROMPT, and which module causes it.

    The uncached side answers greedily; both sides read that answer to its end, and their distributions are
    compared token by token. Tokens that flip (the cached side prefers another one) are listed. For each
    module: its influence on the answer (KL without it), how far its keys and values are from a full
    pass, and how much of the difference it causes. Repairs and scaffolds are then tried, and those that help
    are listed. The studio's Runs page lists the measurement.
    """
    schema = read_schema(schema_path)
    prompt = read_prompt(prompt_path)
    require_sound(prompt.name, "prompt", prompt.source, bind(schema.tree, prompt.tree).diagnostics)
    from app.studio.database import UserDatabase
    from app.studio.history import RunStore
    from app.studio.history.fidelity import measure
    from app.studio.history.runner import RunRequest
    from app.studio.runs.settings import PageSettings
    from app.studio.web.digests import digest, digest_of_schema
    from engine import PromptError

    measured = {"scope": scope, "repair": repair, "placement": placement}
    settings = PageSettings(max_new_tokens=max_new_tokens, reuse="off", **measured)
    texts = digest_of_schema(schema.source, schema.tree), digest(prompt.source)
    engine = click.get_current_context().with_resource(ModelOptions(**engine_choice).open())
    try:
        with progress_bar() as progress:
            prepared = engine.schema(schema.tree)
            request = RunRequest(
                "", engine, prepared, prompt.source, settings, texts=texts, source=schema.source
            )
            with contextlib.closing(UserDatabase(user_data())) as database:
                measurement = measure(request, RunStore(database), progress)
    except PromptError as error:
        raise FaultyDocumentError(prompt.name, "prompt", prompt.source, error.diagnostics) from error
    result = measurement.found
    if measurement.unkept:
        say(f"pml: {measurement.unkept}", err=True)
    if as_json:
        print_json(
            {
                "schema": schema.tree.name,
                "model": engine.model.name,
                "placement": engine.placement(placement),
                **result.to_json(),
            }
        )
    else:
        say(_in_words(result))
        if not measurement.unkept:
            say("\nThe studio's Runs page lists this measurement.", err=True)


def _in_words(found: Fidelity) -> str:
    agrees = "the same" if found.first_token_agrees else "another"
    end = "to its end" if found.read_to_end else "as far as --max-new-tokens"
    lines = [
        f"The cached side predicts {agrees} first token (KL {nats(found.kl_first_token)} nats). Over the "
        f"uncached answer, read {end}, it agrees on {found.answer_agreement:.0%} of "
        f"{counted(found.tokens_read, 'token')} (KL {nats(found.kl_mean)} per token; {nats(found.kl_worst)} "
        f"at worst, at token {found.worst_position + 1}).",
        "",
    ]
    if found.flips:
        lines += [_flips(found.flips), ""]
    lines += [_modules(found.modules), ""]
    if found.improvements:
        lines += [_fixes(found), ""]
    return "\n".join([*lines, found.advice])


def _modules(modules: Sequence[ModuleFidelity]) -> str:
    """A table of each module's share of the difference."""
    rows = [
        [
            m.path or "(fixed text)",
            str(m.tokens),
            nats(m.dependence),
            f"{m.key_deviation:.1%}",
            f"{m.value_deviation:.1%}",
            nats(m.harm),
            str(m.mends),
        ]
        for m in modules
    ]
    return table(["module", "tokens", "influence", "key difference", "value difference", "KL", "flips"], rows)


def _fixes(found: Fidelity) -> str:
    """A table of the fixes that help, after the answer as it is now."""
    now = [str(len(found.flips)), nats(found.kl_worst), nats(found.kl_mean), f"{found.answer_agreement:.0%}"]
    rows = [
        [
            r.what,
            str(r.flips),
            nats(r.kl_worst),
            nats(r.kl_mean),
            f"{r.answer_agreement:.0%}",
            f"{r.computed:+}",
        ]
        for r in found.improvements
    ]
    heads = ["fix", "flips left", "worst KL", "mean KL", "agreement", "computed tokens"]
    return table(heads, [["(as now)", *now, "+0"], *rows])


def _flips(flips: Sequence[Flip]) -> str:
    """A table of the first flipped tokens, and the number of others."""
    rows = [
        [str(f.position + 1), repr(f.uncached), repr(f.cached), nats(f.kl), f"…{f.before[-SHOWN_BEFORE:]}"]
        for f in flips[:MOST_FLIPS]
    ]
    rows = [[cell.replace("\n", " ") for cell in row] for row in rows]
    more = f"\n… and {len(flips) - MOST_FLIPS} more (all with --json)" if len(flips) > MOST_FLIPS else ""
    return table(["token", "uncached", "cached", "KL", "after"], rows) + more
