"""Whether a model fits into memory, in numbers and in a sentence, before anything of it is read."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from app.base.sizes import size
from engine.base.errors import PromptCacheError
from engine.checkpoint.hub import cache_folder
from engine.quantize.memory_fit import Free, free_memory

if TYPE_CHECKING:
    from engine.model.model_info import Look

RESERVE = 256 << 20  # bytes that the system and the studio itself keep
Verdict = Literal["fits", "tight", "apart", "refused", "unknown"]


@dataclass(frozen=True)
class Fit:
    """Whether a model fits.

    Attributes:
        verdict: "fits"; "tight", where it fits and segments in memory may not; "apart", where it fits once
            the model that answers has gone; "refused"; "unknown", where the system does not say what is free.
        sentence: the same in words.
        needed: bytes that it takes at most, until it has answered a prompt.
        free: bytes that are free.
        total: bytes that there are.
    """

    verdict: Verdict
    sentence: str
    needed: int
    free: int
    total: int


@dataclass(frozen=True)
class Beside:
    """What lies in memory already, and goes with the model that answers.

    Attributes:
        name: of that model; "" for none.
        bytes: what it takes with its segments.
        segments: the most bytes of segments that are held in memory.
    """

    name: str = ""
    bytes: int = 0
    segments: int = 0


def fit(look: Look, beside: Beside | None = None, free: Free | None = None) -> Fit:
    """Says whether a model fits into the memory of its device.

    Args:
        look: the model.
        beside: what lies there already.
        free: the memory of the device; None to ask the system.
    """
    beside = beside or Beside()
    room = free or free_memory(look.device)
    place = "memory" if look.device == "cpu" else f"the memory of {look.device}"
    needed = look.peak_bytes + look.working_bytes
    if room is None:
        words = f"It takes {size(needed)}; how much of {place} is free the system does not say."
        return Fit("unknown", words, needed, 0, 0)
    there = max(0, room.free - RESERVE)
    disk = shutil.disk_usage(existing(cache_folder())).free if look.fetch_bytes else 0
    if look.fetch_bytes > disk:
        words = (
            f"Fetching it takes {size(look.fetch_bytes)} of disk, and {size(disk)} are free in "
            f"{str(cache_folder())!r}. Make room there, or name another folder in HF_HUB_CACHE."
        )
        return Fit("refused", words, needed, room.free, room.total)
    if needed > there + beside.bytes:
        words = (
            f"It does not fit: it takes {size(needed)}, and {size(there + beside.bytes)} of {place} can be "
            "had. Take a smaller model, fewer bits, or close other programs."
        )
        return Fit("refused", words, needed, room.free, room.total)
    if needed > there:
        words = (
            f"Both models do not fit into {place} together: this one takes {size(needed)}, and {size(there)} "
            f"are free. {beside.name} goes first, so nothing is answered until this one is there; if it "
            f"cannot be loaded, {beside.name} comes back."
        )
        return Fit("apart", words, needed, room.free, room.total)
    if look.weight_bytes + look.working_bytes + beside.segments > there + beside.bytes:
        words = (
            f"It fits. Segments in memory may take up to {size(beside.segments)} besides, for which there is "
            "not room enough: start the studio with a smaller --memory if it runs out."
        )
        return Fit("tight", words, needed, room.free, room.total)
    words = f"It fits: it takes {size(needed)}, and {size(there)} of {place} are free."
    return Fit("fits", words, needed, room.free, room.total)


def require_room(name: str, **terms: Any) -> None:
    """Refuses a model that does not fit into memory beside what is there.

    Args:
        name: the model's name; see `engine.model.model_info.look`.
        terms: device, dtype and quantize, as there.

    Raises:
        PromptCacheError: it does not fit, in words.
        ModelError: it could not be loaded.
    """
    from engine.model.model_info import look

    found = fit(look(name, **terms))
    if found.verdict == "refused":
        raise PromptCacheError(f"{name!r} was not made. {found.sentence}")


def existing(path: Path) -> Path:
    """The nearest folder that is there."""
    return next((one for one in (path, *path.parents) if one.is_dir()), Path.cwd())
