"""Contexts that are too long for a model lose their middle, as in LongBench (arXiv 2308.14508, section 4.1).

LongBench keeps the first and the last half of the tokens that fit. Here the question and the instructions are
kept whole, and the context's tokens are counted, so that what is left can be cut into modules.
"""

from __future__ import annotations

from benchmarks.tasks import Task
from engine.base.errors import PromptCacheError
from engine.engine import Engine
from engine.inference.run_settings import RunSettings
from engine.pml import PromptError

_STEP = 0.97  # of the tokens are tried next where borders of modules have taken more than was counted


class TooLongError(PromptCacheError):
    """A prompt is longer than what is to be measured."""


def shortened(engine: Engine, task: Task, settings: RunSettings, most: int | None = None) -> Task | None:
    """Returns the same question to the ends of its context.

    Args:
        engine: its model has to read the prompt, and answer within its window.
        task: with a question.
        settings: the settings of the run.
        most: the most tokens of the prompt; None where the window alone bounds it.

    Returns:
        The longest that was found to fit, or None where not even the question fits.
    """
    assert task.question is not None
    model = engine.model
    tokens = model.tokenize(task.question.context)
    room = model.context_length - 1 - settings.max_new_tokens
    kept = min(len(tokens), room if most is None else min(room, most))
    while kept >= 2:
        half = kept // 2
        ends = (tokens[:half], tokens[-half:])
        found = task.about("".join(model.tokenizer.decode(end, skip_special_tokens=False) for end in ends))
        if fits(engine, found, settings, most):
            return found
        kept = int(kept * _STEP)
    return None


def fits(engine: Engine, task: Task, settings: RunSettings, most: int | None = None) -> bool:
    """Whether a prompt and the longest answer to it fit the model's window, and the prompt `most` tokens."""
    try:
        plan = task.on(engine).plan(settings)
    except PromptError:
        return False
    if most is not None and plan.total_tokens > most:
        return False
    return plan.total_tokens + settings.max_new_tokens <= engine.model.context_length
