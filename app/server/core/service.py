"""The one way from a request to the engine: places, planning, cancelling, draining. For one event loop."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from app.server.core.caching import Submitted, as_kept, expire, prepared, submitted
from app.server.core.limits import tokens_of
from app.server.core.metrics import GONE, Figures, Request
from app.server.core.pml_requests import faults_of
from app.server.core.request import LONGEST_ANSWER, Asked, Defaults
from app.server.core.schema_files import SchemaFiles
from app.server.core.tool_use import Said
from app.server.core.usage import Usage
from app.server.http.errors import DRAINING, FOREIGN, FULL, LOADING, NO_MODEL, OFF, ApiError, told_of
from app.server.http.thread_limits import Gone, Lane
from app.server.http.truncate import listed, shown
from engine import Engine
from engine.base.errors import CancelledError
from engine.base.events import Answer, Delta, Event, Finished, FirstToken, Listener
from engine.inference.model_settings import own_settings
from engine.prepared import PreparedPrompt

State = Literal["loading", "ok", "draining", "off"]
Made = TypeVar("Made")

LOOKS_WAITING = 64
"""So many plans and looks at schemas may wait for a thread."""
LONG_PML = 50_000
"""Characters of PML from which reading it takes a while, in which other threads hardly get on."""


@dataclass(frozen=True)
class Limits:
    """How much is taken in.

    Attributes:
        parallel: requests that are answered at once.
        waiting: requests that may wait besides.
        least: tokens of a prefix that is worth being kept where it is marked.
    """

    parallel: int = 16
    waiting: int = 64
    least: int = 64


class Service:
    """An engine that answers requests.

    Args:
        limits: how much is taken in.
        names: further names of the model.
        longest: tokens of an answer where a request does not say it; None as the model's makers have it.
        isolate: whether what one client computes is of no use to another.
        strict: whether a time to live is the most that something stays, and not the least alone.
        promise: settings of reuse that hold for every request, by name.

    Attributes:
        figures: what was counted.
        off: whether somebody has switched it off: it takes nothing in, and goes on with what is under way.
        created: when the service began, in seconds since 1970.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        names: tuple[str, ...] = (),
        *,
        longest: int | None,
        isolate: bool = False,
        strict: bool = False,
        promise: Mapping[str, Any] | None = None,
    ) -> None:
        self._strict, own = strict, {} if longest is None else {"max_new_tokens": longest}
        self._given = {**own, **(promise or {})}  # it holds before what the model's makers say
        self.limits, self._names, self._longest, self._isolate = limits or Limits(), names, longest, isolate
        self.figures, self.created = Figures(), int(time.time())
        self._engine: Engine | None = None
        self._schemas: SchemaFiles | None = None
        self._defaults = Defaults(longest or LONGEST_ANSWER)
        self.off = self._draining = self._stopped = False
        self._inside = self._read_long = 0
        self._running: set[Running | Work] = set()
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="work")
        self._looks = Lane(_LOOKERS, LOOKS_WAITING, "look")
        self._long = Lane(1, LOOKS_WAITING, "long")  # two would slow every answer by far more than one does
        self._empty = asyncio.Event()
        self._empty.set()

    # What it is

    @property
    def state(self) -> State:
        """Whether it answers."""
        if self._draining:
            return "draining"
        return "off" if self.off else "loading" if self._engine is None else "ok"

    @property
    def engine(self) -> Engine:
        """The engine.

        Raises:
            ApiError: it is not there yet, or takes nothing in any more.
        """
        if self._draining:
            raise ApiError(DRAINING, "The server is stopping. Try again when it is back.")
        if self.off:
            raise ApiError(OFF, "The server is switched off. Switch it on in the studio, on the page Serve.")
        if self._engine is None:
            raise ApiError(LOADING, "The server is loading its model. Try again in a moment.")
        return self._engine

    @property
    def defaults(self) -> Defaults:
        """What holds where a request says nothing."""
        return self._defaults

    @property
    def inside(self) -> int:
        """Requests that are answered or wait."""
        return self._inside

    @property
    def schemas(self) -> SchemaFiles:
        """The schemas that clients have put.

        Raises:
            ApiError: as for `engine`.
        """
        if self._schemas is None:
            raise ApiError(LOADING, "The server is loading its model. Try again in a moment.")
        return self._schemas

    def opened(self, engine: Engine) -> None:
        """Answers with an engine from now on."""
        self._engine, self._schemas = engine, SchemaFiles(engine.store.folder)
        own = {**own_settings(engine.model), **self._given}
        self._defaults = Defaults(self._longest or LONGEST_ANSWER, own, engine.model.generation.rules)

    def closed(self) -> None:
        """Takes nothing in until an engine is there again; requests under way go on."""
        self._engine = None

    def names(self) -> tuple[str, ...]:
        """The names that the model is asked for by, its own first; none is a path."""
        return (self.engine.model.stored.name, *self._names)

    def require_model(self, name: str) -> None:
        """Refuses a model that is not served.

        Raises:
            ApiError: it is not.
        """
        known, given = self.names(), self.engine.model.name
        if name not in (*known, given, given.replace("\\", "/").rstrip("/").rpartition("/")[2]):
            raise ApiError(
                NO_MODEL,
                f"There is no model {shown(name)} here; there is {listed(known)}. Ask for that one, or give "
                "it another name: pml serve --alias NAME.",
                "model",
            )

    def salt(self, given: str | None, client: str) -> str:
        """What a request shares segments by."""
        return "\n".join(filter(None, (given or "", client if self._isolate else "")))

    def forget_expired(self, engine: Engine) -> None:
        """Forgets what has outlived its time to live, where that is the most that it stays."""
        if self._strict:
            expire(engine)

    def require_operator(self, operator: bool | None) -> None:
        """Refuses what tells of all clients to one of them, where clients are apart or there are operators.

        Args:
            operator: whether an operator asks; None where there are none.

        Raises:
            ApiError: it is another one.
        """
        if operator or (operator is None and not self._isolate):
            return
        why = (
            "This tells of all clients, and an operator's key is needed for it."
            if operator is not None
            else "This tells of all clients, and they are kept apart here (--isolate)."
        )
        how = "Whoever runs the server can set PML_OPERATOR_KEYS and ask with such a key."
        raise ApiError(FOREIGN, f"{why} {how}")

    # Requests

    async def planned(
        self,
        asked: Asked,
        look: Callable[[Engine, PreparedPrompt], Made],
        client: str,
        gone: Gone,
        *,
        counted: bool = False,
    ) -> Made:
        """Plans a request, computing nothing, and looks at the plan; on a thread of its own.

        Args:
            asked: the request.
            look: what is wanted of it.
            client: who asks.
            gone: waits until nobody listens any more.
            counted: whether that is only how many tokens it has.

        Raises:
            ApiError: the model is not served, or not there, something is wrong with the prompt, or too many
                plans wait.
            PromptCacheError: what is wrong with the request.
        """
        self.require_model(asked.model)
        engine, files = self.engine, self.schemas

        def plan() -> Made:
            self.forget_expired(engine)
            prompt = prepared(engine, asked, files, counted=counted)
            with faults_of(asked):
                return look(engine, prompt)

        return await self.look(plan, client, gone, long=self._is_long(asked))

    async def counted(self, asked: Asked, client: str, gone: Gone) -> int:
        """Counts the tokens of a request's prompt, as `planned` plans it; of one that does not fit too."""
        return await self.planned(
            asked, lambda _, prompt: tokens_of(prompt, asked.settings), client, gone, counted=True
        )

    async def look(self, do: Callable[[], Made], client: str, gone: Gone, *, long: bool = False) -> Made:
        """Does something that is no answer, on threads that no answer needs.

        Args:
            do: what to do.
            client: who asks.
            gone: waits until nobody listens any more; what has not begun by then is not done.
            long: whether it reads much PML; of that there is one thing at a time.

        Raises:
            ApiError: too many wait.
            CancelledError: nobody wants it any more, and it was not begun.
        """
        try:
            lane, do = (self._long, partial(self._uncollected, do)) if long else (self._looks, do)
            return await lane.run(do, client, gone)
        except ApiError as error:
            if error.kind is FULL:
                self.figures.refused()
            raise

    def _uncollected(self, do: Callable[[], Made]) -> Made:
        """Reads long PML. The collector would look at it all again and again, and everybody wait."""
        gc.disable()
        try:
            return do()
        finally:
            gc.enable()
            self._read_long += 1
            if self._read_long % _COLLECTED_EVERY == 0:
                gc.collect()

    def _is_long(self, asked: Asked) -> bool:
        """Whether much PML is read for a request."""
        over = asked.over
        if over is None:
            return False
        stored = "<" not in over.schema
        size = self.schemas.size(over.owner, over.schema) if stored else len(over.schema)
        return size + len(over.prompt or "") > LONG_PML

    async def begin(self, asked: Asked, noted: Request, gone: Gone) -> Running:
        """Takes a request in, and has it answered; whoever gets it closes it.

        Args:
            asked: the request.
            noted: the same as the figures know it.
            gone: waits until nobody listens any more.

        Raises:
            ApiError: there is no place, the model is not served, or the server does not answer now.
            PromptCacheError: what is wrong with the request.
        """
        noted.asks(asked.model)
        self.require_model(asked.model)
        engine = self.engine
        self._enter()
        try:
            arrived = time.perf_counter()
            if self._strict:
                await asyncio.to_thread(self.forget_expired, engine)
            do = partial(submitted, engine, asked, self.schemas, self.limits.least)
            if self._is_long(asked):
                taken = await self._long.run(partial(self._uncollected, do), noted.client, gone, first=True)
            else:
                taken = await asyncio.to_thread(do)
        except CancelledError:
            self._leave()
            noted.failed(GONE)
            raise
        except BaseException:
            self._leave()
            raise
        running = Running(self, taken, asked, noted, arrived)
        self._running.add(running)
        if self._stopped:
            running.cancel()
        return running

    async def work(self, do: Callable[[Listener], Made], gone: Gone) -> Made:
        """Does something that takes a while on a thread of its own, in a place like that of an answer.

        Args:
            do: what to do; the listener says when nobody wants it any more.
            gone: waits until nobody listens any more.

        Raises:
            ApiError: there is no place.
            CancelledError: nobody wants it any more.
        """
        self._enter()
        work = Work()
        self._running.add(work)
        watcher = asyncio.ensure_future(gone())
        watcher.add_done_callback(lambda _: work.cancel())
        try:
            return await asyncio.get_running_loop().run_in_executor(self._workers, work.run, do)
        finally:
            work.cancel()
            watcher.cancel()
            self.left(work)

    def _enter(self) -> None:
        if self._inside >= self.limits.parallel + self.limits.waiting:
            self.figures.refused()
            raise ApiError(
                FULL, f"{self._inside} requests are answered or wait, and no more fit. Try again in a moment."
            )
        self._inside += 1
        self._empty.clear()

    def _leave(self) -> None:
        self._inside -= 1
        if not self._inside:
            self._empty.set()

    def left(self, running: Running | Work) -> None:
        """Takes out a request that has ended."""
        if running in self._running:
            self._running.discard(running)
            self._leave()

    async def drain(self, seconds: float, hurry: asyncio.Event | None = None) -> None:
        """Takes nothing in any more, and waits until all has ended; what has not by then is ended.

        Args:
            seconds: how long it waits.
            hurry: nothing is waited for once it is set.
        """
        self._draining = True
        ended = asyncio.ensure_future(self._empty.wait())
        hurried = asyncio.ensure_future((hurry or asyncio.Event()).wait())
        await asyncio.wait({ended, hurried}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        self._stopped = True
        self.drain_now()
        await asyncio.wait({ended}, timeout=_LAST_WORDS_SECONDS)
        for task in (ended, hurried):
            task.cancel()

    def drain_now(self) -> None:
        """Ends what is under way before its next step; on the loop's own thread."""
        for running in [*self._running]:
            running.cancel()


_WORKERS = 2  # threads for what takes a while and is no answer
_COLLECTED_EVERY = 8  # long documents
_LOOKERS = 2  # for plans and looks at schemas
_LAST_WORDS_SECONDS = 0.5
"""That what was ended has to say so."""


class Work:
    """Something that takes a while and is no answer, until nobody wants it any more."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def cancel(self) -> None:
        """Ends it before its next step; a second time does nothing."""
        self._ended.set()

    def run(self, do: Callable[[Listener], Made]) -> Made:
        """Does it.

        Raises:
            CancelledError: nobody wants it any more.
        """
        if self._ended.is_set():
            raise CancelledError("The client went away before it was begun.")
        return do(Listener(stopped=self._ended.is_set))


class Running:
    """A request that is answered.

    Attributes:
        ticket: of the engine.
        asked: what was asked.
        kept: what became of its marks: at its end, that is.
        seconds: what computing had taken of what it read, by key; known at its end, if its report is wanted.
    """

    def __init__(
        self, service: Service, taken: Submitted, asked: Asked, noted: Request, arrived: float
    ) -> None:
        self.ticket, self.asked, self.kept = taken.ticket, asked, taken.kept
        self.seconds: dict[str, float] = {}
        self._seconds, self._parts = taken.seconds, taken.parts
        self._service, self._request, self._gone = service, noted, False
        self._arrived = arrived
        self._given = 0  # events
        service.figures.begun()

    def cancel(self) -> None:
        """Ends it before its next step; a second time does nothing."""
        self.ticket.cancel()

    async def events(self) -> AsyncIterator[Event]:
        """The engine's events, noted for the figures.

        Raises:
            PromptCacheError: what ended it.
        """
        try:
            async for event in self.ticket:
                self._given += 1
                if isinstance(event, FirstToken):
                    self._request.first((time.perf_counter() - self._arrived) * 1000, Usage.of(event))
                elif isinstance(event, Finished):
                    self._request.done(event.answer)
                    self.kept = as_kept(self.kept, event.answer)
                    if self.asked.report:
                        self.seconds = await asyncio.to_thread(self._seconds, event.answer)
                yield event
        except Exception as error:
            self._request.failed(GONE if self._gone else told_of(error).message)
            raise

    @property
    def text_follows(self) -> bool:
        """Whether the event after the latest of `events` is text, and there already: both go out at once."""
        following = self.ticket.peek(self._given)
        return isinstance(following, Delta) and following.text != ""

    async def answer(self, gone: Gone) -> Answer:
        """The whole answer; cancelled as soon as the client is gone.

        Args:
            gone: waits until nobody listens any more.

        Raises:
            PromptCacheError: what ended it.
        """
        watcher = asyncio.ensure_future(gone())
        watcher.add_done_callback(self._left_alone)
        try:
            async for event in self.events():
                if isinstance(event, Finished):
                    return event.answer
            raise AssertionError("an answer ends with Finished")
        finally:
            watcher.cancel()

    async def parts(self, answer: Answer) -> Said:
        """Tells an answer's text from the calls in it, for which a long prompt is looked through."""
        return await asyncio.to_thread(self._parts, answer) if self.asked.tools else self._parts(answer)

    def _left_alone(self, watcher: asyncio.Future[None]) -> None:
        self._gone = not watcher.cancelled()
        self.ticket.cancel()

    def close(self) -> None:
        """Lets go of it; what has not ended is cancelled. A second time does nothing."""
        self.ticket.cancel()
        self._service.figures.ended(self._request)
        self._service.left(self)
