"""T13: the time of a token, and of answers of several lengths, other software beside ours."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import sample_schemas
from benchmarks.decode import Decoding
from benchmarks.suite.first_token import named
from benchmarks.suite.sampling import Group, Say, beside
from benchmarks.suite.scale import Scale, Size
from benchmarks.suite.stored import engine_over, stored
from benchmarks.told import ToldAnswer
from benchmarks.turns import Way
from engine.choices import Speculate
from engine.engine import Engine
from engine.errors import PromptCacheError
from engine.events import Side
from engine.model.loading import load
from engine.model.model import Model
from engine.prepared import PreparedPrompt, PreparedSchema

SAMPLES = Path(sample_schemas.__file__).parent
QUOTING = "documents"  # a sample whose answers repeat words of their documents


def steps(scale: Scale, say: Say) -> list[Group]:
    """T13: a step of an answer: the large model after few tokens, the small one after many; guesses."""
    sizes = (replace(scale.large, cached=scale.decoded), scale.small[-1])
    found = [_step(size, scale, say) for size in sizes]
    with (
        tempfile.TemporaryDirectory(prefix="pml-suite-") as folder,
        Engine.open("demo", cache_dir=Path(folder)) as engine,
    ):
        schema = engine.schema(SAMPLES / f"{QUOTING}.pml")
        prompt = schema.prompt(SAMPLES / f"{QUOTING}.prompt.2.pml")
        told = [_told(size, engine.model, prompt, scale, say) for size in sizes]
        return [*found, *told, _quoting(engine.model, prompt, scale, say)]


def _step(size: Size, scale: Scale, say: Say) -> Group:
    say(f"loading {size.model}")
    model = load(size.model, dtype=size.dtype)
    group = named(size, model)
    decoding = Decoding(model, size.cached, size.modules, scale.steps, 0)
    ours = [Way("token", lambda: decoding.mean(scale.answered)), Way("step", decoding.time)]
    with beside(group, size, scale, ("decode",), say) as others:
        group.measure([*ours, *others], scale, say)
    return group


def _told(size: Size, small: Model, prompt: PreparedPrompt, scale: Scale, say: Say) -> Group:
    """An answer of the bundled model that quotes, its passes computed by a larger network."""
    answer = prompt.answer(mode="uncached", max_new_tokens=64, speculate="off").token_ids
    tokens = list(prompt.tokenized.planned(None).plan.token_ids)
    shape = replace(size, cached=len(tokens) - 1, new=1)
    say(f"loading {size.model}")
    model = load(size.model, dtype=size.dtype)
    group = named(shape, model)
    group.name = f"{size.label}, told an answer that quotes"
    told = ToldAnswer(model, small.tokenizer, tokens, answer)
    ways = [
        Way("step with guesses", lambda: told.time("auto")),
        Way("step without guesses", lambda: told.time("off")),
    ]
    with beside(group, shape, scale, ("decode",), say) as others:
        group.measure([*ways, *others], scale, say)
    told.time("auto")
    group.values["passes with guesses"] = told.passes
    told.time("off")
    group.values["passes without"] = told.passes
    group.values["tokens"] = len(answer)
    return group


def _quoting(model: Model, prompt: PreparedPrompt, scale: Scale, say: Say) -> Group:
    """Answers of the bundled model about documents: with guesses, without, and a step of others."""
    about = prompt.answer(max_new_tokens=scale.steps)
    size = Size("demo", "demo", model.dtype, about.tokens["prompt"] - 1, 1, 1)
    group = named(size, model)
    group.name = "bundled model, an answer that quotes"
    ways = [
        Way("step with guesses", _pace(prompt, "on")),
        Way("step without guesses", _pace(prompt, "off")),
    ]
    with beside(group, size, scale, ("decode",), say) as others:
        group.measure([*ways, *others], scale, say)
    guessed = prompt.answer(max_new_tokens=64, speculate="on")
    plain = prompt.answer(max_new_tokens=64, speculate="off")
    group.values |= {
        "tokens": guessed.tokens["generated"],
        "passes with guesses": guessed.passes,
        "passes without": plain.passes,
        "same text": "yes" if guessed.text == plain.text else "no",
    }
    return group


def _pace(prompt: PreparedPrompt, speculate: Speculate) -> Callable[[], float]:
    return lambda: prompt.answer(max_new_tokens=64, speculate=speculate).tpot_ms


def answers(scale: Scale, say: Say) -> list[Group]:
    """A: the whole time of an answer against its length, from text, cached and uncached."""
    size = scale.small[-1]
    model = load(size.model, dtype=size.dtype)
    groups = []
    with engine_over(model) as engine:
        prepared, prompt = stored(engine, size, say)
        every = named(size, model)
        with beside(every, size, scale, (), say, answers=scale.answer_lengths) as others:
            for length in scale.answer_lengths:
                group = named(size, model)
                group.name, group.params["answer"] = f"{size.label}, answer of {length}", length
                group.peers = every.peers
                ways = [
                    Way("cached", _whole(prepared, prompt, "cached", length)),
                    Way("uncached", _whole(prepared, prompt, "uncached", length)),
                    *(
                        replace(way, name=way.name.removesuffix(f" {length}"))
                        for way in others
                        if way.name.endswith(f":answer {length}")
                    ),
                ]
                group.measure(ways, scale, say, few=[way.name for way in ways], rounds=scale.few)
                groups.append(group)
    return groups


def _whole(schema: PreparedSchema, prompt: str, side: Side, length: int) -> Callable[[], float]:
    """What answers once and returns the time of all of it.

    Raises:
        PromptCacheError: when it is run; drawn weights have ended the answer early.
    """

    def run() -> float:
        found = schema.prompt(prompt).answer(mode=side, max_new_tokens=length, speculate="off")
        tokens = found.tokens["generated"]
        if tokens != length:
            raise PromptCacheError(f"the {side} answer of {length} tokens ended after {tokens}.")
        return found.ttft_ms + found.tpot_ms * (tokens - 1)

    return run
