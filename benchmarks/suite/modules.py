"""T6, T7 and T9: what it costs that a prompt is made of modules."""

from __future__ import annotations

import random
from functools import partial

from benchmarks.answers import text_of
from benchmarks.decode import Decoding
from benchmarks.suite.first_token import named
from benchmarks.suite.sampling import Group, Say
from benchmarks.suite.scale import Scale
from benchmarks.suite.stored import engine_over, stored
from benchmarks.turns import Way
from engine.engine import Engine
from engine.model.loading import load

BESIDE_THE_FORWARD_PASS = ("parse", "plan", "load", "sample")


def counts(scale: Scale, say: Say) -> list[Group]:
    """T6: the same tokens in few and in many modules: time to first token, and time of a token after it.

    One module is one contiguous cache. The copy of many modules into one, before the second token, counts.
    """
    size = scale.small[-1]
    model = load(size.model, dtype=size.dtype)
    first, after = named(size, model), named(size, model)
    first.name, after.name = "time to first token", "time per token"
    with engine_over(model) as engine:
        ways = [_asking(engine, scale, count, say) for count in scale.module_counts]
        first.measure(ways, scale, say)
    decoding = [
        Way(str(count), partial(Decoding(model, size.cached, count, scale.steps, 0).mean, scale.answered))
        for count in scale.module_counts
        if count in (1, 8, 64, max(scale.module_counts))
    ]
    after.measure(decoding, scale, say)
    return [first, after]


def _asking(engine: Engine, scale: Scale, count: int, say: Say) -> Way:
    """A prompt over so many modules, all in memory."""
    size = scale.small[-1]
    prepared, prompt = stored(engine, size.of(size.cached, count), say)
    return Way(str(count), lambda: prepared.prompt(prompt).answer(max_new_tokens=1).ttft_ms)


def edits(scale: Scale, say: Say) -> list[Group]:
    """T7: tokens that are encoded after a module was edited, after all changed places, after text between."""
    modules, tokens = scale.edited
    size = scale.small[0]
    model = load(size.model, dtype=size.dtype)
    group = named(size.of(modules * tokens, modules), model)
    draw = random.Random(0)
    texts = [text_of(model, tokens, draw) for _ in range(modules)]
    names = [f"m{number}" for number in range(modules)]
    say("editing")
    with engine_over(model) as engine:

        def encoded(texts: list[str], order: list[str], between: str = "") -> int:
            written = "".join(
                f'<module name="{name}">{text}</module>' for name, text in zip(names, texts, strict=True)
            )
            imports = between.join(f"<{name}/>" for name in order)
            schema = engine.schema(f'<schema name="edited">{written}</schema>')
            prompt = schema.prompt(f'<prompt schema="edited">{imports} go on</prompt>')
            return prompt.answer(max_new_tokens=1, sync=True).tokens["encoded"]

        group.values["in the first run"] = encoded(texts, names)
        changed = [*texts]
        changed[modules // 2] = text_of(model, tokens, draw)
        group.values |= {
            "tokens of the edited module": len(model.tokenize(changed[modules // 2])),
            "after editing one": encoded(changed, names),
            "after another order": encoded(texts, names[::-1]),
            "after text between": encoded(texts, names, " and so "),
        }
    group.values["beyond the edited module"] = int(group.values["after editing one"]) - int(
        group.values["tokens of the edited module"]
    )
    return [group]


def overhead(scale: Scale, say: Say) -> list[Group]:
    """T9: all but the forward pass at many modules: reading, planning, finding, loading, choosing."""
    size = scale.small[0].of(scale.small[0].cached, scale.many_modules)
    model = load(size.model, dtype=size.dtype)
    group = named(size, model)
    with engine_over(model) as engine:
        prepared, prompt = stored(engine, size, say)
        found: dict[str, list[float | None]] = {}

        def ask() -> float:
            timeline = prepared.prompt(prompt).answer(max_new_tokens=1).timeline_ms
            parts = {name: timeline.get(name, 0.0) for name in BESIDE_THE_FORWARD_PASS}
            for name, value in parts.items():
                found.setdefault(name, []).append(value)
            return sum(parts.values())

        group.measure([Way("all but the forward pass", ask)], scale, say)
        group.samples |= {name: values[1::2] for name, values in found.items()}  # not the runs to warm up
    return [group]
