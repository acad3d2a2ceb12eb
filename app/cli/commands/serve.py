"""`pml serve`: serves HTTP APIs for other programs."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn

import click

from app.base.signals import StoppedError
from app.cli.base import streams
from app.cli.base.options import ModelOptions, debug_option, engine_options, plain_model
from app.cli.base.output import reading_bar, say
from app.cli.base.param_types import Whole
from app.cli.base.server_options import offer_options, offered
from app.cli.base.streams import UnwritableError
from engine.base.errors import PromptCacheError

if TYPE_CHECKING:
    from app.studio.model.api import Offer
    from engine import Engine

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command()
@click.argument("name", metavar="[MODEL]", required=False, callback=plain_model)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    envvar="PML_HOST",
    show_envvar=True,
    help="Address to listen on. Other addresses than this machine's own require an API key.",
)
@click.option(
    "--port",
    type=Whole(0, 65535),
    default=8000,
    show_default=True,
    envvar="PML_SERVE_PORT",
    show_envvar=True,
    help="Port to listen on; 0 takes a free one.",
)
@offer_options
@click.option(
    "--studio/--no-studio",
    "studio",
    default=False,
    show_default=True,
    help="Serve the studio's page on the same port, with the same model; on 127.0.0.1 only.",
)
@engine_options
@debug_option
def serve(
    name: str | None,
    host: str,
    port: int,
    studio: bool,
    **given: Any,
) -> None:
    """Serve other programs through the APIs of OpenAI, Anthropic and Ollama.

    MODEL takes the values of --model. The base URL is http://127.0.0.1:8000/v1 for OpenAI's clients, and
    http://127.0.0.1:8000 for Anthropic's. Ctrl-C and SIGTERM wait for running answers; a second signal
    stops them.
    """
    engine_choice = {field.name: given.pop(field.name) for field in fields(ModelOptions)}
    if name is not None:
        engine_choice["model"] = name
    options = ModelOptions(**engine_choice)
    offer = offered(**given)
    if host not in LOOPBACK and not offer.keys:
        raise click.UsageError(
            f"--host {host} can be reached from other machines, so requests need a key: set "
            "PML_API_KEYS, or use --api-keys-file or --api-key."
        )
    if studio:
        if host not in ("127.0.0.1", "localhost"):
            raise click.UsageError(f"The studio is on 127.0.0.1 only: remove --studio, or --host {host}.")
        _with_the_studio(options, port, offer)
        return
    listening = _listening(host, port)
    with listening:
        from app.server.application import application, behind_the_door
        from app.server.core.service import Limits, Service
        from app.server.http.access import LOOPBACK as OWN_NAMES
        from app.server.http.access import Access
        from app.server.serving import StillLoadingError
        from app.server.serving import serve as serve_until_ended

        shown = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        limits = Limits(offer.parallel, offer.waiting, offer.least)
        more: dict[str, Any] = {"isolate": offer.isolate, "strict": offer.strict, "promise": offer.promise}
        more |= {
            "keyed": bool(offer.keys),
            "recent": offer.recent,
            "responses": offer.responses,
            "moves": offer.moves,
        }
        service = Service(limits, offer.aliases, longest=offer.longest, **more)
        names = OWN_NAMES | offer.hosts if host in LOOPBACK else None
        access = Access(offer.keys, names, offer.origins, offer.largest, offer.operators)
        app = behind_the_door(application(service), access)

        def load() -> Engine:
            engine = options.open(parallel=offer.parallel)
            engine.check_when_idle()
            return engine

        def ready() -> None:
            say(_served(service.names()[0], shown))

        say(f"Loading {options.name}; {shown}/health shows when it is ready (Ctrl-C ends it).")
        try:
            serve_until_ended(app, service, listening, load, grace=offer.grace, ready=ready)
        except StillLoadingError as stopped:
            leave_at_once(stopped)


def leave_at_once(stopped: StoppedError) -> NoReturn:
    """Ends the process without waiting for a thread that loads a model."""
    with contextlib.suppress(OSError, UnwritableError):
        say(f"pml: stopped by {stopped}, while the model was loading", err=True)
        streams.flush()
    os._exit(128 + stopped.number)


def _with_the_studio(options: ModelOptions, port: int, offer: Offer) -> None:
    """Serves with the studio's page until a signal."""
    from app.studio import launch

    say(f"Loading {options.name}; the studio's page shows when it is ready (Ctrl-C ends it).")

    def ready(url: str) -> None:
        say(f"{_served(options.name, url)} The studio is at {url}.")

    with reading_bar(aloud=True) as progress:
        launch(
            model=options.name,
            port=port,
            open_browser=False,
            offer=offer,
            ready=ready,
            progress=progress,
            **options.for_engine(),
        )


def _served(name: str, url: str) -> str:
    bases = f"{url}/v1 for OpenAI clients, {url} for Anthropic and Ollama clients"
    return f"Serving {name} at {url}: base URL {bases}."


def _listening(host: str, port: int) -> socket.socket:
    """A bound socket."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # on Windows it would take a port in use
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PromptCacheError(
            f"Port {port} on {host} cannot be used: {error}. Name another with --port."
        ) from error
    return listener
