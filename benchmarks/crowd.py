"""Prompts over the same modules, together or one after the other, and what a newcomer among them waits for.

Each ends with a text of its own, which none before it had; the modules are stored and in memory.

- `one_by_one`: each has its whole answer before the next begins.
- `batch`: all at once, the modules in the order of the schema.
- `batch_reordered`: the same with the modules in another order in every prompt, so that no two begin alike.
- `batch_plain`: the same text stands as plain text at the beginning of every prompt and is found at run time;
  one prompt has read it before.
- `private`: all at once, but each reads modules of its own, as many and as long: nothing is shared.
- `half`: all at once; of the modules of each, the first half are those that all read, the others its own.
- `newcomer_alone`, `newcomer`: from handing one in to its first token, by itself and while others decode.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.answers import text_of
from benchmarks.drawn import spans
from benchmarks.turns import Way
from engine.base.errors import CancelledError, PromptCacheError
from engine.base.events import Answer, FirstToken
from engine.batch.loop import BatchLoop
from engine.batch.passes import Pass
from engine.batch.ticket import Ticket
from engine.engine import Engine
from engine.model.model import Model
from engine.prepared import PreparedPrompt, PreparedSchema
from engine.store import Store

KINDS = ("batch", "batch_reordered", "batch_plain", "private")
DECODERS = 16  # answers under way when a newcomer comes
LONG = 1024  # tokens that these are asked for; they are cancelled long before
_BEGUN = 4  # passes that all of them have gone through before the newcomer comes
_LOOK_SECONDS = 0.5  # between two looks at whether one of them has ended


@dataclass(frozen=True)
class Size:
    """What is asked of every prompt.

    Attributes:
        shared: tokens in the modules that all of them read.
        modules: how many these are.
        own: tokens of each one's own text.
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
        """How many tokens a prompt and its answer have at most, those between two modules included."""
        return self.shared + self.modules + self.own + self.new


class Endless(Model):
    """A model whose answers end by their length alone: after drawn texts they could end anywhere."""

    @property
    def end_tokens(self) -> frozenset[int]:
        """None."""
        return frozenset()


class PassLog:
    """What a loop tells of its passes.

    Args:
        loop: the loop that is watched from now on.

    Attributes:
        made: the passes since the last `clear`.
    """

    def __init__(self, loop: BatchLoop) -> None:
        self.made: list[Pass] = []
        self._came = threading.Condition()
        loop.watcher = self._take

    def _take(self, made: Pass) -> None:
        with self._came:
            self.made.append(made)
            self._came.notify_all()

    def clear(self) -> None:
        """Forgets all passes."""
        with self._came:
            self.made = []

    @property
    def peak(self) -> int:
        """The most bytes of keys and values in one of them."""
        return max((one.nbytes for one in self.made), default=0)

    def wait(self, tickets: Sequence[Ticket], passes: int) -> None:
        """Waits until all of these answers have gone through so many passes together.

        Raises:
            PromptCacheError: one of them has ended before.
        """
        with self._came:
            while not self._came.wait_for(lambda: self._together(len(tickets)) >= passes, _LOOK_SECONDS):
                if any(ticket.done for ticket in tickets):
                    raise PromptCacheError("an answer ended before a newcomer came; lower --shared.")

    def _together(self, answers: int) -> int:
        return sum(one.answers >= answers for one in self.made)


class Crowd:
    """Prompts over the same modules, and two engines over one model: one takes many at once, one does not.

    Args:
        model: the model that answers; its answers end by their length alone from now on.
        folder: for two stores.
        size: what is asked of every prompt.
        most: the most prompts at once.
        seed: the seed of texts and orders.
        say: is told what goes on.
        private: for how many prompts there are modules of their own.
        decoders: answers under way when a newcomer comes.

    Attributes:
        peaks: the most bytes of keys and values of answers under way, segments and copies of them, by the
            name of a way; 0 where nobody counts them.
        waits: what the others wait, in milliseconds, for each newcomer: the median time between two passes
            before it came, and the longest while it was read.

    Raises:
        PromptCacheError: an answer would not fit the model's context window.
    """

    def __init__(
        self,
        model: Model,
        folder: Path,
        size: Size,
        most: int,
        seed: int,
        say: Callable[[str], None],
        *,
        private: int = 0,
        decoders: int = DECODERS,
    ) -> None:
        if size.longest >= model.context_length:
            raise PromptCacheError(
                f"{size.longest} tokens do not fit the model's {model.context_length}; lower --shared."
            )
        model.__class__ = Endless
        self.model, self.size, self.private, self.decoders = model, size, private, decoders
        self.peaks: dict[str, int] = {}
        self.waits: list[tuple[float, float]] = []
        self._draw = random.Random(seed)
        shared = self._modules("m")
        self._plain = " ".join(shared.values()) + " "
        # Room for everyone at once, so that none waits for memory.
        tokens = (max(most, decoders) + 1) * (size.longest + LONG) + (private + 1) * size.shared
        self.batch = Engine(model, Store.open(folder / "batch"), tokens * model.bytes_per_token)
        self.single = Engine(model, Store.open(folder / "single"), deterministic=True)
        try:
            assert isinstance(self.batch.answerer, BatchLoop)
            self.log = PassLog(self.batch.answerer)
            say("encoding")
            self._schemas = {
                "one_by_one": _stored(self.single, "crowd", shared),
                "batch": _stored(self.batch, "crowd", shared),
            }
            if private:
                say("encoding modules that are not shared")
                apart = {name: text for n in range(private) for name, text in self._modules(f"p{n}m").items()}
                self._schemas["private"] = _stored(self.batch, "private", apart)
                self._schemas["half"] = _stored(self.batch, "half", {**shared, **apart})
            (first,) = self.prompts("batch_plain", 1)
            self.submit("batch_plain", first, 2).result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes both engines."""
        self.batch.close()
        self.single.close()

    def engine(self, kind: str) -> Engine:
        """The engine that answers prompts of a kind."""
        return self.single if kind.startswith("one_by_one") else self.batch

    def prompts(self, kind: str, count: int) -> list[PreparedPrompt]:
        """So many prompts of a kind, each with a text that no prompt before it had."""
        return [self._prompt(kind, number) for number in range(count)]

    def twins(self, kind: str, count: int) -> list[tuple[PreparedPrompt, PreparedPrompt]]:
        """So many prompts over the shared modules, each for the engine of many and for the other."""
        single, found = self._schemas["one_by_one"], list[tuple[PreparedPrompt, PreparedPrompt]]()
        for number in range(count):
            schema, source = self._source(kind, number)
            found.append((schema.prompt(source), single.prompt(source)))
        return found

    def submit(self, kind: str, prompt: PreparedPrompt, tokens: int) -> Ticket:
        """Hands a prompt in for so many tokens."""
        return self.engine(kind).submit(prompt, max_new_tokens=tokens, speculate="off")

    def way(self, kind: str, count: int) -> Way:
        """Answers to so many prompts: milliseconds of the whole. It is named after both."""
        name, new = f"{kind} {count}", self.size.new
        prompts: list[PreparedPrompt] = []

        def prepare() -> None:
            prompts[:] = self.prompts(kind, count)

        def run() -> float:
            self.log.clear()
            started = time.perf_counter()
            found = list(self.engine(kind).answer_all(prompts, max_new_tokens=new, speculate="off"))
            taken = (time.perf_counter() - started) * 1000
            for _, answer in found:
                self.require_whole(kind, answer)
            self.peaks[name] = max(self.peaks.get(name, 0), self.log.peak)
            return taken

        return Way(name, run, prepare)

    def newcomers(self) -> list[Way]:
        """The first token of one more prompt; none of a model that takes one prompt at a time."""
        if self.model.alone:
            return []
        return [
            Way("newcomer_alone", lambda: self._newcomer(0)),
            Way("newcomer", lambda: self._newcomer(self.decoders)),
        ]

    def require_whole(self, kind: str, outcome: object) -> None:
        """Refuses what is no whole answer.

        Raises:
            PromptCacheError: it is a fault, or ended before its time.
        """
        if not isinstance(outcome, Answer):
            raise PromptCacheError(f"{kind}: a prompt has no answer: {outcome}")
        if outcome.tokens["generated"] != self.size.new:
            raise PromptCacheError(
                f"{kind}: an answer ended after {outcome.tokens['generated']} of {self.size.new} tokens."
            )

    def _newcomer(self, among: int) -> float:
        """Milliseconds to the first token of one more prompt while so many answers go on."""
        *others, last = self.prompts("batch", among + 1)
        self.log.clear()
        tickets = [self.submit("batch", one, LONG) for one in others]
        try:
            if tickets:
                self.log.wait(tickets, _BEGUN)
            started = time.perf_counter()
            ticket = self.submit("batch", last, 2)
            next(event for event in ticket.events() if isinstance(event, FirstToken))
            ended = time.perf_counter()
            ticket.result()
        finally:
            for one in tickets:
                one.cancel()
            for one in tickets:
                with contextlib.suppress(CancelledError):
                    one.result()
        if among:
            passes = list(pairwise(one.ended for one in self.log.made if one.answers >= among))
            before = [(end - start) * 1000 for start, end in passes if end <= started]
            during = [(end - start) * 1000 for start, end in passes if end > started and start < ended]
            self.waits.append((statistics.median(before), max(during, default=0.0)))
        return (ended - started) * 1000

    def _prompt(self, kind: str, number: int) -> PreparedPrompt:
        schema, source = self._source(kind, number)
        return schema.prompt(source)

    def _source(self, kind: str, number: int) -> tuple[PreparedSchema, str]:
        """A prompt's schema and text."""
        names = [f"m{i}" for i in range(self.size.modules)]
        if kind.startswith(("private", "half")):
            common = 0 if kind.startswith("private") else len(names) // 2
            names[common:] = [f"p{number % self.private}{name}" for name in names[common:]]
        if kind.endswith("_reordered"):
            self._draw.shuffle(names)
        start = self._plain if kind == "batch_plain" else "".join(f"<{name}/>" for name in names)
        schema = self._schemas[next(known for known in self._schemas if kind.startswith(known))]
        own = text_of(self.model, self.size.own, self._draw)
        return schema, f'<prompt schema="{schema.name}">{start}{own}</prompt>'

    def _modules(self, stem: str) -> dict[str, str]:
        """Drawn texts by the names of modules."""
        borders = spans(self.size.shared, self.size.modules)
        return {f"{stem}{i}": text_of(self.model, hi - lo, self._draw) for i, (lo, hi) in enumerate(borders)}


def _stored(engine: Engine, name: str, modules: dict[str, str]) -> PreparedSchema:
    """A schema whose modules are encoded."""
    written = "".join(f'<module name="{one}">{text}</module>' for one, text in modules.items())
    prepared = engine.schema(f'<schema name="{name}">{written}</schema>')
    prepared.encode()
    return prepared
