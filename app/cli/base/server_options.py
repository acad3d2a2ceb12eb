"""Options that `pml serve` and `pml studio` share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from app.cli.base.param_types import Name, Number, Origin, Size, UserPath, Whole
from app.cli.base.setting_options import setting_option
from engine.base.choices import Reuse
from engine.base.errors import PathError
from engine.files.text_files import read_text_file

if TYPE_CHECKING:
    from app.studio.model.api import Offer

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--api-key",
        "api_keys",
        multiple=True,
        metavar="KEY",
        help="A key that requests must send. Repeatable. Visible in the process list; prefer "
        "PML_API_KEYS or --api-keys-file.",
    ),
    click.option(
        "--api-keys-file",
        type=UserPath(path_type=Path),
        metavar="FILE",
        envvar="PML_API_KEYS_FILE",
        show_envvar=True,
        help="A file with one key per line.",
    ),
    click.option(
        "--operator-keys-file",
        type=UserPath(path_type=Path),
        metavar="FILE",
        envvar="PML_OPERATOR_KEYS_FILE",
        show_envvar=True,
        help="A file with one key per line; PML_OPERATOR_KEYS adds more. Only these keys may read /metrics "
        "and the list of segments in memory, which cover all clients.",
    ),
    click.option(
        "--isolate",
        is_flag=True,
        help="Share nothing between API keys, so response times reveal no prompts of other clients. "
        "/metrics then needs an operator key.",
    ),
    click.option(
        "--alias",
        "aliases",
        multiple=True,
        metavar="NAME",
        help="Another name of the model in requests. Repeatable.",
    ),
    click.option(
        "--origin",
        "origins",
        type=Origin(),
        multiple=True,
        metavar="ORIGIN",
        help="A website that may use the server, such as http://localhost:3000. Repeatable.",
    ),
    click.option(
        "--allowed-host",
        "allowed_hosts",
        multiple=True,
        metavar="NAME",
        help="Another Host name to accept, such as host.docker.internal or the name of a proxy. With a "
        "--host that other machines reach, every name is accepted. Repeatable.",
    ),
    click.option(
        "--parallel",
        type=Whole(1, 256),
        default=16,
        show_default=True,
        help="Maximum number of requests answered at once.",
    ),
    click.option(
        "--waiting",
        type=Whole(0, 100_000),
        default=64,
        show_default=True,
        help="Maximum number of waiting requests.",
    ),
    click.option(
        "--min-cache-tokens",
        type=Whole(1, 1_000_000),
        default=64,
        show_default=True,
        help="Minimum tokens of a marked prefix; shorter ones are not stored.",
    ),
    click.option(
        "--strict-ttl",
        is_flag=True,
        help="Delete marked prefixes when their time to live ends, as the vendors do. Default: they stay "
        "while the budget allows.",
    ),
    click.option(
        "--body",
        type=Size(),
        default="32MB",
        show_default=True,
        help="Maximum size of a request body.",
    ),
    click.option(
        "--grace",
        type=Number(0, 3600),
        default=30,
        show_default=True,
        help="Seconds for running answers after a stop signal.",
    ),
    click.option(
        "--max-new-tokens",
        type=Whole(1, 1_000_000),
        help="Answer length in tokens if a request has none. Default: from the model's "
        "generation_config.json, else 1024.",
    ),
    click.option(
        "--modules",
        type=Name(["off", "auto"]),
        default="off",
        show_default=True,
        help="auto reads unchanged text behind a changed line as an earlier request computed it. Answers "
        "can then differ from uncached ones; checks while idle compare them with --max-kl.",
    ),
    click.option(
        "--store-responses",
        type=Whole(0, 100_000),
        default=0,
        show_default=True,
        help="Maximum number of responses held in memory, at most 64 MB, for previous_response_id and "
        "GET /v1/responses/ID. A restart forgets them.",
    ),
    click.option(
        "--recent",
        type=Whole(0, 100_000),
        default=1000,
        show_default=True,
        help="Maximum number of prompts held in memory, to explain cache misses (pml why); at most 64 MB. "
        "0 holds none.",
    ),
    setting_option(
        "reuse",
        help="How requests of other programs reuse segments: by their own scope (off), or by the "
        "cheapest way within --max-kl (auto). The studio's page has its own setting.",
    ),
    setting_option("max_kl"),
)


def offer_options(command: Command) -> Command:
    """Adds the options of `offered`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def offered(
    *,
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
    modules: str,
    recent: int,
    store_responses: int,
    reuse: Reuse,
    max_kl: float,
) -> Offer:
    """Returns the settings of the server.

    Raises:
        click.UsageError: options contradict each other.
        PathError: a file of keys is unreadable or empty.
    """
    from app.studio.model.api import ALIAS, Offer

    if wrong := next((name for name in aliases if not ALIAS.fullmatch(name)), None):
        raise click.UsageError(f"--alias takes letters, digits and . _ - / : @ +, so {wrong!r} is no name.")
    keys = _keys("PML_API_KEYS", api_keys_file, api_keys)
    operators = _keys("PML_OPERATOR_KEYS", operator_keys_file)
    if {*keys} & {*operators}:
        raise click.UsageError(
            "A key is both an operator key and an API key. Give the operator another key, because API keys "
            "give no access to the data of other clients."
        )
    if isolate and not keys:
        raise click.UsageError(
            "--isolate separates clients by key, but there are no keys: set PML_API_KEYS, or use "
            "--api-keys-file or --api-key."
        )
    return Offer(
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
        hosts=_host_names(allowed_hosts),
        promise={"reuse": reuse, "max_kl": max_kl},
        recent=recent,
        responses=store_responses,
        moves=modules == "auto",
    )


def _host_names(given: tuple[str, ...]) -> frozenset[str]:
    """The names of --allowed-host, in lower case."""
    if not given:
        return frozenset()
    from app.server.http.access import HOST_NAME

    for name in given:
        if not HOST_NAME.fullmatch(name):
            raise click.UsageError(
                f"--allowed-host {name} is not a host name. Write only the name, without http:// and port; "
                "an IPv6 address in brackets."
            )
    return frozenset(name.lower() for name in given)


def _keys(variable: str, file: Path | None, given: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The keys of options, environment and file."""
    lines = [*given, *os.environ.get(variable, "").split(",")]
    if file is not None:
        lines += read_text_file(file).splitlines()
        if not any(line.strip() for line in lines):
            raise PathError(f"There is no key in {str(file)!r}. Write one per line.")
    return tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))
