"""`pml run`: an answer from cached segments, the same answer without them, and what lies between the two."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from app.cli.documents import FaultyDocumentError, read_prompt, read_schema, require_sound
from app.cli.options import (
    ModelOptions,
    debug_option,
    engine_options,
    json_option,
    schema_option,
)
from app.cli.output import Progress, print_json, progress_bar, say, table
from app.cli.param_types import Name
from app.cli.setting_options import setting_options
from engine.inference.findings import nats
from engine.pml import bind
from engine.stopwatch import milliseconds

if TYPE_CHECKING:
    from engine import Event

Mode = Literal["cached", "uncached", "both"]
KEPT_PLACES = "segments of this model cannot be moved, so the prompt keeps the schema's positions"


@dataclass
class Outcome:
    """What a run has brought so far.

    Attributes:
        answers: the finished sides, `cached` and `uncached`, as in `--json`.
        comparison: what lies between them, as in `--json`; empty unless both ran.
    """

    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    comparison: dict[str, Any] = field(default_factory=dict)

    def warnings(self) -> list[str]:
        """What went wrong without keeping the answer from coming, each once."""
        return list(dict.fromkeys(text for answer in self.answers.values() for text in answer["warnings"]))


@click.command()
@click.argument("prompt_path", metavar="PROMPT")
@schema_option
@click.option(
    "--mode",
    type=Name(["cached", "uncached", "both"]),
    default="both",
    show_default=True,
    help="Answer from segments, without them, or one after the other.",
)
@setting_options(
    *("max_new_tokens", "temperature", "seed", "top_p", "top_k", "repetition_penalty", "stop"),
    "speculate",
    *("store_conversation", "scope", "repair", "placement"),
)
@engine_options
@json_option
@debug_option
def run(
    prompt_path: str,
    schema_path: str,
    mode: Mode,
    as_json: bool,
    model: str | None,
    device: str,
    dtype: str,
    cache_dir: Path | None,
    verify: str,
    memory: int | None,
    date: datetime.datetime | None,
    weights: str,
    **given: Any,
) -> None:
    """Answer PROMPT, with and without the cache.

    Both sides see the same tokens at the same positions. TTFT, the time to first token, runs from the moment
    the prompt text is handed over; a module that is not stored yet is encoded inside it, as the timeline
    shows. PROMPT may be - for standard input.
    """
    schema = read_schema(schema_path)
    options = ModelOptions(model, device, dtype, cache_dir, verify, memory, date, weights)
    from engine import PromptError, RunSettings

    # One answer and the process ends: turns that nobody finds again are not worth a segment each.
    settings = RunSettings(**given, hold_conversation=False)
    prompt = read_prompt(prompt_path)
    require_sound(prompt.name, "prompt", prompt.source, bind(schema.tree, prompt.tree).diagnostics)

    engine = options.open()
    try:
        with progress_bar() as progress:
            prepared = engine.schema(schema.tree).prompt(prompt.source)
            outcome = _follow(prepared.stream(settings, mode=mode), progress, aloud=not as_json)
    except PromptError as error:
        raise FaultyDocumentError(prompt.name, "prompt", prompt.source, error.diagnostics) from error
    if as_json:
        print_json(
            {
                "schema": schema.tree.name,
                "model": engine.model.name,
                "scope": settings.scope,
                "repair": settings.repair,
                "placement": engine.placement(settings.placement),
                "probe": engine.model.probe.to_json(),
                **outcome.answers,
                **outcome.comparison,
            }
        )
    else:
        say(_summary(outcome, keeps=engine.store.settings.budget > 0))
    if engine.placement(settings.placement) != settings.placement:
        say(f"pml: {KEPT_PLACES}", err=True)
    for warning in outcome.warnings():
        say(f"pml: {warning}", err=True)


def _follow(events: Iterable[Event], progress: Progress, *, aloud: bool) -> Outcome:
    """Consumes a run's events, printing the answers as they come."""
    from engine import Compared, Delta, Finished, FirstToken, Working

    outcome = Outcome()
    for event in events:
        match event:
            case Working():
                progress(event.done, event.total, event.what)
            case FirstToken() if aloud:
                say(f"{event.side}, first token after {milliseconds(event.ttft_ms)}", bold=True)
            case Delta() if aloud:
                say(event.text, nl=False)
            case Finished():
                outcome.answers[event.side] = event.answer.to_json()
                if aloud:
                    say("\n")
            case Compared():
                outcome.comparison = event.comparison.to_json()
    return outcome


def _summary(outcome: Outcome, *, keeps: bool) -> str:
    """Returns the figures of the sides next to each other; `keeps` where the store takes segments at all."""
    answers = outcome.answers
    sides = [side for side in ("cached", "uncached") if side in answers]
    figures = [
        ["time to first token", *(milliseconds(answers[side]["ttft_ms"]) for side in sides)],
        ["prompt tokens", *(str(answers[side]["tokens"]["prompt"]) for side in sides)],
        ["found in the cache", *(str(_found(answers[side])) for side in sides)],
        ["encoded in this run", *(str(answers[side]["tokens"]["encoded"]) for side in sides)],
        ["computed for the prompt", *(str(answers[side]["tokens"]["computed"]) for side in sides)],
        ["generated", *(str(answers[side]["tokens"]["generated"]) for side in sides)],
        ["time per token after", *(_pace(answers[side]["tpot_ms"]) for side in sides)],
    ]
    if any(answers[side]["tokens"].get("drafted") for side in sides):
        figures.insert(-1, ["guessed right, passes", *(_guesses(answers[side]) for side in sides)])
    lines = [table(["", *sides], figures), ""]
    lines += [f"{side}: {_timeline(answers[side]['timeline_ms'])}" for side in sides]
    if outcome.comparison:
        lines.append(_verdict(outcome.comparison, answers["cached"], keeps))
    return "\n".join(lines)


def _pace(tpot_ms: float | None) -> str:
    return milliseconds(tpot_ms) if tpot_ms else "-"


def _guesses(answer: Mapping[str, Any]) -> str:
    tokens = answer["tokens"]
    return f"{tokens['accepted']} of {tokens['drafted']}, {answer['passes']}"


def _timeline(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{part} {milliseconds(value)}" for part, value in parts.items())


def _found(answer: Mapping[str, Any]) -> int:
    return int(answer["tokens"]["from_cache"] - answer["tokens"]["encoded"])


def _verdict(comparison: Mapping[str, Any], cached: Mapping[str, Any], keeps: bool) -> str:
    speedup = comparison["ttft_speedup"]
    speed = f"{speedup:.1f} times faster" if speedup >= 1 else f"{1 / speedup:.1f} times slower"
    encode_ms = cached["timeline_ms"].get("encode", 0.0)
    spared = "" if cached["warnings"] or not keeps else ", which the next run is spared"
    spared = f" ({milliseconds(encode_ms)} of it encoding{spared})" if encode_ms else ""
    agrees = "agrees" if comparison["first_token_agrees"] else "differs"
    same = "the texts are the same" if comparison["same_text"] else "the texts differ"
    return (
        f"Cached is {speed} to the first token{spared}; the likeliest first token {agrees} "
        f"(KL {nats(comparison['kl_first_token'])}); {same}."
    )
