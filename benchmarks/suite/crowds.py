"""T11 and arrivals: attention over what many prompts share, answers at once, a newcomer, and arrivals."""

from __future__ import annotations

import contextlib
import math
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import torch

from benchmarks.agreement import answered, distance, judged
from benchmarks.arrivals import by_rate
from benchmarks.batch import FEW
from benchmarks.crowd import KINDS, Crowd
from benchmarks.crowd import Size as Asked
from benchmarks.goals import amount
from benchmarks.growing import KINDS as STEPS
from benchmarks.growing import Growing, tails_of
from benchmarks.shared import SHAPES, Cell, Ours, Prompts, sides
from benchmarks.suite.sampling import PER_SECOND, Group, Say, grouped, known
from benchmarks.suite.scale import Scale, Size
from benchmarks.turns import Way
from engine.batch.scheduler import MOST
from engine.model.loading import load
from engine.model.model import Model

AT_ONCE = (1, 2, 4, 8, 16, 32)
PRIVATE = 8  # prompts that share nothing are answered where there are so many at once
IN_ORDERS = (PRIVATE, max(AT_ONCE))  # counts at which modules stand in other orders too
HELD = "keys and values, private ÷ ours"
ARRIVING = "random arrivals"
KEPT = "half shared ÷ nothing shared, prompts a second"
CHECKED = ("batch", "batch_reordered")  # whose answers are compared with those of one by one


def together(scale: Scale, say: Say) -> list[Group]:
    """T11: attention alone, whole answers, a newcomer, steps as answers grow."""
    return [*_attention(scale, say), *answers(scale, say)]


def small(scale: Scale, say: Say) -> list[Group]:
    """Arrivals: beside llama.cpp on a small model, and prompts that arrive."""
    return [*_beside(scale, say), _arriving(scale, say)]


def _attention(scale: Scale, say: Say) -> list[Group]:
    """A layer's attention of a row of each of many prompts that share all of their text, or none."""
    readers, tokens = scale.readers
    groups = []
    for shape in SHAPES:
        for words, shared in (("all shared", tokens), ("nothing shared", 0)):
            cell = Cell(shape, tokens, shared, readers)
            group = Group(f"{shape} heads, {words}", asdict(cell))
            say(f"{group.name}: drawing keys and values")
            ours = Ours(Prompts(cell))
            with torch.inference_mode():
                apart = distance(ours.in_order(), ours.prompts.private())
                group.values |= judged(apart, cell.dtype)
                group.measure(sides(ours), scale, say)
            group.values[HELD] = ours.prompts.whole.nbytes / ours.nbytes
            groups.append(group)
    return groups


def answers(scale: Scale, say: Say) -> list[Group]:
    """Whole answers, a newcomer and steps, or why there are no steps of many."""
    model, asked = _loaded(scale.large, scale, say)
    with _crowd(model, asked, max(AT_ONCE), say) as crowd:
        groups = [_at_once(crowd, count, scale, say) for count in AT_ONCE]
        newcomer = _over("a newcomer", model, asked, crowd.decoders)
        if model.alone:
            why = f"{model.name} answers prompts one by one: {model.alone}"
            newcomer.notes.append(f"not measured, nor are steps of many prompts: {why}")
            return [*groups, newcomer]
        newcomer.values |= answered(crowd, CHECKED[:1], crowd.decoders + 1)
        newcomer.measure(crowd.newcomers(), scale, say, rounds=scale.few)
        steps, waits = zip(*crowd.waits, strict=True)
    newcomer.values |= {
        "time between two tokens of the others, ms": statistics.median(steps),
        "the longest while it is read, ms": max(waits),
    }
    growing = Growing(model, asked, PRIVATE, 0)
    return [*groups, newcomer, *(_steps(growing, tail, model, asked, scale, say) for tail in tails_of(asked))]


def _at_once(crowd: Crowd, count: int, scale: Scale, say: Say) -> Group:
    """Answers to so many prompts."""
    group = _over(f"{count} prompts at once" if count > 1 else "1 prompt", crowd.model, crowd.size, count)
    kinds = list(KINDS) if count == PRIVATE else ["batch"]
    if count in IN_ORDERS and count != PRIVATE:
        kinds.append("batch_reordered")
    few = min(FEW if count in IN_ORDERS else FEW // 2, count)
    single = crowd.way("one_by_one", few)
    ways = [Way("one_by_one", lambda: single.run() * count / few, single.prepare)]
    ways += [replace(crowd.way(kind, count), name=kind) for kind in kinds]
    say(f"{group.name}: comparing answers")
    group.values |= answered(crowd, [kind for kind in kinds if kind in CHECKED], count)
    group.measure(ways, scale, say, rounds=scale.few if count in IN_ORDERS else min(2, scale.few))
    for name, samples in group.samples.items():
        seconds = statistics.median(known(samples)) / 1000
        group.values[f"{PER_SECOND}{name}"] = count * crowd.size.new / seconds
    for kind in kinds:
        if kind != "private":  # what a prompt alone reads is copied, and would count twice
            group.values[f"MiB of keys and values, {kind}"] = crowd.peaks[f"{kind} {count}"] / (1 << 20)
    return group


def _beside(scale: Scale, say: Say) -> list[Group]:
    """Answers beside llama.cpp's, on a small model: without a prefix in common it reads every prompt anew."""
    if not scale.peers:
        return []
    size = scale.small[-1]
    model, asked = _loaded(size, scale, say)
    group = _over(f"{size.label}, {PRIVATE} prompts at once", model, asked, PRIVATE)
    with _crowd(model, asked, PRIVATE, say, private=0) as crowd:
        group.values |= answered(crowd, CHECKED, PRIVATE)
        ways = [replace(crowd.way(kind, PRIVATE), name=kind) for kind in CHECKED]
        with _others(group, crowd, size.model, say) as others:
            group.measure([*ways, *others], scale, say, rounds=scale.few)
    return [group]


@contextlib.contextmanager
def _others(group: Group, crowd: Crowd, model: str, say: Say) -> Iterator[list[Way]]:
    """llama.cpp with as many slots, where it is installed; it is told of in the group."""
    from benchmarks import batch_beside
    from benchmarks.peers import llamacpp

    absent = llamacpp.missing()
    about = group.peers[llamacpp.NAME] = {"version": "" if absent else llamacpp.version(), "absent": absent}
    with contextlib.ExitStack() as stack:
        slots = None
        if not absent:
            say(f"{group.name}: opening {llamacpp.NAME}")
            try:
                slots = stack.enter_context(batch_beside.slotted(crowd, model, PRIVATE, 0))
            except Exception as error:
                about["absent"] = f"failed: {type(error).__name__}: {error}"
        yield slots.ways() if slots is not None else []
        if slots is not None:
            about["settings"] = grouped(slots.settings())


def _steps(growing: Growing, tail: int, model: Model, asked: Asked, scale: Scale, say: Say) -> Group:
    """A step of prompts that have so many tokens of their own behind what they share."""
    group = _over(f"{PRIVATE} prompts with {tail} tokens of their own", model, asked, PRIVATE)
    group.params["tail"] = tail
    ways = [replace(growing.way(kind, tail), name=kind) for kind in STEPS]
    group.values |= judged(growing.apart(tail), model.dtype)
    group.measure(ways, scale, say, rounds=scale.few)
    for kind, words in (("private", "private, one copy for each prompt"), ("batch", "batch, each once")):
        group.values[f"MiB of keys and values in a step, {words}"] = growing.held[f"{kind} {tail}"] / (
            1 << 20
        )
    return group


def _arriving(scale: Scale, say: Say) -> Group:
    """The time of a token by how many prompts arrive, on a small model: each rate takes many answers."""
    model, asked = _loaded(scale.small[-1], scale, say)
    count, new, rates = scale.arrivals
    asked, most = replace(asked, new=new), min(MOST, count)
    with _crowd(model, asked, most, say, private=most) as crowd:
        agreed = answered(crowd, CHECKED, min(most, PRIVATE))
        found = by_rate(crowd, 0, say, rates=rates, count=count)
    group = _over(ARRIVING, model, asked, count)
    group.values |= {**agreed, "prompts with modules of their own, private and half": most}
    group.values["a token by itself, ms"] = found["alone_ms"]
    for kind, times in found["ms_per_token"].items():
        for rate, ms in zip(found["per_second"], times, strict=True):
            if ms is not None:
                group.values[f"{kind}, a token at {rate:.2f} prompts a second, ms"] = ms
        low, high = found["between"][kind]
        words = f"{amount(low)} or more" if high is None else f"{amount(low)} to {amount(high)}"
        group.values[f"{kind}, keeps up with, prompts a second"] = found["keeps_up"][kind]
        group.values[f"{kind}, keeps up with, by the rates measured"] = words
    if nothing := found["keeps_up"]["private"]:
        (low, high), (least, most_nothing) = found["between"]["half"], found["between"]["private"]
        group.values[KEPT] = found["keeps_up"]["half"] / nothing
        bottom = low / (most_nothing or math.inf)
        top = "more" if high is None else amount(high / least)
        group.values[f"{KEPT}, by the rates measured"] = f"{amount(bottom)} to {top}"
    return group


def _loaded(size: Size, scale: Scale, say: Say) -> tuple[Model, Asked]:
    say(f"loading {size.model}")
    shared, own, new = scale.crowd
    return load(size.model, dtype=size.dtype), Asked(shared, size.modules, own, new)


@contextlib.contextmanager
def _crowd(model: Model, asked: Asked, most: int, say: Say, *, private: int = PRIVATE) -> Iterator[Crowd]:
    with tempfile.TemporaryDirectory(prefix="pml-suite-") as folder:
        crowd = Crowd(model, Path(folder), asked, most, 0, say, private=private)
        with contextlib.closing(crowd):
            yield crowd


def _over(name: str, model: Model, asked: Asked, prompts: int) -> Group:
    params = {"model": model.name, "dtype": model.dtype, "weights": model.weights, "prompts": prompts}
    return Group(name, {**params, **vars(asked)})
