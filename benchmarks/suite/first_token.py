"""T1 to T5: time to first token, cached and not, from files, and by the paper's method; by length."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.answers import Answers
from benchmarks.forward import Forward
from benchmarks.suite.sampling import Group, Say, arithmetic, beside
from benchmarks.suite.scale import Scale, Size
from benchmarks.turns import Way
from engine.model.loading import load
from engine.model.model import Model

BESIDE = ("full", "prefix", "state_file")
TIERS = ("cached", "files_later", "files_first", "files_cold")


def large(scale: Scale, say: Say) -> list[Group]:
    """T1: text to first token on the large model, with other software beside it."""
    return [_against_uncached(scale.large, scale, say)]


def small(scale: Scale, say: Say) -> list[Group]:
    """T2: the same on the small model, in both number formats."""
    return [_against_uncached(size, scale, say, few=()) for size in scale.small]


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
            group = _against_uncached(size.of(count), scale, say, model=model, floor=True)
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
    few: Sequence[str] = ("uncached",),
    model: Model | None = None,
    floor: bool = False,
) -> Group:
    """Cached by uncached, from text, other software beside them; whole prefills of others are costly too."""
    loaded = model or _model(size, say)
    group = named(size, loaded)
    group.values |= arithmetic(loaded, size)
    with tempfile.TemporaryDirectory(prefix="pml-suite-") as folder:
        answers = _answers(loaded, size, Path(folder), say)
        try:
            ways = chosen(answers.ways(), ("uncached", "cached", "files_later"))
            if floor:
                forward = Forward(loaded, size.cached, size.modules, size.new, 0, say)
                ways += chosen(forward.ways(), ("tokens_floor",))
            with beside(group, size, scale, BESIDE, say) as others:
                costly = {*few, *(way.name for way in others if few and way.name.endswith(":full"))}
                group.measure([*ways, *others], scale, say, few=costly)
            timeline = answers.ask("cached").timeline_ms
            group.values |= {f"part {name}": value for name, value in timeline.items()}
            group.values |= {"prompt tokens": answers.tokens["prompt"]}
        finally:
            answers.close()
    return group
