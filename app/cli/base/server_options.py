"""How other programs are served: options that `pml serve` and `pml studio` share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from app.cli.base.param_types import Number, Origin, Size, UserPath, Whole
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
        help="A key that requests must send; may be repeated. Visible in the process list; prefer "
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
        help="A file with one key per line, or PML_OPERATOR_KEYS. Only these keys may read /metrics and "
        "the list of segments in memory, which cover all clients.",
    ),
    click.option(
        "--isolate",
        is_flag=True,
        help="Share nothing between API keys, so no client can time the prompts of another. /metrics then "
        "needs an operator key.",
    ),
    click.option(
        "--alias",
        "aliases",
        multiple=True,
        metavar="NAME",
        help="A further name of the model in requests.",
    ),
    click.option(
        "--origin",
        "origins",
        type=Origin(),
        multiple=True,
        metavar="ORIGIN",
        help="A website that may use the server, such as http://localhost:3000.",
    ),
    click.option(
        "--allowed-host",
        "allowed_hosts",
        multiple=True,
        metavar="NAME",
        help="A further Host name to accept, such as host.docker.internal or the name of a proxy. With a "
        "--host that other machines reach, every name is accepted.",
    ),
    click.option(
        "--parallel",
        type=Whole(1, 256),
        default=16,
        show_default=True,
        help="Requests that are answered at once.",
    ),
    click.option(
        "--waiting",
        type=Whole(0, 100_000),
        default=64,
        show_default=True,
        help="Further requests that may wait.",
    ),
    click.option(
        "--min-cache-tokens",
        type=Whole(1, 1_000_000),
        default=64,
        show_default=True,
        help="Shorter marked prefixes are not stored.",
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
        help="The largest request body.",
    ),
    click.option(
        "--grace",
        type=Number(0, 3600),
        default=30,
        show_default=True,
        help="Seconds for running answers after the server is told to stop.",
    ),
    click.option(
        "--max-new-tokens",
        type=Whole(1, 1_000_000),
        help="Longest answer where a request does not say it, in tokens. Default: what the model's "
        "generation_config.json says, else 1024.",
    ),
    setting_option(
        "reuse",
        help="How requests of other programs reuse segments: by their own scope (off), or by the "
        "cheapest way within --max-kl (auto). The studio's page has a setting of its own.",
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
    reuse: Reuse,
    max_kl: float,
) -> Offer:
    """Returns how other programs are served.

    Raises:
        click.UsageError: options contradict one another.
        PathError: a file of keys cannot be read, or holds none.
    """
    from app.studio.model.api import Offer

    keys = _keys("PML_API_KEYS", api_keys_file, api_keys)
    operators = _keys("PML_OPERATOR_KEYS", operator_keys_file)
    if {*keys} & {*operators}:
        raise click.UsageError(
            "A key is an operator's and an API key at once. Give the operator another one: with an API key "
            "anybody can be answered, and not ask about others."
        )
    if isolate and not keys:
        raise click.UsageError(
            "--isolate sets apart who sends different keys, and there are none: set PML_API_KEYS, or use "
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
    )


def _host_names(given: tuple[str, ...]) -> frozenset[str]:
    """The names of --allowed-host, in small letters.

    Raises:
        click.UsageError: one has more than a name.
    """
    if not given:
        return frozenset()
    from app.server.http.access import HOST_NAME

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
