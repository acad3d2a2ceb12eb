"""`pml ask`: finds the modules that match a question, and answers it with them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from app.cli.base.documents import Document, read_schema
from app.cli.base.options import (
    ModelOptions,
    debug_option,
    engine_options,
    json_option,
    server_option,
    token_counter,
)
from app.cli.base.output import counted, inline, print_json, progress_bar, say
from app.cli.base.param_types import DOCUMENT, Whole
from app.cli.base.run_answers import Outcome, Work, computed, follow, handed, prepared
from app.cli.base.setting_options import setting_options
from engine.base.errors import PromptCacheError
from engine.files.places import user_cache
from engine.inference.run_settings import RunSettings
from engine.pml import PromptError, Schema
from engine.pml.edit.writer import write_prompt

_RANKED = 200
_TOO_LONG = "E502"
_PASSED = 4  # candidates for each module, because some may not fit


@dataclass(frozen=True)
class _Found:
    """Search results."""

    scores: dict[str, float]  # score of each module by path, the best first
    chosen: tuple[str, ...]  # the selected modules, the best first


@click.command()
@click.argument("schema_path", metavar="SCHEMA", type=DOCUMENT)
@click.argument("question")
@click.option("--top", type=Whole(1, 100), default=5, show_default=True, help="Maximum number of modules.")
@click.option(
    "--budget",
    type=Whole(1, 100_000_000),
    metavar="TOKENS",
    help="Maximum tokens of all modules; others are skipped. Default: as many as fit the context window.",
)
@setting_options(
    *("max_new_tokens", "temperature", "seed", "top_p", "top_k", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "stop"),
    *("speculate", "sync", "scope", "repair"),
)
@engine_options
@server_option
@json_option
@debug_option
def ask(
    schema_path: str,
    question: str,
    top: int,
    budget: int | None,
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
    **given: Any,
) -> int:
    """Find the modules of SCHEMA that match QUESTION, and answer with them.

    Full-text search ranks the modules; modules of one folder stay together. Modules that an earlier question
    encoded are read from the cache, in any order. QUESTION is plain words, without search operators. A
    running studio with the same model and cache folder computes the answer.
    """
    options = ModelOptions(model, device, dtype, cache_dir, verify, memory, date, weights, quantize)
    schema = read_schema(schema_path)
    settings = RunSettings(**given, hold_conversation=False)
    store = cache_dir or user_cache() / "segments"
    from engine.prompt.conversation.search import SearchIndex

    with SearchIndex.of(schema.tree, store) as index:
        hits = _found(index.search(question, _RANKED), schema, top, budget, model)
        aloud = not as_json
        chosen, outcome = _answered(schema, hits, top, question, settings, options, server, aloud=aloud)
        index.keep(store)
    left_out = [path for path in hits.chosen if path not in chosen]
    if as_json:
        print_json(
            {
                "schema": schema.tree.name,
                "question": question,
                "model": options.name,
                "modules": [{"path": path, "score": round(hits.scores[path], 4)} for path in chosen],
                "left_out": left_out,
                "studio": outcome.studio,
                "answer": outcome.answers["cached"],
            }
        )
    else:
        say(_sources(chosen, outcome))
    if left_out:
        count = counted(len(left_out), "module")
        say(f"pml: {count} did not fit the context window: {', '.join(map(inline, left_out))}", err=True)
    for warning in outcome.warnings():
        say(f"pml: {warning}", err=True)
    return 0


def _found(
    hits: Sequence[Any], schema: Document[Schema], top: int, budget: int | None, model: str | None
) -> _Found:
    """Selects modules from the search results."""
    from engine.prompt.conversation.question import choose

    if not hits:
        raise PromptCacheError(
            f"no module of {schema.name} has a word of the question. Ask with words that its texts use, or "
            "name modules in a prompt of your own: pml run."
        )
    count = None
    if budget is not None:
        count = token_counter(model)
    scores = {hit.path: hit.score for hit in hits}
    chosen = choose(schema.tree, scores, top, budget=budget, count=count)
    if not chosen:
        raise PromptCacheError(
            f"none of {counted(len(scores), 'module')} found has at most {budget} tokens. Give a larger "
            "--budget, or cut the documents when you import them: pml import --split."
        )
    return _Found(scores, chosen)


def _answered(
    schema: Document[Schema],
    found: _Found,
    top: int,
    question: str,
    settings: RunSettings,
    options: ModelOptions,
    server: str,
    *,
    aloud: bool,
) -> tuple[tuple[str, ...], Outcome]:
    """Answers with the best modules that fit the context window."""
    from engine.prompt.conversation.question import ask as asking
    from engine.prompt.conversation.question import choose

    def fits(tried: tuple[str, ...]) -> bool:
        request = asking(schema.tree, tried, question)
        return engine is not None and all(
            fault.code != _TOO_LONG for fault in engine.check(request.schema, request.prompt)
        )

    paths, engine, fitted = found.chosen, None, False
    try:
        while True:
            asked = asking(schema.tree, paths, question)
            document = Document("the question", write_prompt(asked.prompt), asked.prompt)
            work = Work(Document(schema.name, "", asked.schema), document, settings, "cached")
            try:
                with progress_bar() as progress:
                    outcome = None if engine else handed(work, options, server, progress, aloud=aloud)
                    if outcome is None:
                        engine = engine or options.open()
                        outcome = follow(
                            computed(work, engine, prepared(work, engine)), progress, Outcome(), aloud=aloud
                        )
                return paths, outcome
            except PromptError as error:
                codes = {fault.code for fault in error.diagnostics if fault.severity == "error"}
                if codes != {_TOO_LONG}:
                    raise
                engine = engine or options.open()
                if fitted:  # room for the answer
                    paths = paths[:-1]
                else:
                    paths = choose(schema.tree, list(found.scores)[: _PASSED * top], top, fits=fits)
                    fitted = True
                if not paths:
                    raise PromptCacheError(
                        "none of the modules found fits the context window with the question; of the best, "
                        f"{inline(found.chosen[0])}, {error.diagnostics[0].message}. Cut the documents when "
                        "you import them (pml import --split), or use a model with a larger window."
                    ) from error
    finally:
        if engine is not None:
            engine.close()


def _sources(paths: Sequence[str], outcome: Outcome) -> str:
    """Describes the used modules and what was computed."""
    tokens = outcome.answers["cached"]["tokens"]
    lines = ["From:", *(f"  {place}. {inline(path)}" for place, path in enumerate(paths, 1))]
    read = tokens["from_cache"] - tokens["encoded"]
    lines.append(
        f"{counted(tokens['prompt'], 'token')}: {read} read from the cache, {tokens['encoded']} encoded, "
        f"{tokens['computed']} computed for the question."
    )
    if outcome.studio:
        lines.append(f"Computed by the studio at {outcome.studio}.")
    return "\n".join(lines)
