"""Contexts that are too long for a model lose their middle, as in LongBench (arXiv 2308.14508, section 4.1).

LongBench keeps the first and the last half of the tokens that fit. Here the question and the instructions are
kept whole, and the context's tokens are counted, so that what is left can be cut into modules.
"""

from __future__ import annotations

from benchmarks.tasks import Task
from engine.engine import Engine
from engine.inference.params import RunSettings
from engine.pml import PromptError

_STEP = 0.97  # of the tokens are tried next where borders of modules have taken more than was counted


def shortened(engine: Engine, task: Task, settings: RunSettings) -> Task | None:
    """Returns the same question to the ends of its context.

    Args:
        engine: its model has to read the prompt, and answer within its window.
        task: with a question.
        settings: the settings of the run.

    Returns:
        The longest that was found to fit, or None where not even the question fits.
    """
    assert task.question is not None
    model = engine.model
    tokens = model.tokenize(task.question.context)
    room = model.context_length - 1 - settings.max_new_tokens
    kept = min(len(tokens), room)
    while kept >= 2:
        half = kept // 2
        ends = (tokens[:half], tokens[-half:])
        found = task.about("".join(model.tokenizer.decode(end, skip_special_tokens=False) for end in ends))
        if fits(engine, found, settings):
            return found
        kept = int(kept * _STEP)
    return None


def fits(engine: Engine, task: Task, settings: RunSettings) -> bool:
    """Whether a prompt and the longest answer to it fit the model's window."""
    try:
        plan = task.on(engine).plan(settings)
    except PromptError:
        return False
    return plan.total_tokens + settings.max_new_tokens <= engine.model.context_length
