"""`pml serve`: the engine for other programs."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from app.cli import streams
from app.cli.options import ModelOptions, debug_option, engine_options
from app.cli.output import reading_bar, say
from app.cli.param_types import Number, Origin, Size, UserPath, Whole
from app.cli.streams import UnwritableError
from app.stopping import StoppedError
from engine.errors import PathError, PromptCacheError
from engine.pml.text_files import read_text_file

if TYPE_CHECKING:
    from app.studio.api import Offer
    from engine import Engine

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@click.command()
@click.argument("name", metavar="[MODEL]", required=False)
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
@click.option(
    "--api-key",
    "api_keys",
    multiple=True,
    metavar="KEY",
    help="A key that requests must bring; may be given several times. Others see it in the list of "
    "processes: better set PML_API_KEYS, or use --api-keys-file.",
)
@click.option(
    "--api-keys-file",
    type=UserPath(path_type=Path),
    metavar="FILE",
    envvar="PML_API_KEYS_FILE",
    show_envvar=True,
    help="A file with a key in each line.",
)
@click.option(
    "--operator-keys-file",
    type=UserPath(path_type=Path),
    metavar="FILE",
    envvar="PML_OPERATOR_KEYS_FILE",
    show_envvar=True,
    help="A file with a key in each line, or PML_OPERATOR_KEYS: with one of them, and no other, /metrics and "
    "the list of segments in memory are told, which are one for all clients.",
)
@click.option(
    "--isolate",
    is_flag=True,
    help="Share nothing between API keys, so that nobody can time another's prompts. What tells of all "
    "clients is told with an operator's key alone.",
)
@click.option(
    "--alias", "aliases", multiple=True, metavar="NAME", help="A further name that requests may ask for."
)
@click.option(
    "--origin",
    "origins",
    type=Origin(),
    multiple=True,
    metavar="ORIGIN",
    help="A site whose pages may use the server, as http://localhost:3000.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A further name that requests may call the server by, as host.docker.internal or that of a proxy. "
    "With a --host that other machines reach, every name is allowed.",
)
@click.option(
    "--parallel",
    type=Whole(1, 256),
    default=16,
    show_default=True,
    help="Requests that are answered at once.",
)
@click.option(
    "--waiting", type=Whole(0, 100_000), default=64, show_default=True, help="Requests that may wait besides."
)
@click.option(
    "--min-cache-tokens",
    type=Whole(1, 1_000_000),
    default=64,
    show_default=True,
    help="A marked prefix of fewer tokens is not kept.",
)
@click.option(
    "--strict-ttl",
    is_flag=True,
    help="Forget what is marked once its time to live has ended, as the vendors do; else it stays while "
    "there is room.",
)
@click.option("--body", type=Size(), default="32MB", show_default=True, help="The most bytes of a request.")
@click.option(
    "--grace",
    type=Number(0, 3600),
    default=30,
    show_default=True,
    help="Seconds that answers under way have to end once the server is told to stop.",
)
@click.option(
    "--max-new-tokens",
    type=Whole(1, 1_000_000),
    help="Longest answer where a request does not say it, in tokens. Default: what the model's "
    "generation_config.json says, else 1024.",
)
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
    api_keys: tuple[str, ...],
    api_keys_file: Path | None,
    operator_keys_file: Path | None,
    isolate: bool,
    strict_ttl: bool,
    aliases: tuple[str, ...],
    origins: tuple[str, ...],
    allowed_hosts: tuple[str, ...],
    parallel: int,
    waiting: int,
    min_cache_tokens: int,
    body: int,
    grace: float,
    max_new_tokens: int | None,
    studio: bool,
    **engine_choice: Any,
) -> None:
    """Answer other programs, in the dialects of OpenAI and of Anthropic.

    MODEL is named as in --model. Clients are given http://127.0.0.1:8000/v1 (OpenAI's) or http://127.0.0.1:8000
    (Anthropic's) as base URL. Ctrl-C and SIGTERM let answers under way end; a second one ends them.
    """
    if name is not None:
        engine_choice["model"] = name
    options = ModelOptions(**engine_choice)
    keys = _keys("PML_API_KEYS", api_keys_file, api_keys)
    operators = _keys("PML_OPERATOR_KEYS", operator_keys_file)
    if {*keys} & {*operators}:
        raise click.UsageError(
            "A key is an operator's and an API key at once. Give the operator another one: with an API key "
            "anybody can be answered, and not ask about others."
        )
    if host not in LOOPBACK and not keys:
        raise click.UsageError(
            f"--host {host} can be reached from other machines, so requests must bring a key: set "
            "PML_API_KEYS, or use --api-keys-file or --api-key."
        )
    if isolate and not keys:
        raise click.UsageError(
            "--isolate sets apart who sends different keys, and there are none: set PML_API_KEYS, or use "
            "--api-keys-file or --api-key."
        )
    hosts = _host_names(allowed_hosts)
    if studio:
        if host not in ("127.0.0.1", "localhost"):
            raise click.UsageError(f"The studio is on 127.0.0.1 only: leave --studio out, or --host {host}.")
        from app.studio.api import Offer

        offer = Offer(
            keys,
            frozenset(origins),
            body,
            parallel,
            waiting,
            aliases,
            longest=max_new_tokens,
            isolate=isolate,
            strict=strict_ttl,
            least=min_cache_tokens,
            grace=grace,
            operators=operators,
            hosts=hosts,
        )
        _with_the_studio(options, port, offer)
        return
    listening = _listening(host, port)
    with listening:
        from app.server.access import LOOPBACK as OWN_NAMES
        from app.server.access import Access
        from app.server.application import application, behind_the_door
        from app.server.service import Limits, Service
        from app.server.serving import StillLoadingError
        from app.server.serving import serve as serve_until_ended

        shown = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        limits = Limits(parallel, waiting, min_cache_tokens)
        service = Service(limits, aliases, longest=max_new_tokens, isolate=isolate, strict=strict_ttl)
        known = OWN_NAMES | hosts if host in LOOPBACK else None
        access = Access(keys, known, frozenset(origins), body, operators)
        app = behind_the_door(application(service), access)

        def load() -> Engine:
            return options.open(parallel=parallel)

        def ready() -> None:
            say(_served(options, shown))

        say(f"Loading {options.name}; {shown}/health says when it answers (Ctrl-C ends it).")
        try:
            serve_until_ended(app, service, listening, load, grace=grace, ready=ready)
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
        say(f"{_served(options, url)} The studio is at {url}.")

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


def _served(options: ModelOptions, url: str) -> str:
    return f"Serving {options.name} at {url}: OpenAI's clients take {url}/v1, Anthropic's {url}."


def _host_names(given: tuple[str, ...]) -> frozenset[str]:
    """The names of --allowed-host, in small letters.

    Raises:
        click.UsageError: one has more than a name.
    """
    if not given:
        return frozenset()
    from app.server.access import HOST_NAME

    for name in given:
        if not HOST_NAME.fullmatch(name):
            raise click.UsageError(
                f"--allowed-host {name} is not a name of a host. Write the name alone, without http:// and a "
                "port; an IPv6 address in brackets."
            )
    return frozenset(name.lower() for name in given)


def _keys(variable: str, file: Path | None, given: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The keys of options, environment and file."""
    lines = [*given, *os.environ.get(variable, "").split(",")]
    if file is not None:
        lines += read_text_file(file).splitlines()
        if not any(line.strip() for line in lines):
            raise PathError(f"There is no key in {str(file)!r}. Write one in each line.")
    return tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))


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
