"""Shared options, each also available as an environment variable `PML_*`."""

from __future__ import annotations

import datetime
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from app.base.fast_imports import starting
from app.cli.base.output import Console, reading_bar
from app.cli.base.param_types import DOCUMENT, Name, Size, UserPath
from engine.base.choices import DEVICES, QUANTIZATIONS, WEIGHTS

if TYPE_CHECKING:
    from engine import Engine
    from engine.model.model import Model

Command = TypeVar("Command", bound=Callable[..., Any])

BUNDLED = "demo"


@dataclass(frozen=True)
class ModelOptions:
    """Options for the model, its device and its store."""

    model: str | None  # a name; None for the default
    device: str = "auto"  # `auto`, `cpu`, `cuda` or `mps`
    dtype: str = "auto"  # `auto`, `fp32`, `bf16` or `fp16`
    cache_dir: Path | None = None  # folder of the store; None for the user's cache folder
    verify: Any = "first"  # when the digest of a stored file is checked
    memory: int | None = None  # limit in bytes of segments in memory; None for the engine's default
    date: datetime.datetime | None = None  # the date in chat templates; None for today
    weights: Any = "auto"  # `auto`, `packed` or `plain`
    quantize: Any = "none"  # `none`, `int8` or `int4`

    @property
    def name(self) -> str:
        """Returns the model's name; by default the real model if it is installed, else the bundled one."""
        return self.model or default_model()

    @property
    def loading(self) -> dict[str, Any]:
        """Returns the arguments of `engine.model.loading.load`."""
        return {name: getattr(self, name) for name in ("device", "dtype", "weights", "quantize")}

    def open(self, *, deterministic: bool = False, parallel: int | None = None) -> Engine:
        """Loads the model and opens the store.

        Args:
            deterministic: whether batch prompts are computed one by one.
            parallel: maximum number of concurrent batch prompts; None for the engine's default.

        Raises:
            ModelError: the model cannot be loaded.
            StoreError: the cache folder cannot be used.
        """
        _quiet_hub()
        with starting():
            from engine import Engine

            with reading_bar() as progress:
                arguments = self.for_engine()
                arguments |= {"deterministic": deterministic, "parallel": parallel}
                return Engine.open(self.name, progress=progress, **arguments)

    def load(self) -> Model:
        """Loads the model without a store; raises ModelError if it cannot be loaded."""
        _quiet_hub()
        with starting():
            from engine.model.loading import load

            return load(
                self.name,
                device=self.device,
                dtype=self.dtype,
                weights=self.weights,
                quantize=self.quantize,
            )

    def for_engine(self) -> dict[str, Any]:
        """Returns the arguments of `Engine.open` other than the model's name."""
        arguments = {
            "device": self.device,
            "dtype": self.dtype,
            "weights": self.weights,
            "quantize": self.quantize,
            "cache_dir": self.cache_dir,
            "verify": self.verify,
            "date": self.date.date() if self.date else None,
        }
        return arguments if self.memory is None else {**arguments, "memory": self.memory}


def default_model() -> str:
    """Returns the default model."""
    from engine.checkpoint.model_catalogue import DEFAULT, here

    return DEFAULT if here(DEFAULT) is not None else BUNDLED


def token_counter(model: str | None) -> Callable[[str], int]:
    """Returns a token counter without reading weights; raises ModelError if the model is unusable."""
    _quiet_hub()
    with starting():
        from engine.model.loading import load_tokenizer

        tokenizer = load_tokenizer(model or default_model())
    return lambda text: len(tokenizer.plain(text))


def _quiet_hub() -> None:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def plain_model(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Expands a model's name; None without one."""
    from app.models.model_choice import plain_name

    return None if value is None else plain_name(value) or None


model_option = click.option(
    "--model",
    callback=plain_model,
    envvar="PML_MODEL",
    show_envvar=True,
    metavar="NAME_OR_PATH",
    help="A local folder or GGUF file, a Hugging Face id, or random:SHAPE (random weights, for timing). "
    "Default: smollm2 once `pml models get smollm2` has fetched it, else the bundled demo model.",
)
_DEVICE = click.option(
    "--device",
    type=Name([*DEVICES]),
    default="auto",
    envvar="PML_DEVICE",
    show_envvar=True,
    show_default=True,
    help="Where the model runs.",
)
_DTYPE = click.option(
    "--dtype",
    type=Name(["auto", "fp32", "bf16", "fp16"]),
    default="auto",
    envvar="PML_DTYPE",
    show_envvar=True,
    show_default=True,
    help="Number format of weights and segments.",
)
_WEIGHTS = click.option(
    "--weights",
    type=Name([*WEIGHTS]),
    default="auto",
    envvar="PML_WEIGHTS",
    show_envvar=True,
    show_default=True,
    help="Layout of weights in memory: packed for the processor, plain, or packed if measured to be faster.",
)
quantize_option = click.option(
    "--quantize",
    type=Name([*QUANTIZATIONS]),
    default="none",
    envvar="PML_QUANTIZE",
    show_envvar=True,
    show_default=True,
    help="Round weights to fewer bits when the model is loaded, for less memory and faster tokens on the "
    "processor. Answers change.",
)
cache_dir_option = click.option(
    "--cache-dir",
    type=UserPath(path_type=Path),
    envvar="PML_CACHE_DIR",
    show_envvar=True,
    metavar="DIR",
    help="Folder of the stored segments. Default: the user's cache folder.",
)
batch_output_option = click.option(
    "-o",
    "--output",
    type=UserPath(path_type=Path),
    help="Write the lines of a batch to this file; resume if it exists.",
)
_MEMORY = click.option(
    "--memory",
    type=Size(),
    envvar="PML_MEMORY",
    show_envvar=True,
    metavar="SIZE",
    help="Maximum size of segments in memory, or on the GPU. Default: 4GiB.",
)
_VERIFY = click.option(
    "--verify",
    type=Name(["always", "first", "never"]),
    default="first",
    envvar="PML_VERIFY",
    show_envvar=True,
    show_default=True,
    help="When to check the digest of a stored file: at every load, at the first load, or never.",
)
_DATE = click.option(
    "--date",
    type=click.DateTime(["%Y-%m-%d"]),
    envvar="PML_DATE",
    show_envvar=True,
    metavar="YYYY-MM-DD",
    help="The date in the model's chat template, if it has one. Default: today.",
)
schema_option = click.option(
    "--schema",
    "schema_path",
    required=True,
    type=DOCUMENT,
    metavar="FILE",
    help="The schema that PROMPT imports from.",
)


def _server(_: click.Context, __: click.Parameter, value: str) -> str:
    if value not in ("auto", "never") and not re.fullmatch(
        r"http://(127\.0\.0\.1|localhost):\d{1,5}/?", value
    ):
        raise click.BadParameter(
            f"{value!r} must be auto, never or the URL of a studio on this machine, like "
            "http://127.0.0.1:7860."
        )
    return value.replace("localhost", "127.0.0.1")


server_option = click.option(
    "--server",
    default="auto",
    show_default=True,
    callback=_server,
    envvar="PML_SERVER",
    show_envvar=True,
    metavar="auto|never|URL",
    help="Compute in a running studio: one with the same model and cache folder, none, or the one at this "
    "URL.",
)


def model_options(command: Command) -> Command:
    """Adds `--model`, `--device`, `--dtype` and `--weights`."""
    for option in (_WEIGHTS, _DTYPE, _DEVICE, model_option):
        command = option(command)
    return command


def stored_model_options(command: Command) -> Command:
    """Adds the options that identify stored segments: the model, its options, `--date` and `--cache-dir`."""
    return model_options(quantize_option(cache_dir_option(_DATE(command))))


def engine_options(command: Command) -> Command:
    """Adds the options of `ModelOptions`."""
    return stored_model_options(_VERIFY(_MEMORY(command)))


def _set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Console).debug = True


def _set_json(context: click.Context, _: click.Parameter, value: bool) -> bool:
    if value:
        context.ensure_object(Console).json = True
    return value


debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_set_debug,
    help="Print the traceback of an error.",
)
json_option = click.option(
    "--json",
    "as_json",
    is_flag=True,
    is_eager=True,
    callback=_set_json,
    help="Print one JSON object and nothing else.",
)
