"""Connects requests to the engine: queueing, planning, cancelling, draining. Use it from one event loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from app.server.core.caching import expire, prepared, submitted
from app.server.core.limits import tokens_of
from app.server.core.metrics import GONE, Figures, Request
from app.server.core.pml_requests import faults_of
from app.server.core.request import LONGEST_ANSWER, Asked, Defaults
from app.server.core.running import Running, Work
from app.server.core.schema_files import SchemaFiles
from app.server.core.usage import Usage
from app.server.http.errors import DRAINING, FOREIGN, FULL, LOADING, NO_MODEL, OFF, ApiError
from app.server.http.thread_limits import Gone, Lane
from app.server.http.truncate import listed, shown
from app.server.recent.reasons import explain
from app.server.recent.records import MOST_RECORDS, Record, Records
from app.server.recent.why import Why
from engine import Engine
from engine.base.errors import CancelledError
from engine.base.events import Listener
from engine.inference.model_settings import own_settings
from engine.inference.run_settings import RunSettings
from engine.prefix_tree.moved_text import MovedTexts
from engine.prepared import PreparedPrompt

State = Literal["loading", "ok", "draining", "off"]
Made = TypeVar("Made")

LOOKS_WAITING = 64  # maximum number of queued plans and schema lookups
LONG_PML = 50_000
"""Longer PML, in characters, is parsed on a separate lane, because parsing slows other threads."""


@dataclass(frozen=True)
class Limits:
    """Limits of accepted requests."""

    parallel: int = 16  # maximum number of requests answered at once
    waiting: int = 64  # maximum number of queued requests
    least: int = 64  # minimum length in tokens of a stored prefix


class Service:
    """Answers requests with an engine.

    Args:
        limits: the limits of accepted requests.
        names: more names of the model.
        longest: default answer length in tokens; None for the model's own.
        isolate: whether clients never share cached segments.
        strict: whether a time to live is an upper limit, too.
        promise: reuse settings of all requests, by name.
        moves: whether unchanged text behind a changed line is read, approximately.
        keyed: whether clients have keys, and see only their own requests.
        responses: number of the latest responses to hold in memory for `previous_response_id`.
        recent: number of the latest prompts to hold in memory, to explain cache misses; 0 for none.

    Attributes:
        figures: the metrics.
        records: the latest prompts.
        responses: number of responses to hold in memory.
        aliases: more names of the model.
        off: whether the server is switched off. It rejects new requests and finishes current ones.
        created: start time, in seconds since 1970.
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
        keyed: bool = False,
        moves: bool = False,
        recent: int = MOST_RECORDS,
        responses: int = 0,
    ) -> None:
        self.responses = responses
        self._keyed, self._moves = keyed, moves
        self._moved: MovedTexts | None = None
        self._strict, own = strict, {} if longest is None else {"max_new_tokens": longest}
        self._given = {**own, **(promise or {})}  # overrides the model's own settings
        self.limits, self.aliases, self._longest, self._isolate = limits or Limits(), names, longest, isolate
        self.figures, self.records, self.created = Figures(), Records(recent), int(time.time())
        self._engine: Engine | None = None
        self._schemas: SchemaFiles | None = None
        self._defaults = Defaults(longest or LONGEST_ANSWER)
        self.off = self._draining = self._stopped = False
        self._inside = self._read_long = 0
        self._running: set[Running | Work] = set()
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="work")
        self._looks = Lane(_LOOKERS, LOOKS_WAITING, "look")
        self._long = Lane(1, LOOKS_WAITING, "long")  # two parsers at once would slow every answer much more
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def state(self) -> State:
        """Returns the state of the server."""
        if self._draining:
            return "draining"
        return "off" if self.off else "loading" if self._engine is None else "ok"

    @property
    def engine(self) -> Engine:
        """Returns the engine; raises ApiError if the server is loading, switched off or stopping."""
        if self._draining:
            raise ApiError(DRAINING, "The server is stopping. Try again when it is back.")
        if self.off:
            raise ApiError(OFF, "The server is switched off. Switch it on in the studio's Serve page.")
        if self._engine is None:
            raise ApiError(LOADING, "The server is loading its model. Try again in a moment.")
        return self._engine

    @property
    def defaults(self) -> Defaults:
        """Returns the defaults for request fields."""
        return self._defaults

    @property
    def inside(self) -> int:
        """Returns the number of running and queued requests."""
        return self._inside

    @property
    def schemas(self) -> SchemaFiles:
        """Returns the clients' schemas; raises ApiError if the server is loading."""
        if self._schemas is None:
            raise ApiError(LOADING, "The server is loading its model. Try again in a moment.")
        return self._schemas

    def opened(self, engine: Engine) -> None:
        """Starts to use an engine."""
        self._engine, self._schemas = engine, SchemaFiles(engine.store.folder)
        own = {**own_settings(engine.model), **self._given}
        rules, thinking = engine.model.generation.rules, engine.model.chat.thinking
        self._defaults = Defaults(self._longest or LONGEST_ANSWER, own, rules, thinking)
        if self._moves and engine.model.relocatable and engine.answerer.tree is not None:
            max_kl = float(self._given.get("max_kl", RunSettings().max_kl))
            self._moved = MovedTexts(engine.segment_cache, max_kl, engine.idle.offer)

    def closed(self) -> None:
        """Stops accepting requests until `opened`; current requests continue."""
        self._engine = self._moved = None

    def names(self) -> tuple[str, ...]:
        """Returns the names of the model, its own first; none is a path."""
        return (self.engine.model.stored.name, *self.aliases)

    def require_model(self, name: str) -> None:
        """Rejects an unknown model with an ApiError."""
        known, path = self.names(), self.engine.model.name
        if name not in (*known, path, path.replace("\\", "/").rstrip("/").rpartition("/")[2]):
            raise ApiError(
                NO_MODEL,
                f"There is no model {shown(name)} here. Request {listed(known, 'or')}, or add a name: "
                "pml serve --alias NAME.",
                "model",
            )

    def salt(self, given: str | None, client: str) -> str:
        """Returns the salt for a request's segments."""
        return "\n".join(filter(None, (given or "", client if self._isolate else "")))

    def forget_expired(self, engine: Engine) -> None:
        """Removes expired segments if the time to live is an upper limit."""
        if self._strict:
            expire(engine)

    def require_operator(self, operator: bool | None) -> None:
        """Rejects others than operators with an ApiError, if clients are isolated or operators exist."""
        if operator or (operator is None and not self._isolate):
            return
        why = (
            "This covers all clients and requires an operator's key."
            if operator is not None
            else "This covers all clients, which are isolated (--isolate)."
        )
        how = "The operator can set PML_OPERATOR_KEYS and use such a key."
        raise ApiError(FOREIGN, f"{why} {how}")

    def owner(self, client: str) -> str:
        """Returns whose recorded prompts a client sees; "" for those of all."""
        return client if self._keyed else ""

    def why(self, record: Record) -> Why | None:
        """Explains which tokens a recorded prompt did not read."""
        if record.why is None and record.number:
            tokenizer, earlier = self.engine.model.tokenizer, self.records.of(record.client)
            record.why = explain(record, earlier, lambda ids: tokenizer.decode(list(ids)))
        return record.why

    def note(self, record: Record, noted: Request, usage: Usage) -> None:
        """Records the prompt of a request whose first token has come."""
        record.client, record.strict, noted.record = self.owner(noted.client), self._strict, record
        record.approximate = usage.approximate
        self.records.add(record, usage.read)

    async def planned(
        self,
        asked: Asked,
        look: Callable[[Engine, PreparedPrompt], Made],
        client: str,
        gone: Gone,
        *,
        counted: bool = False,
    ) -> Made:
        """Plans a request on a worker thread, without computing, and returns `look` of the plan.

        Raises:
            ApiError: the model or prompt is invalid, the server is not ready, or too many plans wait.
            PromptCacheError: the request is invalid.
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
        """Counts the tokens of a request's prompt, even if the prompt exceeds the window."""
        return await self.planned(
            asked, lambda _, prompt: tokens_of(prompt, asked.settings), client, gone, counted=True
        )

    async def look(self, do: Callable[[], Made], client: str, gone: Gone, *, long: bool = False) -> Made:
        """Runs a function on the lookup threads, which answers never use; `long` ones run one at a time.

        Raises:
            ApiError: too many functions wait.
            CancelledError: the client disconnected before the start.
        """
        try:
            lane, do = (self._long, partial(self._uncollected, do)) if long else (self._looks, do)
            return await lane.run(do, client, gone)
        except ApiError as error:
            if error.kind is FULL:
                self.figures.refused()
            raise

    def _uncollected(self, do: Callable[[], Made]) -> Made:
        """Parses long PML without garbage collection, which would scan it repeatedly and block threads."""
        gc.disable()
        try:
            return do()
        finally:
            gc.enable()
            self._read_long += 1
            if self._read_long % _COLLECTED_EVERY == 0:
                gc.collect()

    def _is_long(self, asked: Asked) -> bool:
        over = asked.over
        if over is None:
            return False
        stored = "<" not in over.schema
        size = self.schemas.size(over.owner, over.schema) if stored else len(over.schema)
        return size + len(over.prompt or "") > LONG_PML

    async def begin(self, asked: Asked, noted: Request, gone: Gone, others: Sequence[Asked] = ()) -> Running:
        """Accepts a request and starts its answer. The caller must close it.

        `others` has further prompts of the request.

        Raises:
            ApiError: the server is full or not ready, or the model is unknown.
            PromptCacheError: the request is invalid.
        """
        noted.asks(asked.model)
        self.require_model(asked.model)
        engine = self.engine
        self._enter()
        try:
            arrived = time.perf_counter()
            if self._strict:
                await asyncio.to_thread(self.forget_expired, engine)
            do = partial(submitted, engine, (asked, *others), self.schemas, self.limits.least, self._moved)
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
        self.figures.begun()
        running = Running(taken, asked, noted, arrived, engine.model, self, partial(self._closed, noted))
        self._running.add(running)
        if self._stopped:
            running.cancel()
        return running

    async def work(self, do: Callable[[Listener], Made], gone: Gone, noted: Request | None = None) -> Made:
        """Runs a slow, cancellable function on a worker thread; it counts as a running request.

        The metrics count it as an answer if it has a record, `noted`.

        Raises:
            ApiError: the server is full.
            CancelledError: the client disconnected.
        """
        self._enter()
        if noted is not None:
            self.figures.begun()
        work = Work()
        self._running.add(work)
        watcher = asyncio.ensure_future(gone())
        watcher.add_done_callback(lambda _: work.cancel())
        try:
            return await asyncio.get_running_loop().run_in_executor(self._workers, work.run, do)
        finally:
            work.cancel()
            watcher.cancel()
            if noted is not None:
                self.figures.ended(noted)
            self.left(work)

    def _enter(self) -> None:
        if self._inside >= self.limits.parallel + self.limits.waiting:
            self.figures.refused()
            raise ApiError(
                FULL,
                f"{self._inside} requests are running or waiting, and no more fit. Try again in a moment.",
            )
        self._inside += 1
        self._empty.clear()

    def _leave(self) -> None:
        self._inside -= 1
        if not self._inside:
            self._empty.set()

    def _closed(self, noted: Request, running: Running) -> None:
        self.figures.ended(noted)
        self.left(running)

    def left(self, running: Running | Work) -> None:
        """Removes an ended request."""
        if running in self._running:
            self._running.discard(running)
            self._leave()

    async def drain(self, seconds: float, hurry: asyncio.Event | None = None) -> None:
        """Stops accepting requests, waits for current ones until timeout or `hurry`, and cancels the rest."""
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
        """Cancels current requests before their next step. Call it on the loop's thread."""
        for running in [*self._running]:
            running.cancel()


_WORKERS = 2  # threads for slow work other than answers
_COLLECTED_EVERY = 8  # long documents
_LOOKERS = 2  # threads for plans and schema lookups
_LAST_WORDS_SECONDS = 0.5  # time for cancelled requests to send their error
