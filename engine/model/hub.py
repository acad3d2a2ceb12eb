"""Where the files of a model are: in a folder here, or fetched from the Hugging Face hub into its own cache.

Nothing is asked of the hub but by `fetch` and `offered`. Knows nothing of what is in the files.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import ModelError
from engine.model.checkpoint import PATTERNS, require_no_adapter
from engine.model.fingerprint import Progress
from engine.places import from_home

CONFIGURATION = "config.json"


@dataclass(frozen=True)
class Offer:
    """What the hub has under an id.

    Attributes:
        bytes: of all files that the loader reads.
        missing: bytes of those that are not in the hub's cache here.
        safe: whether there are weights in safetensors.
    """

    bytes: int
    missing: int
    safe: bool


def local_files(name: str) -> Path | None:
    """Returns the folder that a name means; None where it can only be an id of the hub.

    Raises:
        ModelError: it is a path to what is no folder with a model.
    """
    path = from_home(name)
    if path.is_dir():
        if not (path / CONFIGURATION).is_file():
            require_no_adapter(name, path)
            raise ModelError(
                f"folder {name!r} holds no model: config.json is missing. Give the folder that "
                "save_pretrained wrote, with config.json, *.safetensors and the tokenizer's files."
            )
        return path
    if path.exists():
        raise ModelError(
            f"model {name!r} is a file; give the folder that holds config.json and *.safetensors."
        )
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or (os.sep != "/" and os.sep in name):
        raise ModelError(
            f"there is no folder {name!r}. Check the path, or give a Hugging Face id (owner/name)."
        )
    return None


def cached(name: str) -> Path | None:
    """Returns where the hub's cache has a model; None where it has not all of it. Nothing is asked.

    Raises:
        ModelError: it is no id.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        with _hub(name):
            return Path(snapshot_download(name, allow_patterns=list(PATTERNS), local_files_only=True))
    except ModelError as error:
        if isinstance(error.__cause__, LocalEntryNotFoundError):
            return None
        raise


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Fetches what is not here yet; returns the folder.

    Args:
        name: an id of the hub.
        progress: called with (bytes done, bytes in all, what); what it raises ends the fetching.

    Raises:
        ModelError: there is no such model, or the hub cannot be reached.
    """
    from huggingface_hub import snapshot_download

    given: dict[str, Any] = {} if progress is None else {"tqdm_class": _bar(name, progress)}
    with _hub(name):
        return Path(snapshot_download(name, allow_patterns=list(PATTERNS), **given))


def cache_folder() -> Path:
    """Returns where the hub's library keeps what it has fetched."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


@contextmanager
def offered(name: str) -> Iterator[tuple[Offer, Path]]:
    """Asks the hub what it has under an id; gives that with a folder that holds the configuration alone.

    Raises:
        ModelError: there is no such model, or the hub cannot be reached.
    """
    from huggingface_hub import snapshot_download

    with tempfile.TemporaryDirectory(prefix="pml-look-") as folder:
        with _hub(name):
            found: Any = snapshot_download(name, allow_patterns=list(PATTERNS), dry_run=True)
            snapshot_download(name, allow_patterns=[CONFIGURATION], local_dir=folder)
        yield (
            Offer(
                sum(one.file_size for one in found),
                sum(one.file_size for one in found if one.will_download),
                any(one.filename.endswith(".safetensors") for one in found),
            ),
            Path(folder),
        )


@contextmanager
def _hub(name: str) -> Iterator[None]:
    """Turns what the hub's library raises into words."""
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        yield
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"the Hugging Face hub has no model {name!r} that you may read. Check the id, or log in with "
            "`hf auth login` if it is private or gated."
        ) from error
    except HFValidationError as error:
        raise ModelError(f"{name!r} is neither a folder nor a Hugging Face id (owner/name).") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise ModelError(
            f"model {name!r} is not a folder here, and it could not be fetched from the Hugging Face hub "
            f"({type(error).__name__}). Check the network, or give a local folder."
        ) from error


def _bar(name: str, progress: Progress) -> Callable[..., Any]:
    """What the hub's library draws a bar with: it draws none, and tells of the bytes of all files."""
    from huggingface_hub.utils.tqdm import tqdm

    bar: Any = tqdm

    class Told(bar):  # type: ignore[misc]
        """Bytes of all files, as far as their sizes are known yet."""

        def __init__(self, *given: Any, **options: Any) -> None:
            self.told = options.get("unit") == "B" and options.get("desc") != "Downloading bytes"
            super().__init__(*given, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self.told:
                progress(int(self.n), int(self.total or 0), f"fetching {name}")

    return Told
