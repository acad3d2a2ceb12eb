"""Another model in the place of the one that answers, without a restart.

It is loaded while the former one goes on answering, and takes its place once it is there. What the former one
computes then ends first, or is stopped; then it is closed and its memory given back. Where both do not fit
into memory together, the former goes first, and comes back if the other cannot be loaded.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from typing_extensions import TypedDict

from app.models.model_choice import ModelChoice
from app.studio.model.engine_loader import Opening
from app.studio.model.recent_models import RecentModels
from app.studio.web.jobs import Job, Jobs, StoppedError
from engine.base.errors import PromptCacheError

if TYPE_CHECKING:
    from engine import Engine

logger = logging.getLogger(__name__)

STEP_SECONDS = 0.05
PATIENCE_SECONDS = 3.0  # that the end of the studio waits for the end of a switch
Running = Literal["finish", "stop"]
_FIELDS = {
    "quantize": "Rounding",
    "dtype": "Number format",
    "device": "Device",
    "weights": "Weights in memory",
}
_NAMED = "|".join(_FIELDS)
_IN_PAGE_WORDS: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
    (
        rf"eave --({_NAMED}) \w+ out",
        lambda found: f'eave "{_FIELDS[found[1]]}" at "{"none" if found[1] == "quantize" else "auto"}"',
    ),
    (rf"(add|[Uu]se) --({_NAMED}) (\w+)", lambda found: f'choose "{found[3]}" under "{_FIELDS[found[2]]}"'),
    (
        rf"--({_NAMED}) ((?:fp|bf|int)\d+|auto|none)",
        lambda found: f'"{found[2]}" under "{_FIELDS[found[1]]}"',
    ),
    (rf"--({_NAMED})", lambda found: f'"{_FIELDS[found[1]]}"'),
    (r", or choose another folder with --dir", lambda _: ""),
    (r"Choose another folder with --dir", lambda _: "Check who may write there"),
    (r" with --model\b", lambda _: ""),
)


class Switched(TypedDict):
    """The model that answers now; seconds that it took to be there."""

    model: str
    device: str
    dtype: str
    seconds: float


@dataclass(frozen=True)
class SwitchedTo:
    """What comes of a switch."""

    told: Switched

    def to_json(self) -> dict[str, Any]:
        """Returns it for the page."""
        return dict(self.told)


class Listener(Protocol):
    """Who outside of the pages has the engine compute: runs that are handed over, requests of programs."""

    def expect(self, choice: ModelChoice) -> Callable[[Engine], None]:
        """Is told what will be loaded; returns what is called with the engine once it answers."""
        ...

    def leave(self) -> None:
        """Begins nothing more with the engine that answers."""
        ...

    def busy(self, engine: Engine) -> int:
        """How many runs it still computes."""
        ...

    def stop(self, engine: Engine) -> None:
        """Ends what it still computes, before it is closed."""
        ...


@dataclass(frozen=True)
class Everybody:
    """Several who have the engine compute, or nobody.

    Attributes:
        listeners: who they are.
    """

    listeners: tuple[Listener, ...] = ()

    def expect(self, choice: ModelChoice) -> Callable[[Engine], None]:
        """Tells them what will be loaded; returns what tells them that it answers."""
        told = [one.expect(choice) for one in self.listeners]

        def there(engine: Engine) -> None:
            for one in told:
                one(engine)

        return there

    def leave(self) -> None:
        """Has them begin nothing more."""
        for one in self.listeners:
            one.leave()

    def busy(self, engine: Engine) -> int:
        """How many runs it still computes for them."""
        return sum(one.busy(engine) for one in self.listeners)

    def stop(self, engine: Engine) -> None:
        """Ends what it still computes for them."""
        for one in self.listeners:
            one.stop(engine)


@dataclass(eq=False)
class Switching:
    """Loads models and puts them in the place of others, one at a time.

    Args:
        opening: where the engine is that answers.
        jobs: the work that may use it.
        tokenizing: held by whoever uses the engine for a moment.

    Attributes:
        choice: the model that answers, as it was asked for.
        kept: options of `Engine.open` that stay whatever the model is: the store, memory, the date.
        bounds: further options of `Engine.open`, which change no answer.
        listener: who is told.
        recent: the models that were loaded before.
        job: the switch that goes on, or the last one.
    """

    opening: Opening
    jobs: Jobs
    tokenizing: threading.Lock
    recent: RecentModels
    choice: ModelChoice = field(default_factory=ModelChoice)
    kept: Mapping[str, Any] = field(default_factory=dict)
    bounds: Mapping[str, Any] = field(default_factory=dict)
    listener: Listener = field(default_factory=Everybody)
    job: Job | None = None
    _closing: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begun(self, engine: Engine, choice: ModelChoice, kept: Mapping[str, Any]) -> None:
        """Is given the first engine, and how it was opened."""
        self.choice, self.kept = choice, dict(kept)
        self.recent.add(choice)
        self.opening.finish(engine)

    @property
    def under_way(self) -> Job | None:
        """The switch that goes on."""
        return self.job if self.job is not None and not self.job.over else None

    @property
    def beside(self) -> tuple[str, int, int]:
        """The model that answers: its name, the bytes that go with it, and the most of segments in memory."""
        from engine.quantize.memory_fit import weight_sizes

        engine = self.opening.engine
        held = weight_sizes(engine.model.network.module).bytes + engine.memory_tier.bytes
        return engine.model.name, held, engine.memory_tier.budget

    def start(self, key: str, wanted: ModelChoice, running: Running, *, apart: bool = False) -> Job:
        """Begins to switch.

        Args:
            key: by which the page asks how far it is.
            wanted: the model that is to answer.
            running: whether what the former one computes ends first, or is stopped.
            apart: whether the former one goes before the other is loaded.

        Raises:
            PromptCacheError: another switch goes on, or the first model is still being loaded.
        """
        with self._lock:
            if self.under_way is not None:
                raise PromptCacheError(
                    "Another model is being loaded. Wait until it is there, or stop that first."
                )
            if not self.opening.there:
                raise PromptCacheError("The model is still being loaded. Try again in a moment.")

            def work(job: Job) -> SwitchedTo:
                begun = time.monotonic()
                load = self._apart if apart else self.load_beside
                engine = load(job, wanted, running)
                self.recent.add(wanted)
                model = engine.model
                told: Switched = {
                    "model": model.name,
                    "device": model.device,
                    "dtype": model.dtype,
                    "seconds": time.monotonic() - begun,
                }
                return SwitchedTo(told)

            self.job = self.jobs.start(Job(key, work, "switch", f"loading {wanted.name}"))
            return self.job

    def close(self) -> None:
        """Stops the switch that goes on, and waits a while for its end, lest torch computes beyond ours.

        What the former model still computes is not waited for.
        """
        self._closing.set()
        job = self.under_way
        if job is not None:
            job.stop()
            until = time.monotonic() + PATIENCE_SECONDS
            while not job.over and time.monotonic() < until:
                time.sleep(STEP_SECONDS)

    def load_beside(self, job: Job, wanted: ModelChoice, running: Running) -> Engine:
        """Loads a model while the former one answers."""
        there = self.listener.expect(wanted)
        engine = self._opened(job, wanted)
        former = self._placed(engine, wanted, there)
        if former is not None:
            self._let_go(former, running, job)
        del former
        give_back_memory()
        return engine

    def _apart(self, job: Job, wanted: ModelChoice, running: Running) -> Engine:
        """Loads a model after the former one has gone; that comes back where the other cannot be loaded."""
        back, there = self.choice, self.listener.expect(wanted)
        before = self.listener.expect(back)
        self.listener.leave()
        with self.tokenizing:
            former = self.opening.leave()
        self._let_go(former, running, job)
        del former
        give_back_memory()
        try:
            engine = self._opened(job, wanted)
        except Exception:

            def again(done: int, total: int, _: str) -> None:
                self._say(job, done, total, f"loading {back.name} again")

            self._placed(self._reopened(back, again), back, before)
            raise
        self._placed(engine, wanted, there)
        return engine

    def _opened(self, job: Job, wanted: ModelChoice) -> Engine:
        """The engine of a model.

        Raises:
            ModelError: it cannot be loaded.
            StoppedError: somebody stopped the work.
        """

        def read(done: int, total: int, what: str) -> None:
            self._say(job, done, total, what)
            if job.stopping:
                raise StoppedError

        try:
            engine = self._reopened(wanted, read)
        except Exception as error:
            if job.stopping:  # whatever the loader has made of that
                raise StoppedError from None
            if isinstance(error, PromptCacheError):
                raise PromptCacheError(in_page_words(str(error))) from error
            raise
        if job.stopping:
            engine.close()
            raise StoppedError
        return engine

    def _reopened(self, wanted: ModelChoice, progress: Callable[[int, int, str], None]) -> Engine:
        from engine import Engine

        options = {**wanted.options, **self.kept, **self.bounds}
        engine = Engine.open(wanted.name, progress=progress, **options)
        engine.check_when_idle()
        return engine

    def _say(self, job: Job, done: int, total: int, what: str) -> None:
        self.opening.progress(done, total, what)
        job.tell(done, total, what)

    def _placed(self, engine: Engine, choice: ModelChoice, there: Callable[[Engine], None]) -> Engine | None:
        if self.opening.there:
            with self.tokenizing:  # nobody is half through a question
                former = self.opening.finish(engine)
        else:  # who asks holds that lock while it waits
            former = self.opening.finish(engine)
        self.choice = choice
        there(engine)
        return former

    def _let_go(self, former: Engine, running: Running, job: Job) -> None:
        """Closes an engine that nobody gets any more, once what it computes has ended."""
        others = [one for one in self.jobs.under_way if one is not job]
        if running == "stop":
            for one in others:
                one.stop()
            self.listener.stop(former)
        while not self._closing.is_set() and (
            any(not one.over for one in others) or (running == "finish" and self.listener.busy(former))
        ):
            left = sum(not one.over for one in others) + self.listener.busy(former)
            job.tell(0, 0, f"waiting for {left} run{'s' * (left != 1)} of the former model to end")
            time.sleep(STEP_SECONDS)
        former.close()


def in_page_words(sentence: str) -> str:
    """Returns a refusal with the fields of the Models page in the place of options of the command line."""
    for pattern, words in _IN_PAGE_WORDS:
        sentence = re.sub(pattern, words, sentence)
    return sentence[:1].upper() + sentence[1:]


def give_back_memory() -> None:
    """Frees what nobody holds any more, and gives it back to the system."""
    gc.unfreeze()  # a start has the collector pass by what was loaded then, the former model too
    gc.collect()
    gc.freeze()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    if sys.platform == "linux":
        try:
            ctypes.CDLL(None).malloc_trim(0)
        except (OSError, AttributeError) as error:  # another C library
            logger.debug("memory is not trimmed: %s", error)
