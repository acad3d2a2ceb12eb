"""The server for other programs, on the studio's own port and with its model.

Its routes have a door of their own (`app/server/http/access.py`); all else is the page's, behind the guard.
It is imported with the engine, when the page is there already: who asks before waits that long.
"""

from __future__ import annotations

import asyncio
import contextlib
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


@dataclass(frozen=True)
class Offer:
    """How other programs are served; as the options of `pml serve`.

    Attributes:
        keys: secrets, one of which a request must bring; empty where all may come.
        origins: sites whose pages may send requests.
        largest: the most bytes of a request's body.
        parallel: requests that are answered at once.
        waiting: requests that may wait besides.
        aliases: further names of the model.
        longest: tokens of an answer where a request does not say it; None as the model's makers have it.
        isolate: whether clients of different keys share nothing.
        strict: whether what is marked is forgotten once its time to live has ended.
        least: tokens that a marked prefix must have to be kept.
        grace: seconds that answers under way have to end.
        operators: secrets with which what tells of all clients can be asked for, and nothing else.
        hosts: further names that a request may call the server by, in small letters.
        promise: settings of reuse that hold for every request, by name.
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


class Api:
    """Answers other programs beside the page; follows the studio from one model to the next.

    Args:
        offer: how they are served.
    """

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self._on = True
        self._service: Service | None = None
        self._app: Application | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._engine: Engine | None = None
        self._computing: list[Engine | None] = []  # one for each request: the engine when it came

    @property
    def service(self) -> Service | None:
        """What is behind the routes; None until the engine's libraries are loaded."""
        return self._service

    @property
    def on(self) -> bool:
        """Whether requests are taken in."""
        return self._on

    def switch(self, on: bool) -> None:
        """Takes requests in from now on, or none; those under way go on. A new start begins with it on."""
        self._on = on
        if self._service is not None:
            self._service.off = not on

    def build(self) -> None:
        """Makes the routes; until there is a model they say that it is being loaded."""
        from app.server.application import application, behind_the_door
        from app.server.core.service import Limits, Service
        from app.server.http.access import LOOPBACK, Access

        offer = self.offer
        self._service = Service(
            Limits(offer.parallel, offer.waiting, offer.least),
            offer.aliases,
            longest=offer.longest,
            isolate=offer.isolate,
            strict=offer.strict,
            promise=offer.promise,
        )
        self._service.off = not self._on
        hosts = LOOPBACK | offer.hosts
        access = Access(offer.keys, hosts, offer.origins, offer.largest, offer.operators)
        self._app = behind_the_door(application(self._service), access)

    def beside(self, page: Application) -> Application:
        """Returns an application that answers other programs by these routes, and all else by the page."""

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

        if scope.get("method") not in WITH_BODY:  # else nothing is computed before all of its body is there
            count()
        try:
            await self._app(scope, received, send)
        finally:
            for engine in counted:
                self._computing.remove(engine)

    # The studio's model (`switching.Listener`)

    def expect(self, choice: ModelChoice) -> Callable[[Engine], None]:
        """Is told what will be loaded; returns what is called with the engine once it answers."""
        del choice

        def there(engine: Engine) -> None:
            if self._service is not None:
                self._service.opened(engine)
            self._engine = engine

        return there

    def leave(self) -> None:
        """Answers that the model is being loaded until there is one again; requests under way go on."""
        if self._service is not None:
            self._service.closed()

    def busy(self, engine: Engine) -> int:
        """How many requests an engine still computes."""
        return sum(one is engine for one in self._computing)

    def stop(self, engine: Engine) -> None:
        """Ends the requests that an engine still computes."""
        if self._service is not None and self._loop is not None and self.busy(engine):
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._service.drain_now)

    def drain(self) -> None:
        """Takes nothing in any more, and lets answers under way end; an interrupt ends them at once."""
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
