"""Switches the model without a restart.

The previous model answers until the new one is loaded. Its runs then finish or stop, and its memory is freed.
If both do not fit into memory, the previous one is closed first and reloaded if the new one fails.
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
SWITCH = "switch"  # the name of a job that switches
PATIENCE_SECONDS = 3.0  # wait for a running switch when the studio stops
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
    """The current model, and the seconds it took to load."""

    model: str
    device: str
    dtype: str
    seconds: float


@dataclass(frozen=True)
class SwitchedTo:
    """The result of a switch."""

    told: Switched

    def to_json(self) -> dict[str, Any]:
        """Returns the result for the page."""
        return dict(self.told)


class Listener(Protocol):
    """A user of the engine outside the pages: runs from the command line, or API requests."""

    def expect(self, choice: ModelChoice) -> Callable[[Engine], None]:
        """Prepares for a model; returns a function to call with its engine."""
        ...

    def leave(self) -> None:
        """Starts no more work with the current engine."""
        ...

    def busy(self, engine: Engine) -> int:
        """Returns the number of running runs of an engine."""
        ...

    def stop(self, engine: Engine) -> None:
        """Stops an engine's runs before it is closed."""
        ...


@dataclass(frozen=True)
class Everybody:
    """Several listeners as one.

    Attributes:
        listeners: the listeners.
    """

    listeners: tuple[Listener, ...] = ()

    def expect(self, choice: ModelChoice) -> Callable[[Engine], None]:
        """Prepares all for a model; returns a function to call with its engine."""
        callbacks = [item.expect(choice) for item in self.listeners]

        def loaded(engine: Engine) -> None:
            for item in callbacks:
                item(engine)

        return loaded

    def leave(self) -> None:
        """Starts no more work with the current engine."""
        for listener in self.listeners:
            listener.leave()

    def busy(self, engine: Engine) -> int:
        """Returns the number of running runs of an engine."""
        return sum(listener.busy(engine) for listener in self.listeners)

    def stop(self, engine: Engine) -> None:
        """Stops an engine's runs."""
        for listener in self.listeners:
            listener.stop(engine)


@dataclass(eq=False)
class Switching:
    """Switches models, one at a time.

    Args:
        opening: the current engine.
        jobs: the work that may use it.
        tokenizing: the lock for short uses of the engine.

    Attributes:
        choice: the current model as requested.
        kept: options of `Engine.open` for every model: the store, memory, the date.
        bounds: further options of `Engine.open` that change no answer.
        listener: the users of the engine outside the pages.
        recent: the models that were loaded before.
        job: the running or last switch, or comparison of two models.
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
        """Sets the first engine and its options."""
        self.choice, self.kept = choice, dict(kept)
        self.recent.add(choice)
        self.opening.finish(engine)

    @property
    def under_way(self) -> Job | None:
        """The running switch or comparison."""
        return self.job if self.job is not None and not self.job.over else None

    @property
    def beside(self) -> tuple[str, int, int]:
        """The current model: its name, its bytes, and the maximum bytes of segments in memory."""
        from engine.quantize.memory_fit import weight_sizes

        engine = self.opening.engine
        used = weight_sizes(engine.model.network.module).bytes + engine.memory_tier.bytes
        return engine.model.name, used, engine.memory_tier.budget

    def start(self, key: str, wanted: ModelChoice, running: Running, *, apart: bool = False) -> Job:
        """Starts a switch.

        Args:
            key: the job's key for the page.
            wanted: the model to load.
            running: whether runs of the previous model finish or stop.
            apart: whether to close the previous model before the new one is loaded.

        Raises:
            PromptCacheError: a switch is running, or the first model is still loading.
        """

        def work(job: Job) -> SwitchedTo:
            begun = time.monotonic()
            load = self._apart if apart else self.load_beside
            engine = load(job, wanted, running)
            self.recent.add(wanted)
            model = engine.model
            result: Switched = {
                "model": model.name,
                "device": model.device,
                "dtype": model.dtype,
                "seconds": time.monotonic() - begun,
            }
            return SwitchedTo(result)

        return self.begin_loading(Job(key, work, SWITCH, f"loading {wanted.name}"))

    def begin_loading(self, job: Job) -> Job:
        """Starts a job that loads another model.

        Raises:
            PromptCacheError: another such job is running, or the first model is still loading.
        """
        with self._lock:
            if self.under_way is not None:
                doing = "loading" if self.under_way.name == SWITCH else "being compared"
                raise PromptCacheError(f"Another model is {doing}. Wait until that ends, or stop it first.")
            if not self.opening.there:
                raise PromptCacheError("The model is still loading. Try again in a moment.")
            self.job = self.jobs.start(job)
            return self.job

    def lend(self, job: Job, wanted: ModelChoice, use: Callable[[Engine], object], *, apart: bool) -> None:
        """Loads another model for one function; the current model stays, or is loaded again afterwards.

        Other runs end first, because they would affect the times.

        Args:
            job: the job of `begin_loading`; if it is stopped, the current model returns.
            wanted: the model to load.
            use: called with its engine, which is closed afterwards.
            apart: whether to close the current model meanwhile.

        Raises:
            PromptCacheError: the model cannot be loaded.
            StoppedError: the job was stopped before the model was loaded.
        """
        again: Callable[[], None] | None = None
        if job.stopping:
            raise StoppedError
        self._wait(job, self.opening.engine, "finish" if apart else "stop", stoppable=True)
        if apart:
            again = self._unloaded(job, "finish")
        try:
            engine = self._opened(job, wanted)
            self.recent.add(wanted)
            try:
                use(engine)
            finally:
                engine.close()
                del engine
                give_back_memory()
        finally:
            if again is not None and not self._closing.is_set():
                again()

    def close(self) -> None:
        """Stops a running switch and waits briefly, so that torch does not compute after shutdown.

        Runs of the previous model are not awaited.
        """
        self._closing.set()
        job = self.under_way
        if job is not None:
            job.stop()
            until = time.monotonic() + PATIENCE_SECONDS
            while not job.over and time.monotonic() < until:
                time.sleep(STEP_SECONDS)

    def load_beside(self, job: Job, wanted: ModelChoice, running: Running) -> Engine:
        """Loads a model while the previous one answers."""
        loaded = self.listener.expect(wanted)
        engine = self._opened(job, wanted)
        former = self._placed(engine, wanted, loaded)
        if former is not None:
            self._let_go(former, running, job)
        del former
        give_back_memory()
        return engine

    def _apart(self, job: Job, wanted: ModelChoice, running: Running) -> Engine:
        """Loads a model after the previous one is closed, or reloads that if loading fails."""
        loaded = self.listener.expect(wanted)
        again = self._unloaded(job, running)
        try:
            engine = self._opened(job, wanted)
        except Exception:
            again()
            raise
        self._placed(engine, wanted, loaded)
        return engine

    def _unloaded(self, job: Job, running: Running) -> Callable[[], None]:
        """Closes the current model after its runs end; returns a function that loads it again."""
        back, before = self.choice, self.listener.expect(self.choice)
        self.listener.leave()
        with self.tokenizing:
            former = self.opening.leave()
        self._let_go(former, running, job)
        del former
        give_back_memory()

        def told(done: int, total: int, _: str) -> None:
            self._say(job, done, total, f"loading {back.name} again")

        def again() -> None:
            self._placed(self._reopened(back, told), back, before)

        return again

    def _opened(self, job: Job, wanted: ModelChoice) -> Engine:
        """Returns the engine of a model.

        Raises:
            ModelError: it cannot be loaded.
            StoppedError: the switch was stopped.
        """

        def read(done: int, total: int, what: str) -> None:
            self._say(job, done, total, what)
            if job.stopping:
                raise StoppedError

        try:
            engine = self._reopened(wanted, read)
        except Exception as error:
            if job.stopping:  # whatever the loader made of it
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
            with self.tokenizing:  # no request is half done
                former = self.opening.finish(engine)
        else:  # requests hold that lock while they wait
            former = self.opening.finish(engine)
        self.choice = choice
        there(engine)
        return former

    def _let_go(self, former: Engine, running: Running, job: Job) -> None:
        """Closes an engine after its runs end."""
        if running == "stop":
            for other in self._others(job):
                other.stop()
            self.listener.stop(former)
        self._wait(job, former, running)
        former.close()

    def _others(self, job: Job) -> list[Job]:
        return [other for other in self.jobs.under_way if other is not job]

    def _wait(self, job: Job, former: Engine, running: Running, *, stoppable: bool = False) -> None:
        """Waits until the runs of an engine end.

        Raises:
            StoppedError: the job was stopped, and is `stoppable`.
        """
        others = self._others(job)
        while not self._closing.is_set() and (
            any(not other.over for other in others) or (running == "finish" and self.listener.busy(former))
        ):
            left = sum(not other.over for other in others) + self.listener.busy(former)
            job.tell(0, 0, f"waiting for {left} run{'s' * (left != 1)} to end")
            if stoppable and job.stopping:
                raise StoppedError
            time.sleep(STEP_SECONDS)


def in_page_words(sentence: str) -> str:
    """Returns an error with fields of the Models page instead of command-line options."""
    for pattern, words in _IN_PAGE_WORDS:
        sentence = re.sub(pattern, words, sentence)
    return sentence[:1].upper() + sentence[1:]


def give_back_memory() -> None:
    """Frees unused memory and returns it to the system."""
    gc.unfreeze()  # startup froze its objects, including the previous model
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
