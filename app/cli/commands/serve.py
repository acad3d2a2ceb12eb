"""`pml serve`: the engine for other programs."""

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
    help="Address to listen on. Any but this machine's own needs an API key.",
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
    """Answer other programs, in the dialects of OpenAI and of Anthropic.

    MODEL is named as in --model. Clients are given http://127.0.0.1:8000/v1 (OpenAI's) or http://127.0.0.1:8000
    (Anthropic's) as base URL. Ctrl-C and SIGTERM let answers under way end; a second one ends them.
    """
    engine_choice = {one.name: given.pop(one.name) for one in fields(ModelOptions)}
    if name is not None:
        engine_choice["model"] = name
    options = ModelOptions(**engine_choice)
    offer = offered(**given)
    if host not in LOOPBACK and not offer.keys:
        raise click.UsageError(
            f"--host {host} can be reached from other machines, so requests must bring a key: set "
            "PML_API_KEYS, or use --api-keys-file or --api-key."
        )
    if studio:
        if host not in ("127.0.0.1", "localhost"):
            raise click.UsageError(f"The studio is on 127.0.0.1 only: leave --studio out, or --host {host}.")
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
        service = Service(limits, offer.aliases, longest=offer.longest, **more)
        known = OWN_NAMES | offer.hosts if host in LOOPBACK else None
        access = Access(offer.keys, known, offer.origins, offer.largest, offer.operators)
        app = behind_the_door(application(service), access)

        def load() -> Engine:
            engine = options.open(parallel=offer.parallel)
            engine.check_when_idle()
            return engine

        def ready() -> None:
            say(_served(service.names()[0], shown))

        say(f"Loading {options.name}; {shown}/health says when it answers (Ctrl-C ends it).")
        try:
            serve_until_ended(app, service, listening, load, grace=offer.grace, ready=ready)
        except StillLoadingError as stopped:
            leave_at_once(stopped)


def leave_at_once(stopped: StoppedError) -> NoReturn:
    """Ends the process although a thread loads a model, which would be waited for; nothing is held yet."""
    with contextlib.suppress(OSError, UnwritableError):
        say(f"pml: stopped by {stopped}, while the model was loading", err=True)
        streams.flush()
    os._exit(128 + stopped.number)


def _with_the_studio(options: ModelOptions, port: int, offer: Offer) -> None:
    """Serves with the studio's page, until it is ended."""
    from app.studio import launch

    say(f"Loading {options.name}; the studio's page says when it answers (Ctrl-C ends it).")

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
    return f"Serving {name} at {url}: OpenAI's clients take {url}/v1, Anthropic's {url}."


def _listening(host: str, port: int) -> socket.socket:
    """A socket that is bound.

    Raises:
        PromptCacheError: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # elsewhere it would take a port that somebody listens on
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise PromptCacheError(
            f"Port {port} on {host} cannot be used: {error}. Name another with --port."
        ) from error
    return made
