"""T13: the time of a token, and of answers of several lengths, other software beside ours."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import sample_schemas
from benchmarks.decode import Decoding
from benchmarks.drawn import drawn_tokens
from benchmarks.goals import SAME_TEXT
from benchmarks.suite.first_token import named
from benchmarks.suite.sampling import Group, Say, beside
from benchmarks.suite.scale import Scale, Size
from benchmarks.suite.stored import engine_over, stored
from benchmarks.told import ToldAnswer
from benchmarks.turns import Way
from engine.base.choices import Speculate
from engine.base.errors import PromptCacheError
from engine.base.events import Side
from engine.engine import Engine
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
        paths = sorted(SAMPLES.glob(f"{QUOTING}.prompt.*.pml"))[: scale.quoting]
        prompts = [schema.prompt(path) for path in paths]
        told = [_told(size, engine.model, prompts, scale, say) for size in sizes]
        return [*found, *told, _quoting(engine.model, prompts, scale, say)]


def _step(size: Size, scale: Scale, say: Say) -> Group:
    say(f"loading {size.model}")
    model = load(size.model, dtype=size.dtype)
    group = named(size, model)
    decoding = Decoding(model, size.cached, size.modules, scale.steps, 0)
    ours = [Way("token", lambda: decoding.mean(scale.answered)), Way("step", decoding.time)]
    with beside(group, size, scale, ("decode",), say) as others:
        group.measure([*ours, *others], scale, say)
    return group


def _told(size: Size, small: Model, prompts: Sequence[PreparedPrompt], scale: Scale, say: Say) -> Group:
    """Answers of the bundled model that quote, their passes computed by a larger network.

    Drawn tokens before the prompts make all of them as long as the size says, or as the longest of them is.
    """
    given = [list(prompt.tokenized.planned(None).plan.token_ids) for prompt in prompts]
    shape = replace(size, cached=max(size.cached, *(len(tokens) - 1 for tokens in given)), new=1)
    say(f"loading {size.model}")
    model = load(size.model, dtype=size.dtype)
    group = named(shape, model)
    group.name = f"{size.label}, quoting"
    answers, told = [], []
    for number, (prompt, tokens) in enumerate(zip(prompts, given, strict=True)):
        answer = prompt.answer(mode="uncached", max_new_tokens=scale.quoted, speculate="off").token_ids
        before = drawn_tokens(int(small.config.vocab_size), shape.cached + 1 - len(tokens), number)
        say(f"encoding prompt {number + 1} of {len(prompts)}")
        told.append(ToldAnswer(model, small.tokenizer, [*before, *tokens], answer))
        answers.append(answer)

    def pace(speculate: Speculate) -> float:
        """Milliseconds of a token, over all answers."""
        spent = [one.time(speculate) * (len(answer) - 1) for one, answer in zip(told, answers, strict=True)]
        return sum(spent) / sum(len(answer) - 1 for answer in answers)

    ways = [
        Way("step with guesses", lambda: pace("auto")),
        Way("step without guesses", lambda: pace("off")),
    ]
    with beside(group, shape, scale, ("decode",), say) as others:
        group.measure([*ways, *others], scale, say)
    for words, speculate in _PASSES.items():
        pace(speculate)
        group.values[words] = sum(one.passes for one in told)
    group.values |= {"answers": len(answers), "tokens": sum(map(len, answers))}
    return group


_PASSES: dict[str, Speculate] = {"passes with guesses": "auto", "passes without": "off"}


def _quoting(model: Model, prompts: Sequence[PreparedPrompt], scale: Scale, say: Say) -> Group:
    """Answers of the bundled model about documents: with guesses, without, and a step of others."""
    counts = [prompt.answer(max_new_tokens=scale.quoted).tokens for prompt in prompts]
    weights = [one["generated"] - 1 for one in counts]
    mean = sum(one["prompt"] * n for one, n in zip(counts, weights, strict=True)) // sum(weights)
    size = Size(
        "demo", "demo", model.dtype, mean - 1, 1, 1
    )  # others decode behind as many as ours on average
    group = named(size, model)
    group.name = "bundled model, quoting"
    ways = [
        Way("step with guesses", _pace(prompts, "auto", scale.quoted)),
        Way("step without guesses", _pace(prompts, "off", scale.quoted)),
    ]
    with beside(group, size, scale, ("decode",), say) as others:
        group.measure([*ways, *others], scale, say)
    found = {
        words: [prompt.answer(max_new_tokens=scale.quoted, speculate=speculate) for prompt in prompts]
        for words, speculate in _PASSES.items()
    }
    for words, answers in found.items():
        group.values[words] = sum(answer.passes for answer in answers)
    guessed, plain = found.values()
    group.values |= {
        "answers": len(guessed),
        "tokens": sum(answer.tokens["generated"] for answer in guessed),
        SAME_TEXT: "yes" if [one.text for one in guessed] == [one.text for one in plain] else "no",
    }
    return group


def _pace(prompts: Sequence[PreparedPrompt], speculate: Speculate, length: int) -> Callable[[], float]:
    """Milliseconds of a token over answers of at most so many to all prompts, the first of each left out."""

    def run() -> float:
        answers = [prompt.answer(max_new_tokens=length, speculate=speculate) for prompt in prompts]
        counts = [answer.tokens["generated"] - 1 for answer in answers]
        spent = sum(answer.tpot_ms * count for answer, count in zip(answers, counts, strict=True))
        return spent / sum(counts)

    return run


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
                group.measure(ways, scale, say, rounds=scale.few)
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
