"""Whether a model fits into memory, as numbers and a sentence, before it is read."""

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

RESERVE = 256 << 20  # bytes reserved for the system and the studio
Verdict = Literal["fits", "tight", "apart", "refused", "unknown"]


@dataclass(frozen=True)
class Fit:
    """The verdict on a model.

    Attributes:
        verdict: "fits"; "tight" if it fits, but segments in memory may not; "apart" if it fits after the
            current model is unloaded; "refused"; "unknown" if the system does not report free memory.
        sentence: the verdict in words.
        needed: maximum memory in bytes until it answers a prompt.
        free: free bytes.
        total: total bytes.
    """

    verdict: Verdict
    sentence: str
    needed: int
    free: int
    total: int


@dataclass(frozen=True)
class Beside:
    """Memory of the current model, which is freed with it."""

    name: str = ""  # its name; "" for none
    bytes: int = 0  # its size with its segments
    segments: int = 0  # limit in bytes of segments in memory


def fit(look: Look, beside: Beside | None = None, free: Free | None = None) -> Fit:
    """Determines whether a model fits into the memory of its device.

    Args:
        look: the model.
        beside: the current model.
        free: memory of the device; None to ask the system.
    """
    beside = beside or Beside()
    room = free or free_memory(look.device)
    place = "memory" if look.device == "cpu" else f"the memory of {look.device}"
    needed = look.peak_bytes + look.working_bytes
    if room is None:
        words = f"It takes {size(needed)}; the free part of {place} is unknown."
        return Fit("unknown", words, needed, 0, 0)
    spare = max(0, room.free - RESERVE)
    disk = shutil.disk_usage(existing(cache_folder())).free if look.fetch_bytes else 0
    if look.fetch_bytes > disk:
        words = (
            f"Fetching it takes {size(look.fetch_bytes)} of disk, and {size(disk)} are free in "
            f"{str(cache_folder())!r}. Free some space, or set HF_HUB_CACHE to another folder."
        )
        return Fit("refused", words, needed, room.free, room.total)
    if needed > spare + beside.bytes:
        words = (
            f"It does not fit: it takes {size(needed)}, and {size(spare + beside.bytes)} of {place} are "
            "available. Use a smaller model or fewer bits, or close other programs."
        )
        return Fit("refused", words, needed, room.free, room.total)
    if needed > spare:
        words = (
            f"Both models do not fit into {place} together: this one takes {size(needed)}, and {size(spare)} "
            f"are free. {beside.name} is unloaded first, so nothing is answered meanwhile; if loading fails, "
            f"{beside.name} is loaded again."
        )
        return Fit("apart", words, needed, room.free, room.total)
    if look.weight_bytes + look.working_bytes + beside.segments > spare + beside.bytes:
        words = (
            f"It fits. Segments in memory may take up to {size(beside.segments)} more, which does not fit: "
            "start the studio with a smaller --memory if it runs out."
        )
        return Fit("tight", words, needed, room.free, room.total)
    words = f"It fits: it takes {size(needed)}, and {size(spare)} of {place} are free."
    return Fit("fits", words, needed, room.free, room.total)


def require_room(name: str, **terms: Any) -> None:
    """Rejects a model that does not fit into free memory.

    Args:
        name: the model's name; see `engine.model.model_info.look`.
        terms: device, dtype and quantize, as there.

    Raises:
        PromptCacheError: it does not fit.
        ModelError: it cannot be loaded.
    """
    from engine.model.model_info import look

    verdict = fit(look(name, **terms))
    if verdict.verdict == "refused":
        raise PromptCacheError(f"{name!r} was not loaded. {verdict.sentence}")


def existing(path: Path) -> Path:
    """Returns the nearest existing folder."""
    return next((folder for folder in (path, *path.parents) if folder.is_dir()), Path.cwd())
