"""The options of commands that reuse attention maps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from app.cli.base.output import counted, say
from app.cli.base.param_types import Number, UserPath

if TYPE_CHECKING:
    from engine.maps.reuse import MapReuse
    from engine.model.model import Model

Command = TypeVar("Command", bound=Callable[..., Any])

_MAPS = click.option(
    "--maps",
    "maps_folder",
    type=UserPath(path_type=Path),
    metavar="FOLDER",
    help="Read texts with attention maps of similar texts in this folder, which `pml maps build` makes. "
    "Results change.",
)
_THRESHOLD = click.option(
    "--threshold",
    type=Number(0, 1),
    help="With --maps: the least similarity of a stored text. Default: 0.99.",
)


def map_options(command: Command) -> Command:
    """Adds `--maps` and `--threshold`, which make a `MapOptions`."""
    return _MAPS(_THRESHOLD(command))


@dataclass(frozen=True)
class MapOptions:
    """A folder of attention maps, or None for none, and the least similarity.

    Raises:
        UsageError: there is a threshold without a folder.
    """

    folder: Path | None
    threshold: float | None

    def __post_init__(self) -> None:
        if self.folder is None and self.threshold is not None:
            raise click.UsageError("--threshold belongs to --maps.")

    def open(self, model: Model) -> MapReuse | None:
        """Opens the folder for a model; raises MapsError if it cannot be used."""
        if self.folder is None:
            return None
        from engine.maps.reuse import THRESHOLD, MapReuse

        return MapReuse.open(self.folder, model, THRESHOLD if self.threshold is None else self.threshold)


NO_MAPS = MapOptions(None, None)


def report_of(maps: MapReuse) -> dict[str, Any]:
    """Returns how often maps were used, for JSON."""
    used = maps.used
    return {
        "threshold": maps.threshold,
        "texts": used.texts,
        "hits": used.hits,
        "search_ms": used.search_ms,
        "load_ms": used.load_ms,
    }


def say_used(maps: MapReuse) -> None:
    """Prints how often maps were used."""
    used = maps.used
    say(f"pml: stored maps for {used.hits} of {counted(used.texts, 'text')}.", err=True)
