"""Time that the format of an answer costs: of the choice of a token, and of whole answers.

The choice is timed over recorded scores without a pass, which takes a thousand times longer and varies more.
A pattern that permits any text has no forced tokens, so its choice less that of free text is the cost.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence as Items
from functools import partial

from torch import Tensor

from app.cli.base.options import ModelOptions
from app.studio.sweeps.turns import Way
from benchmarks.base.case import Group, Report, Say, Sides, Size, case, report_of
from benchmarks.base.options import command, narrate, pace_of, size_of
from engine.grammars.grammar import FREE, of_schema
from engine.inference.generation import Sequence
from engine.inference.prefill import Prefill
from engine.inference.run_settings import SamplingParams
from engine.inference.sampler import Sampler
from engine.model.model import Model

QUESTION = "Plan a weekend with good food as JSON with a title, a city, the days and the activities:\n"
_ACTIVITY = {
    "activity_title": {"type": "string", "maxLength": 40},
    "duration_hours": {"type": "integer", "minimum": 1, "maximum": 9},
    "difficulty_level": {"enum": ["easy", "moderate", "hard"]},
}
_TRIP = {
    "title": {"type": "string", "maxLength": 40},
    "city": {"enum": ["Tokyo", "Rome", "Paris"]},
    "number_of_days": {"type": "integer", "minimum": 1, "maximum": 30},
}


def _object(properties: dict[str, object]) -> dict[str, object]:
    fixed = {"required": [*properties], "additionalProperties": False}
    return {"type": "object", "properties": properties, **fixed}


_ACTIVITIES = {"type": "array", "minItems": 3, "maxItems": 60, "items": _object({**_ACTIVITY})}
FORMATS = {
    "free text": FREE,
    "any text": r"regex:(.|\n)*",
    "JSON": of_schema(_object({**_TRIP, "activities": _ACTIVITIES})),
}


def _sequence(model: Model, grammar: str, tokens: int) -> Sequence:
    prompt = model.tokenize(QUESTION)
    prefill = Prefill((), prompt, range(len(prompt)), prompt, len(prompt))
    return Sequence(model, prefill, SamplingParams(max_new_tokens=tokens, grammar=grammar, speculate="off"))


def _answered(model: Model, grammar: str, tokens: int) -> tuple[Sequence, list[Tensor]]:
    """An answer, and the scores [vocabulary] of each of its tokens."""
    sequence, scores = _sequence(model, grammar, tokens), list[Tensor]()
    while sequence.ending is None:
        step = sequence.step()
        if step.token is not None and sequence.logits is not None:
            scores.append(sequence.logits.clone())
    return sequence, scores


def _token(model: Model, grammar: str, tokens: int) -> float:
    """Milliseconds of a token after the first one."""
    return statistics.fmean(_answered(model, grammar, tokens)[0].step_ms)


def _choice(model: Model, grammar: str, scores: Items[Tensor]) -> float:
    """Milliseconds to choose a token, the mean of an answer."""
    matcher, sampler = model.matcher(grammar), Sampler(SamplingParams())
    begun = time.perf_counter()
    for row in scores:
        if matcher is None:
            sampler.choose(row)
        elif matcher.forced:
            sampler.note(matcher.forced[0])
            matcher.take(matcher.forced[0])
        else:
            matcher.take(sampler.choose(row, matcher))
    return (time.perf_counter() - begun) * 1000 / len(scores)


@case
def choices(group: Group, say: Say, size: Size, tokens: int) -> Sides:
    """The choice of a token under each format, over recorded scores."""
    model = size.open(group, say, tokens)
    group.params["vocabulary"] = int(model.network.config.vocab_size)
    ways = []
    for name, grammar in FORMATS.items():
        ways.append(Way(name, partial(_choice, model, grammar, _answered(model, grammar, tokens)[1])))
    yield ways


@case
def answers(group: Group, say: Say, size: Size, tokens: int) -> Sides:
    """A token of a whole answer under each format."""
    model = size.open(group, say, tokens)
    for name, grammar in FORMATS.items():
        sequence, _ = _answered(model, grammar, tokens)
        count = len(sequence.token_ids)
        group.values |= {f"{name}, tokens": count, f"{name}, passes": sequence.passes + 1}
        if grammar != FREE:
            group.values[f"{name}, forced tokens"] = sequence.forced
    yield [Way(name, partial(_token, model, grammar, tokens)) for name, grammar in FORMATS.items()]


@command(tokens=96, repeats=5, seed=0)
def formats(options: ModelOptions, tokens: int, repeats: int, seed: int) -> Report:
    """Time that the format of an answer costs, of a choice and of a token of a whole answer."""
    size = size_of(options, 1, 1, 1, seed)
    cases = [choices("choice of a token", size, tokens), answers("token of an answer", size, tokens)]
    return report_of(cases, pace_of(repeats, seed), narrate)
