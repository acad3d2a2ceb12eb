"""The studio: a page on 127.0.0.1 to write a schema, pick modules and inspect caching."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import socket
import threading
import time
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.base.fast_imports import starting, without_stubs
from app.base.signals import StoppedError
from engine.base.errors import PromptCacheError
from engine.files.places import user_data

if TYPE_CHECKING:
    import gradio
    import uvicorn

    from app.studio.model.api import Api, Offer
    from app.studio.model.engine_loader import Opening
    from app.studio.model.remote_runs import Handed
    from app.studio.web.jobs import Jobs
    from engine import Engine
    from engine.inference.step_lock import Progress

__all__ = ["Studio", "launch"]

Ready = Callable[[str], None]

HOST = "127.0.0.1"
_A_DAY_SECONDS = 86400.0
_START_SECONDS = 30.0
_END_SECONDS = 5.0
HOST_NAMES = frozenset({"127.0.0.1", "localhost"})


@dataclass(frozen=True)
class Studio:
    """A running studio.

    Attributes:
        url: the page's address.
    """

    url: str
    _stack: contextlib.ExitStack

    def close(self) -> None:
        """Stops the page's server and rejects further runs of the command line."""
        self._stack.close()

    def wait(self) -> None:
        """Blocks until the studio stops."""
        try:
            while True:
                time.sleep(_A_DAY_SECONDS)
        except StoppedError:
            raise
        except KeyboardInterrupt:  # Ctrl-C stops the studio
            return


def launch(
    *,
    model: str = "demo",
    port: int = 7860,
    open_browser: bool = True,
    schemas_dir: Path | None = None,
    data_dir: Path | None = None,
    block: bool = True,
    offer: Offer | None = None,
    ready: Ready = lambda _url: None,
    **engine_options: Any,
) -> Studio:
    """Opens the studio on this machine only.

    Args:
        model: the model's name; see `Engine.open`.
        port: 0 takes any free port.
        open_browser: show the page in the user's browser.
        schemas_dir: the folder of the user's documents.
        data_dir: the folder of the user's database; the user's data folder by default.
        block: wait until the studio stops.
        offer: API options for other programs on the same port; the defaults of `pml serve` by default.
        ready: called with the page's address once the model is loaded.
        engine_options: options of `Engine.open`: device, dtype, weights, quantize, cache_dir, verify, memory,
            progress.

    Raises:
        PromptCacheError: the port is in use, or a folder cannot be used.
        ModelError: the model cannot be loaded.
        StoreError: the segment store cannot be opened.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    with without_stubs():
        from app.studio import layout as pages
    from app.models.model_choice import ModelChoice
    from app.studio.database import UserDatabase
    from app.studio.documents.folder import Folder
    from app.studio.documents.samples import Library
    from app.studio.model.api import Api, Offer
    from app.studio.model.engine_loader import Opening
    from app.studio.model.model_switcher import Everybody
    from app.studio.model.presence import Announcing
    from app.studio.model.remote_runs import Handed
    from app.studio.workspace.page_state import Parts

    chosen = free_port(port)
    if schemas_dir is not None and not schemas_dir.is_dir():
        raise PromptCacheError(
            f"The schemas folder {str(schemas_dir)!r} is not a folder. Name another with --schemas."
        )
    database = UserDatabase(data_dir or user_data())
    opening, handed, api = Opening(), Handed(), Api(offer or Offer())
    parts = Parts.of(opening, database, Library(Folder(schemas_dir)), api)
    page = pages.build(parts)
    options = {name: value for name, value in engine_options.items() if name != "progress"}
    choice = ModelChoice.of(model, options)
    common = {name: value for name, value in options.items() if name not in choice.options}
    with contextlib.ExitStack() as stack:
        studio = _served(page, chosen, parts.jobs, handed, api, stack)
        if open_browser:
            webbrowser.open(studio.url)
        stack.callback(api.drain)
        announcing = Announcing(chosen, handed, common)
        stack.callback(announcing.leave)
        parts.switching.listener = Everybody((announcing, api))
        loaded = parts.switching.listener.expect(choice)
        stack.callback(parts.switching.close)
        stack.callback(parts.jobs.stop_all)  # event streams must end before the server stops

        def begin(engine: Engine) -> None:
            # Freezing loaded objects shortens collector pauses to tens of milliseconds.
            gc.collect()
            gc.freeze()
            loaded(engine)
            parts.switching.begun(engine, choice, common)

        if offer is not None and offer.parallel != Offer().parallel:  # else batches choose it
            parts.switching.bounds = {"parallel": offer.parallel}
        opened = {**options, **parts.switching.bounds}
        begin(_opened(model, opening, api, engine_options.get("progress"), opened))
        ready(studio.url)
        if block:
            studio.wait()
        else:
            studio = replace(studio, _stack=stack.pop_all())
            atexit.register(studio.close)
    return studio


def _served(
    page: gradio.Blocks, port: int, jobs: Jobs, handed: Handed, api: Api, stack: contextlib.ExitStack
) -> Studio:
    """Serves the page and the API on this machine until the stack is closed."""
    import uvicorn
    from fastapi import FastAPI
    from gradio import mount_gradio_app

    from app.studio import layout as pages
    from app.studio.web.delivery import Delivery

    assets = pages.assets_folder()
    mounted = mount_gradio_app(
        FastAPI(docs_url=None, redoc_url=None, openapi_url=None),
        page,
        path="/",
        server_name=HOST,
        server_port=port,
        run_history=False,
        footer_links=[],
        show_error=True,
        ssr_mode=False,
        theme=pages.theme(),
        app_kwargs=options(assets, jobs, handed),
    )
    path = pages.assets_path(assets)
    delivered = Delivery(mounted, path, pages.head(assets, path), pages.start(assets, path))
    config = uvicorn.Config(
        api.beside(delivered), HOST, port, log_level="warning", access_log=False, server_header=False
    )
    server = uvicorn.Server(config)
    stack.callback(_begun(server))
    page._queue.close()  # the page uses no Gradio events; its queue wakes a thousand times a second
    return Studio(f"http://{HOST}:{port}", stack)


def _begun(server: uvicorn.Server) -> Callable[[], None]:
    """Starts a server in its own thread; returns a function that stops it.

    Raises:
        PromptCacheError: the server cannot start.
    """
    thread = threading.Thread(target=server.run, name="server", daemon=True)
    thread.start()
    until = time.monotonic() + _START_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > until:
            raise PromptCacheError(
                f"The server cannot start on port {server.config.port}. Try another --port."
            )
        time.sleep(0.001)

    def end() -> None:
        server.should_exit = True
        thread.join(_END_SECONDS)

    return end


def _opened(model: str, opening: Opening, api: Api, told: Progress | None, given: dict[str, Any]) -> Engine:
    """Loads the model and reports progress to the page and the caller."""

    def progress(done: int, total: int, what: str) -> None:
        opening.progress(done, total, what)
        if told is not None:
            told(done, total, what)

    with starting():
        from engine import Engine

        api.build()
        engine = Engine.open(model, progress=progress, **given)
        engine.check_when_idle()
        return engine


def options(assets: Path, jobs: Jobs, handed: Handed) -> dict[str, Any]:
    """Returns server options: the page's files, plotly's files and the access guard."""
    import plotly
    from starlette.middleware import Middleware
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles

    from app.studio.layout import assets_path
    from app.studio.web.event_stream import Following
    from app.studio.web.guard import Guard

    path = assets_path(assets)
    return {
        "routes": [
            Mount(f"{path}/plotly", StaticFiles(directory=Path(plotly.__path__[0]) / "package_data")),
            Mount(path, StaticFiles(directory=assets)),
            *Following(jobs, path).routes(),
            *handed.routes(),
        ],
        "middleware": [Middleware(Guard, hosts=HOST_NAMES, assets=path)],
    }


def free_port(port: int) -> int:
    """Returns the port if it is free, or any free port for 0.

    Raises:
        PromptCacheError: the port is in use or not allowed.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if os.name == "posix":  # on other systems the bind would succeed on a port in use
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise PromptCacheError(
                f"Port {port} on {HOST} cannot be used: {error}. Name another with --port."
            ) from error
        return int(probe.getsockname()[1])
