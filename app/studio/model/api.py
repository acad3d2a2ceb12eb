"""The API server for other programs, on the studio's port and with its model.

Its routes have their own auth middleware (`app/server/http/access.py`); the guard protects the page. It is
imported with the engine, after the page starts; earlier requests wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.models.model_choice import ModelChoice
from app.server.http.absolute_urls import is_of_programs, taking_urls

if TYPE_CHECKING:
    from app.server.core.service import Service
    from engine import Engine

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
STEP_SECONDS = 0.05
LAST_SECONDS = 5.0
ALIAS = re.compile(r"[\w./:@+-]{1,100}")


@dataclass(frozen=True)
class Offer:
    """API options; see `pml serve`.

    Attributes:
        keys: API keys; empty if none is needed.
        origins: sites whose pages may send requests.
        largest: the maximum bytes of a request body.
        parallel: requests answered at once.
        waiting: further requests in the queue.
        aliases: further names of the model.
        longest: the default maximum tokens of an answer; None takes the model's default.
        isolate: whether clients with different keys share no cache.
        strict: whether marked prefixes are evicted when their time to live ends.
        least: the minimum tokens of a marked prefix.
        grace: seconds for running answers on shutdown.
        operators: keys for the metrics of all clients only.
        hosts: further host names of the server, in lower case.
        promise: reuse settings of every request, by name.
        moves: whether unchanged text behind a changed line is read, approximately.
        responses: the maximum number of responses held in memory.
        recent: the maximum number of prompts held in memory, to explain cache misses.
    """

    keys: tuple[str, ...] = ()
    origins: frozenset[str] = frozenset()
    largest: int = 32 * 1000 * 1000
    parallel: int = 16
    waiting: int = 64
    aliases: tuple[str, ...] = ()
    longest: int | None = None
    isolate: bool = False
    strict: bool = False
    least: int = 64
    grace: float = 30.0
    operators: tuple[str, ...] = ()
    hosts: frozenset[str] = frozenset()
    promise: Mapping[str, Any] = field(default_factory=dict)
    recent: int = 1000
    responses: int = 0
    moves: bool = False


class Api:
    """Answers other programs alongside the page, across model switches.

    Args:
        offer: the options.

    Attributes:
        own_aliases: names of the model that the user added on the page.
    """

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.own_aliases: tuple[str, ...] = ()
        self._on = True
        self._service: Service | None = None
        self._app: Application | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine: Engine | None = None
        self._computing: list[Engine | None] = []  # each request's engine

    @property
    def service(self) -> Service | None:
        """The service behind the routes; None until the engine's libraries are loaded."""
        return self._service

    @property
    def on(self) -> bool:
        """Whether the API accepts requests."""
        return self._on

    def switch(self, on: bool) -> None:
        """Accepts or rejects new requests; running ones continue. A restart switches it on."""
        self._on = on
        if self._service is not None:
            self._service.off = not on

    @property
    def aliases(self) -> tuple[str, ...]:
        """All further names of the model."""
        return (*self.offer.aliases, *self.own_aliases)

    def add_aliases(self, names: tuple[str, ...]) -> None:
        """Sets the names that the user adds to those of the options."""
        self.own_aliases = names
        if self._service is not None:
            self._service.aliases = self.aliases

    def build(self) -> None:
        """Builds the routes; until a model is loaded they answer that it is loading."""
        from app.server.application import application, behind_the_door
        from app.server.core.service import Limits, Service
        from app.server.http.access import LOOPBACK, Access

        offer = self.offer
        self._service = Service(
            Limits(offer.parallel, offer.waiting, offer.least),
            self.aliases,
            longest=offer.longest,
            isolate=offer.isolate,
            strict=offer.strict,
            promise=offer.promise,
            keyed=bool(offer.keys),
            recent=offer.recent,
            responses=offer.responses,
            moves=offer.moves,
        )
        self._service.off = not self._on
        hosts = LOOPBACK | offer.hosts
        access = Access(offer.keys, hosts, offer.origins, offer.largest, offer.operators)
        self._app = behind_the_door(application(self._service), access)

    def beside(self, page: Application) -> Application:
        """Returns an application that serves these routes and passes everything else to the page."""

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http" and is_of_programs(str(scope.get("path", ""))):
                await self._answer(scope, receive, send)
            else:
                await page(scope, receive, send)

        return taking_urls(application)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._loop = asyncio.get_running_loop()
        while self._app is None:
            await asyncio.sleep(STEP_SECONDS)
        counted: list[Engine | None] = []

        def count() -> None:
            if not counted:
                counted.append(self._engine)
                self._computing.append(self._engine)

        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                count()
            return message

        if scope.get("method") not in WITH_BODY:  # wait for the whole body first
            count()
        try:
            await self._app(scope, received, send)
        finally:
            for engine in counted:
                self._computing.remove(engine)

    # The studio's model (`switching.Listener`)

    def expect(self, choice: ModelChoice) -> Callable[[Engine], None]:
        """Prepares for a model; returns a function to call with its engine."""
        del choice

        def loaded(engine: Engine) -> None:
            if self._service is not None:
                self._service.opened(engine)
            self._engine = engine

        return loaded

    def leave(self) -> None:
        """Answers that the model is loading until the next one; running requests continue."""
        if self._service is not None:
            self._service.closed()

    def busy(self, engine: Engine) -> int:
        """Returns the number of running requests of an engine."""
        return sum(running is engine for running in self._computing)

    def stop(self, engine: Engine) -> None:
        """Stops the running requests of an engine."""
        if self._service is not None and self._loop is not None and self.busy(engine):
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._service.drain_now)

    def drain(self) -> None:
        """Rejects new requests and waits for running answers; an interrupt stops them at once."""
        service, loop = self._service, self._loop
        if service is None or loop is None or loop.is_closed():
            return
        drained: Future[None] = asyncio.run_coroutine_threadsafe(service.drain(self.offer.grace), loop)
        try:
            drained.result()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(service.drain_now)
            with contextlib.suppress(TimeoutError):
                drained.result(LAST_SECONDS)
