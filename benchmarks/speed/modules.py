"""The cost of modules: their number, an edit, and all work besides the forward pass."""

from __future__ import annotations

import contextlib
import itertools
import random
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from app.studio.sweeps.drawn import schema_of, sources, text_of
from app.studio.sweeps.turns import Way
from benchmarks.base.case import Group, Say, Sides, Size, case
from benchmarks.speed.decode import Decoding
from engine.engine import Engine
from engine.model.model import Model
from engine.prepared import PreparedPrompt
from engine.store import Store

_OVERHEAD = ("parse", "plan", "load", "sample")


@contextlib.contextmanager
def engine_over(model: Model) -> Iterator[Engine]:
    """An engine over an empty store."""
    with (
        tempfile.TemporaryDirectory(prefix="pml-bench-") as folder,
        Engine(model, Store.open(Path(folder))) as engine,
    ):
        yield engine


class Stored:
    """A prompt over random modules, which are encoded."""

    def __init__(self, engine: Engine, size: Size) -> None:
        schema, self._prompt = sources(engine.model, size.cached, size.modules, size.new, size.seed)
        self._schema = engine.schema(schema)
        self._schema.encode()
        self._reads = itertools.count()

    def prompt(self) -> PreparedPrompt:
        """The prompt, parsed and prepared again: the comment makes it a text that no cache has."""
        return self._schema.prompt(f"{self._prompt}<!-- {next(self._reads)} -->")

    def ttft_ms(self) -> float:
        return self.prompt().answer(max_new_tokens=1).ttft_ms


@case
def first_token(group: Group, say: Say, size: Size, counts: Sequence[int]) -> Sides:
    """Time to first token of the same tokens in few and in many modules."""
    model = size.open(group, say)
    with engine_over(model) as engine:
        say("encoding")
        stored = {count: Stored(engine, size.of(size.cached, count)) for count in counts}
        yield [Way(str(count), one.ttft_ms) for count, one in stored.items()]


@case
def per_token(group: Group, say: Say, size: Size, counts: Sequence[int], answered: int) -> Sides:
    """Time of a token after them. One module is one contiguous cache; a copy of many modules counts."""
    model = size.open(group, say, answered + 1)
    yield [
        Way(str(count), partial(Decoding(model, size.of(size.cached, count), answered).mean, answered))
        for count in counts
    ]


@case
def edits(group: Group, say: Say, size: Size) -> Sides:
    """Tokens that are encoded after an edit of a module, in another order, and with text between modules."""
    model, draw = size.open(group, say), random.Random(size.seed)
    tokens = size.cached // size.modules
    texts = {f"m{number}": text_of(model, tokens, draw) for number in range(size.modules)}
    edited = {**texts, "m0": text_of(model, tokens, draw)}
    with engine_over(model) as engine:

        def encoded(modules: dict[str, str], order: Sequence[str], between: str = "") -> int:
            imports = between.join(f"<{name}/>" for name in order)
            prepared = engine.schema(schema_of("edited", modules))
            prompt = prepared.prompt(f'<prompt schema="edited">{imports} go on</prompt>')
            return prompt.answer(max_new_tokens=1, sync=True).tokens["encoded"]

        group.values["in the first run"] = encoded(texts, [*texts])
        own = len(model.tokenize(edited["m0"]))
        group.values |= {
            "beyond the edited module": encoded(edited, [*texts]) - own,
            "after another order": encoded(texts, [*texts][::-1]),
            "after text between": encoded(texts, [*texts], " and so "),
        }
        yield []


@case
def overhead(group: Group, say: Say, size: Size) -> Sides:
    """All work besides the forward pass: parsing, planning, loading and sampling."""
    model = size.open(group, say)
    with engine_over(model) as engine:
        stored = Stored(engine, size)

        def ask() -> float:
            timeline = stored.prompt().answer(max_new_tokens=1).timeline_ms
            return sum(timeline.get(name, 0.0) for name in _OVERHEAD)

        yield [Way("all but the forward pass", ask)]
