"""T1 to T5: time to first token, cached and not, from files, and by the paper's method; by length."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.answers import Answers
from benchmarks.drawn import drawn_tokens
from benchmarks.forward import Forward, floor_way
from benchmarks.suite.sampling import Group, Say, arithmetic, beside
from benchmarks.suite.scale import Scale, Size
from benchmarks.turns import Way
from engine.model.loading import load
from engine.model.model import Model

BESIDE = ("full", "prefix", "state_file")
TIERS = ("cached", "files_later", "files_first", "files_cold")


def large(scale: Scale, say: Say) -> list[Group]:
    """T1: text to first token on the large model, with other software beside it."""
    return [_against_uncached(scale.large, scale, say, without=("transformers:full",))]  # a minute a run


def small(scale: Scale, say: Say) -> list[Group]:
    """T2: the same on the small model, in both number formats."""
    return [_against_uncached(size, scale, say) for size in scale.small]


def floor(scale: Scale, say: Say) -> list[Group]:
    """T3: from token ids: over the segments by with nothing before the new tokens."""
    return [_tokens(size, scale, say, ("tokens_cached", "tokens_floor")) for size in _sizes(scale)]


def paper(scale: Scale, say: Say) -> list[Group]:
    """T4: from token ids: the paper's method by segments read where they lie."""
    return [_tokens(size, scale, say, ("tokens_cached", "tokens_copy")) for size in _sizes(scale)]


def files(scale: Scale, say: Say) -> list[Group]:
    """T5: segments read from their files by segments in memory."""
    groups = []
    for size in _sizes(scale):
        group, model = _loaded(size, say)
        with tempfile.TemporaryDirectory(prefix="pml-suite-") as folder:
            answers = _answers(model, size, Path(folder), say)
            try:
                group.measure(chosen(answers.ways(), TIERS), scale, say)
            finally:
                answers.close()
        groups.append(group)
    return groups


def lengths(scale: Scale, say: Say) -> list[Group]:
    """L: time to first token against the length of what is cached, and the limit of arithmetic."""
    groups = []
    for size, counts in (
        *((size, scale.lengths) for size in scale.small),
        (scale.large, scale.large_lengths),
    ):
        model = _model(size, say)
        for count in counts:
            group = _against_uncached(size.of(count), scale, say, model=model)
            group.name = f"{size.label}, {count:,} cached"
            groups.append(group)
    return groups


def chosen(ways: Iterable[Way], names: Sequence[str]) -> list[Way]:
    """The ways of these names, as many as there are."""
    return [way for way in ways if way.name in names]


def named(size: Size, model: Model) -> Group:
    """A group over this model."""
    params: dict[str, Any] = {
        "model": size.model,
        "dtype": model.dtype,
        "weights": model.weights,
        "cached": size.cached,
        "modules": size.modules,
        "new": size.new,
    }
    return Group(size.label, params)


def _sizes(scale: Scale) -> tuple[Size, ...]:
    return (scale.large, *scale.small)


def _model(size: Size, say: Say) -> Model:
    say(f"loading {size.model} as {size.dtype}")
    return load(size.model, dtype=size.dtype)


def _loaded(size: Size, say: Say) -> tuple[Group, Model]:
    model = _model(size, say)
    return named(size, model), model


def _answers(model: Model, size: Size, folder: Path, say: Say) -> Answers:
    return Answers(model, folder, cached=size.cached, modules=size.modules, new=size.new, seed=0, say=say)


def _tokens(size: Size, scale: Scale, say: Say, names: Sequence[str]) -> Group:
    group, model = _loaded(size, say)
    forward = Forward(model, size.cached, size.modules, size.new, 0, say)
    group.measure(chosen(forward.ways(), names), scale, say)
    return group


def _against_uncached(
    size: Size,
    scale: Scale,
    say: Say,
    *,
    model: Model | None = None,
    without: Sequence[str] = (),
) -> Group:
    """Cached by uncached and by the new tokens alone, other software beside them.

    Args:
        size: what is asked.
        scale: how often.
        say: is told what goes on.
        model: of this size, where it is loaded.
        without: ways that are left out.
    """
    loaded = model or _model(size, say)
    group = named(size, loaded)
    group.values |= arithmetic(loaded, size)
    with tempfile.TemporaryDirectory(prefix="pml-suite-") as folder:
        answers = _answers(loaded, size, Path(folder), say)
        try:
            ways = chosen(answers.ways(), ("uncached", "cached", "files_later"))
            new = drawn_tokens(int(loaded.config.vocab_size), size.new, 0)
            ways.append(floor_way(loaded, new, size.cached))
            with beside(group, size, scale, BESIDE, say) as others:
                ways += [way for way in others if way.name not in without]
                group.measure(ways, scale, say)
        finally:
            answers.close()
    return group
