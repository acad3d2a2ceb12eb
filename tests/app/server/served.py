"""A server on a real socket in this process, with a tiny model, and the vendors' own clients of it."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import uvicorn

from app.server.application import application, behind_the_door
from app.server.core.service import Limits, Service
from app.server.http.access import Access
from app.server.serving import configured
from engine.engine import Engine
from engine.model.model import Model
from engine.store import Store
from tests.engine.cases import model_of

FAMILY = "llama-gqa"
LONG = "It was a bright cold day in April, and the clocks were striking thirteen. " * 2


class Served:
    """A server that answers."""

    def __init__(self, engine: Engine, service: Service, port: int, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.engine, self.service, self.url = engine, service, f"http://127.0.0.1:{port}"
        self.model = engine.model.name
        self._until_the_end = ExitStack()
        self.http = self._until_the_end.enter_context(httpx.Client(base_url=self.url, timeout=60))

    def close(self) -> None:
        """Closes the clients."""
        self._until_the_end.close()

    def openai(self, **given: Any) -> Any:
        """OpenAI's client, which does not try again by itself."""
        given = {"base_url": f"{self.url}/v1", "api_key": "none", "max_retries": 0, **given}
        return self._until_the_end.enter_context(openai.OpenAI(**given))

    def anthropic(self, **given: Any) -> Any:
        """Anthropic's client, which does not try again by itself."""
        given = {"base_url": self.url, "api_key": "none", "max_retries": 0, **given}
        return self._until_the_end.enter_context(anthropic.Anthropic(**given))

    def async_openai(self) -> Any:
        """The same for asyncio."""
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    def async_anthropic(self) -> Any:
        """The same for asyncio."""
        return anthropic.AsyncAnthropic(base_url=self.url, api_key="none", max_retries=0)


@contextmanager
def served(
    folder: Path,
    *,
    access: Access | None = None,
    limits: Limits | None = None,
    family: str = FAMILY,
    model: Model | None = None,
    clock: Callable[[], float] = time.time,
    **given: Any,
) -> Iterator[Served]:
    """Serves a tiny model until the block ends."""
    service = Service(limits, ("alias",), **{"longest": 16, **given})
    app = behind_the_door(application(service), access or Access())
    with (
        Engine(model or model_of(family), Store.open(folder, clock=clock)) as engine,
        socket.socket() as listening,
        asyncio.Runner() as runner,
    ):
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        server = uvicorn.Server(configured(app))
        loop = runner.get_loop()
        thread = threading.Thread(target=lambda: runner.run(server.serve([listening])), daemon=True)
        thread.start()
        service.opened(engine)
        try:
            with closing(Served(engine, service, listening.getsockname()[1], loop)) as running:
                yield running
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive(), "the server ends"
