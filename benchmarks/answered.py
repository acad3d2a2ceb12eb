"""A prompt answered by one side, which then reads an answer that is given, all after one prefill."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch

from engine.base.events import Answer, Event, Side
from engine.base.stopwatch import Stopwatch
from engine.engine import Engine
from engine.fidelity.teacher_forcing import Reading
from engine.inference.generate import Answering
from engine.inference.generation import Sequence as Answered
from engine.inference.run_settings import RunSettings
from engine.prepared import PreparedPrompt
from engine.prompt.tokenized import Planned


@dataclass(frozen=True)
class Outcome:
    """What one side made of a prompt.

    Attributes:
        answer: its own answer with its figures.
        reading: its distributions over the answer that was given, or over its own.
        new_tokens: how many tokens of the prompt are in no segment; on the uncached side all.
    """

    answer: Answer
    reading: Reading
    new_tokens: int


def answered(
    engine: Engine,
    prompt: PreparedPrompt,
    settings: RunSettings,
    side: Side,
    given: Sequence[int] | None = None,
) -> Outcome:
    """Answers a prompt, and has the same keys and values read an answer that is given.

    Args:
        engine: the engine that prepared the prompt.
        prompt: the prompt.
        settings: the settings of the run; an answer that is given is no longer than they allow.
        side: the side that answers.
        given: the tokens to read; by default those of its own answer.

    Raises:
        PromptError: the prompt, or a segment that it reads, does not fit the context window.
        SettingsError: the model cannot be repaired like this.
    """
    (asked,) = prompt.submissions(settings, mode=side)  # with the scope and the repair that reuse chooses
    clock = Stopwatch()
    clock.parts["parse"] = prompt.parse_ms
    steps = _steps(engine, prompt, asked.planned, asked.settings, clock, given)
    return engine.computing.finish(steps, side, clock)


def read_again(engine: Engine, prompt: PreparedPrompt, settings: RunSettings, said: Sequence[int]) -> Reading:
    """Has the uncached side read the answer that it gave before, in the very passes in which it read it then.

    Args:
        engine: the engine that prepared the prompt.
        prompt: the prompt.
        settings: the settings of the run.
        said: the tokens of its answer.

    Raises:
        PromptError: the prompt does not fit the context window.
    """

    def steps() -> Generator[Event, None, Reading]:
        planned = prompt.tokenized.planned(None, settings.placement, turns_held=settings.turns_held)
        work = Answering(engine.segment_cache, prompt.tokenized, planned, settings, Stopwatch())
        sequence = Answered(engine.model, (yield from work.prepare()), settings)
        sequence.step()
        return _reading(sequence, said)

    return engine.computing.finish(steps(), "uncached")


def _steps(
    engine: Engine,
    prompt: PreparedPrompt,
    planned: Planned,
    settings: RunSettings,
    clock: Stopwatch,
    given: Sequence[int] | None,
) -> Generator[Event, None, Outcome]:
    work = Answering(engine.segment_cache, prompt.tokenized, planned, settings, clock)
    try:
        sequence = Answered(engine.model, (yield from work.prepare()), settings, clock)
        while sequence.ending is None:
            sequence.step()
        reading = _reading(sequence, sequence.token_ids if given is None else given)
        answer = work.answer(sequence, sequence.ending)
    finally:
        work.close()
    new = planned.plan.token_ids if planned.scope is None else planned.plan.new_tokens
    return Outcome(answer, reading, len(new))


def _reading(sequence: Answered, tokens: Sequence[int]) -> Reading:
    """Reads tokens behind the prompt whose keys and values the sequence holds already."""
    first, kv, end = sequence.first_logits, sequence.kv, sequence.prefill.end
    assert first is not None
    assert kv is not None
    if len(tokens) == 1:
        return Reading.of_logits(first[None])
    kv.truncate(len(sequence.prefill.token_ids))
    read = list(tokens[:-1])
    positions = list(range(end, end + len(read)))
    rest = sequence.model.network.forward(read, positions, kv, keep=len(read))
    return Reading.of_logits(torch.cat([first[None], rest.float()]))
