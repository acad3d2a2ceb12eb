"""Prompts over the same modules, answered together or one after the other.

Each prompt ends with a new text of its own. The modules are stored and in memory.

- `one_by_one`: each prompt has its whole answer before the next begins.
- `batch`: all at once, with the modules in the order of the schema.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path

from app.studio.sweeps.drawn import schema_of, spans, text_of
from app.studio.sweeps.turns import Way
from engine.base.errors import PromptCacheError
from engine.base.events import Answer
from engine.engine import Engine
from engine.model.model import Model
from engine.prepared import PreparedPrompt, PreparedSchema
from engine.store import Store


@dataclass(frozen=True)
class Size:
    """Tokens of every prompt.

    Attributes:
        shared: tokens in the shared modules.
        modules: number of these modules.
        own: tokens of a prompt's own text.
        new: tokens of each answer.
    """

    shared: int = 2048
    modules: int = 8
    own: int = 64
    new: int = 64

    def __post_init__(self) -> None:
        if min(self.shared, self.modules, self.own) < 1 or self.shared < self.modules or self.new < 2:
            raise PromptCacheError(
                "--shared, --modules and --own must be at least 1, --shared at least --modules, and --new at "
                "least 2."
            )

    @property
    def longest(self) -> int:
        """Most tokens of a prompt and its answer."""
        return self.shared + self.modules + self.own + self.new


class Endless(Model):
    """A model whose answers end by length only."""

    @property
    def end_tokens(self) -> frozenset[int]:
        """No token ends an answer."""
        return frozenset()


class Crowd:
    """Prompts over the same modules, for an engine that answers many at once and one that does not.

    Args:
        model: the model; from now on its answers end by length only.
        folder: for two stores.
        size: tokens of every prompt.
        most: most prompts at once.
        seed: of the texts.

    Raises:
        PromptCacheError: an answer does not fit the context window.
    """

    def __init__(self, model: Model, folder: Path, size: Size, most: int, seed: int) -> None:
        if size.longest >= model.context_length:
            raise PromptCacheError(
                f"{size.longest} tokens do not fit the model's {model.context_length}; lower --shared."
            )
        model.__class__ = Endless
        self.model, self.size, self.draw = model, size, random.Random(seed)
        self.batch = Engine(model, Store.open(folder / "batch"), self.memory(most))
        self.single = Engine(model, Store.open(folder / "single"), deterministic=True)
        self.schemas: dict[str, PreparedSchema] = {}
        try:
            self.shared = self.modules("m")
            self.store("one_by_one", self.shared)
            self.store("batch", self.shared)
            self.fill()
        except BaseException:
            self.close()
            raise

    def memory(self, most: int) -> int:
        """Bytes for all prompts at once, so that none waits for memory."""
        return (most + 2) * self.size.longest * self.model.bytes_per_token

    def fill(self) -> None:
        """Stores more modules, if there are more kinds of prompts."""

    def close(self) -> None:
        """Closes both engines."""
        self.batch.close()
        self.single.close()

    def engine(self, kind: str) -> Engine:
        """The engine for prompts of a kind."""
        return self.single if kind == "one_by_one" else self.batch

    def modules(self, stem: str) -> dict[str, str]:
        """Random texts by module name."""
        ranges = spans(self.size.shared, self.size.modules)
        return {f"{stem}{i}": text_of(self.model, hi - lo, self.draw) for i, (lo, hi) in enumerate(ranges)}

    def store(self, kind: str, modules: dict[str, str]) -> None:
        """Encodes the modules of a kind."""
        self.schemas[kind] = self.engine(kind).schema(schema_of(kind, modules))
        self.schemas[kind].encode()

    def start(self, kind: str, number: int) -> tuple[PreparedSchema, str]:  # noqa: ARG002
        """The schema of a prompt, and the prompt's text before its own."""
        return self.schemas[kind], "".join(f"<{name}/>" for name in self.shared)

    def source(self, kind: str, number: int) -> tuple[PreparedSchema, str]:
        """The schema and the text of a prompt."""
        schema, begin = self.start(kind, number)
        return schema, f'<prompt schema="{schema.name}">{begin}{self.own()}</prompt>'

    def own(self) -> str:
        """A new text of a prompt's own."""
        return text_of(self.model, self.size.own, self.draw)

    def prompts(self, kind: str, count: int) -> list[PreparedPrompt]:
        """Several prompts of a kind."""
        found = (self.source(kind, number) for number in range(count))
        return [schema.prompt(source) for schema, source in found]

    def way(self, kind: str, count: int) -> Way:
        """Answers several prompts: milliseconds of the whole. The name has both."""
        prompts: list[PreparedPrompt] = []

        def prepare() -> None:
            prompts[:] = self.prompts(kind, count)

        def run() -> float:
            started = time.perf_counter()
            new = self.size.new
            found = list(self.engine(kind).answer_all(prompts, max_new_tokens=new, speculate="off"))
            taken = (time.perf_counter() - started) * 1000
            for _, answer in found:
                self.require_whole(kind, answer)
            return taken

        return Way(f"{kind} {count}", run, prepare)

    def require_whole(self, kind: str, outcome: object) -> None:
        """Refuses a failed or shortened answer.

        Raises:
            PromptCacheError: it is one.
        """
        if not isinstance(outcome, Answer):
            raise PromptCacheError(f"{kind}: a prompt has no answer: {outcome}")
        if outcome.tokens["generated"] != self.size.new:
            raise PromptCacheError(
                f"{kind}: an answer ended after {outcome.tokens['generated']} of {self.size.new} tokens."
            )
