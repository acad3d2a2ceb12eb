"""The studio: a page on 127.0.0.1 to write a schema, pick modules, and see what caching does."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import socket
import time
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.lean import starting, without_stubs
from app.stopping import StoppedError
from engine.errors import PromptCacheError
from engine.places import user_data

if TYPE_CHECKING:
    import gradio

    from app.cli.output import Progress
    from app.studio.handed import Handed
    from app.studio.opening import Opening
    from engine import Engine

__all__ = ["Studio", "launch"]

HOST = "127.0.0.1"
_A_DAY_SECONDS = 86400.0
HOST_NAMES = frozenset({"127.0.0.1", "localhost"})


@dataclass(frozen=True)
class Studio:
    """A running studio.

    Attributes:
        url: the page's address.
    """

    url: str
    _page: gradio.Blocks
    _stack: contextlib.ExitStack

    def close(self) -> None:
        """Stops serving the page, and takes no more runs of the command line."""
        self._stack.close()

    def wait(self) -> None:
        """Waits until the studio is stopped."""
        try:
            while True:
                time.sleep(_A_DAY_SECONDS)
        except StoppedError:
            raise
        except KeyboardInterrupt:  # as one ends it
            return


def launch(
    *,
    model: str = "demo",
    port: int = 7860,
    open_browser: bool = True,
    schemas_dir: Path | None = None,
    data_dir: Path | None = None,
    block: bool = True,
    **engine_options: Any,
) -> Studio:
    """Opens the studio on this machine only.

    Args:
        model: the model's name; see `Engine.open`.
        port: 0 takes any free port.
        open_browser: show the page in the user's browser.
        schemas_dir: a folder of the user's documents to open from and save to.
        data_dir: the folder of drafts; by default the user's data folder.
        block: wait until the studio is stopped.
        engine_options: options of `Engine.open`: device, dtype, weights, quantize, cache_dir, verify,
            memory, progress.

    Raises:
        PromptCacheError: the port is in use, or a folder cannot be used.
        ModelError: the model cannot be loaded.
        StoreError: the segment store cannot be opened.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    from app.handover.presence import Presence
    from app.handover.terms import Held, Terms, endings, folder_stamp

    with without_stubs():
        from app.studio import page as pages
    from app.studio.drafts import Drafts
    from app.studio.folder import Folder
    from app.studio.handed import Handed
    from app.studio.opening import Opening
    from app.studio.parts import Parts
    from app.studio.samples import Library

    chosen = free_port(port)
    if schemas_dir is not None and not schemas_dir.is_dir():
        raise PromptCacheError(
            f"The schemas folder {str(schemas_dir)!r} is no folder. Name another with --schemas."
        )
    drafts = Drafts(data_dir or user_data())
    opening, handed = Opening(), Handed()
    page = pages.build(Parts.of(opening, drafts, Library(Folder(schemas_dir))))
    given = {name: value for name, value in engine_options.items() if name != "progress"}
    with contextlib.ExitStack() as stack:
        studio = _served(page, chosen, handed, stack)
        if open_browser:
            webbrowser.open(studio.url)
        terms, ends = Terms.of(model, **given), endings(model)
        engine = _opened(model, opening, engine_options.get("progress"), given)
        # What is loaded by now stays: without it the collector pauses for tens of milliseconds, not hundreds.
        gc.collect()
        gc.freeze()
        held = Held(
            *(terms, engine.model.device, engine.model.dtype, engine.model.fingerprint),
            *(ends or endings(model), folder_stamp(terms.cache_dir)),  # a model that was fetched is there now
        )
        presence = Presence(chosen, held)
        handed.open(engine, presence)
        opening.finish(engine)
        stack.enter_context(presence.told())
        if block:
            studio.wait()
        else:
            atexit.register(stack.pop_all().close)
    return studio


def _served(page: gradio.Blocks, port: int, handed: Handed, stack: contextlib.ExitStack) -> Studio:
    """Serves a page on this machine only, until the stack is closed."""
    from app.studio import page as pages

    assets = pages.assets_folder()
    _, url, _ = page.queue(default_concurrency_limit=4).launch(
        server_name=HOST,
        server_port=port,
        share=False,
        quiet=True,
        prevent_thread_lock=True,
        ssr_mode=False,
        run_history=False,
        footer_links=[],
        show_error=True,
        head=pages.head(pages.assets_path(assets)),
        theme=pages.theme(),
        app_kwargs=options(assets, handed),
    )
    stack.callback(page.close, verbose=False)
    return Studio(url.rstrip("/"), page, stack)


def _opened(model: str, opening: Opening, told: Progress | None, given: dict[str, Any]) -> Engine:
    """Loads the model; the page and who started the studio are told how far that is."""

    def progress(done: int, total: int, what: str) -> None:
        opening.progress(done, total, what)
        if told is not None:
            told(done, total, what)

    with starting():
        from engine import Engine

        return Engine.open(model, progress=progress, **given)


def options(assets: Path, handed: Handed) -> dict[str, Any]:
    """What the server is made with: the page's own files, and the guard before everything."""
    from starlette.middleware import Middleware
    from starlette.routing import Mount
    from starlette.staticfiles import StaticFiles

    from app.studio.guard import Guard
    from app.studio.page import assets_path

    path = assets_path(assets)
    return {
        "routes": [Mount(path, StaticFiles(directory=assets)), *handed.routes()],
        "middleware": [Middleware(Guard, hosts=HOST_NAMES, assets=path)],
    }


def free_port(port: int) -> int:
    """The port itself if nobody listens on it, or any free one for 0.

    Raises:
        PromptCacheError: the port is in use or not allowed.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if os.name == "posix":  # elsewhere it would take a port that somebody listens on
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise PromptCacheError(
                f"Port {port} on {HOST} cannot be used: {error}. Name another with --port."
            ) from error
        return int(probe.getsockname()[1])
