"""Finds a model's files in a local folder, or fetches them from the Hugging Face hub into its cache.

Only `fetch`, `fetch_file`, `offered` and `beginnings` use the network.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.base.errors import ModelError
from engine.checkpoint.checkpoint import (
    GGUF,
    PATTERNS,
    gguf_models,
    is_gguf,
    require_no_adapter,
    shard_names,
)
from engine.checkpoint.fingerprint import Progress
from engine.checkpoint.model_catalogue import CATALOGUE, here
from engine.files.places import from_home

CONFIGURATION = "config.json"
_PATIENCE = 5.0  # seconds
_HEADER = 48 << 20  # the most bytes of a GGUF header


@dataclass(frozen=True)
class Offer:
    """The files of an id on the hub.

    Attributes:
        bytes: of all files that the loader reads.
        missing: bytes of those that are not in the local hub cache.
        safe: whether it has weights in safetensors.
        gguf: the first files of its GGUF models.
    """

    bytes: int
    missing: int
    safe: bool
    gguf: tuple[str, ...] = ()


def local_files(name: str) -> Path | None:
    """Returns the local folder or GGUF file of a name; None if the name can only be a hub id.

    Raises:
        ModelError: it is a path to something else.
    """
    if (fetched := here(name)) is not None:
        return fetched
    path = from_home(name)
    if name in CATALOGUE and not path.exists():
        return None
    if path.is_dir():
        if not (path / CONFIGURATION).is_file() and not gguf_models(entry.name for entry in path.iterdir()):
            require_no_adapter(name, path)
            raise ModelError(
                f"folder {name!r} has no model: config.json is missing. Give the folder that "
                "save_pretrained wrote, with config.json, *.safetensors and the tokenizer's files, or a GGUF "
                "file."
            )
        return path
    if is_gguf(path):
        return path
    if path.exists():
        raise ModelError(
            f"file {name!r} is not a GGUF file. Give a GGUF file, or a folder with config.json and "
            "*.safetensors."
        )
    if parted(name)[1]:
        return None
    is_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or (os.sep != "/" and os.sep in name)
    if name.lower().endswith(GGUF) and (is_path or "/" not in name or path.parent.is_dir()):
        raise ModelError(f"there is no file {name!r}. Check the path.")
    if is_path:
        raise ModelError(
            f"there is no folder {name!r}. Check the path, or give a Hugging Face id (OWNER/NAME, or "
            "OWNER/NAME:FILE.gguf for a GGUF file there)."
        )
    return None


def cached(name: str) -> Path | None:
    """Returns a model's path in the hub's cache, without the network; None if it is incomplete.

    Raises:
        ModelError: the name is not an id.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    if name in CATALOGUE:
        return here(name)
    owner_and_name, file = parted(name)
    try:
        with _hub(name):
            folder = Path(
                snapshot_download(owner_and_name, allow_patterns=_patterns(file), local_files_only=True)
            )
            whole = all((folder / shard).is_file() for shard in _shards(file))
            return folder / file if whole else None
    except ModelError as error:
        if isinstance(error.__cause__, LocalEntryNotFoundError):
            return None
        raise


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Fetches missing files and returns the folder or GGUF file.

    Args:
        name: a hub id; a GGUF file is ID:FILE.
        progress: called with (bytes done, total bytes, label); an exception from it ends the fetch.

    Raises:
        ModelError: the model does not exist, or the hub is unreachable.
    """
    from huggingface_hub import snapshot_download

    options: dict[str, Any] = {} if progress is None else {"tqdm_class": _bar(name, progress)}
    owner_and_name, file = parted(name)
    with _hub(name):
        folder = Path(snapshot_download(owner_and_name, allow_patterns=_patterns(file), **options))
    missing = [shard for shard in _shards(file) if not (folder / shard).is_file()]
    if missing:
        raise _lacking(owner_and_name, missing[0])
    return folder / file


def fetch_file(
    owner_and_name: str, file: str, revision: str, folder: Path, title: str, progress: Progress | None = None
) -> Path:
    """Fetches one file of a repository into a folder and resumes a partial file.

    `title` is the label for progress, which works as in `fetch`.

    Raises:
        ModelError: the file does not exist, or the hub is unreachable.
    """
    from huggingface_hub import constants, get_session, hf_hub_download

    try:
        get_session().head(constants.ENDPOINT, timeout=_PATIENCE)  # the library would retry for half a minute
    except Exception as error:  # raised for no network, no hub, or offline mode
        raise ModelError("the Hugging Face hub cannot be reached") from error
    options: dict[str, Any] = {} if progress is None else {"tqdm_class": _bar(title, progress)}
    with _hub(owner_and_name):
        return Path(hf_hub_download(owner_and_name, file, revision=revision, local_dir=folder, **options))


def parted(name: str) -> tuple[str, str]:
    """Splits a name into a hub id and a GGUF file; "" without a file."""
    owner_and_name, colon, file = name.partition(":")
    inside = file.lower().endswith(GGUF) and ".." not in file.split("/") and not file.startswith("/")
    return (owner_and_name, file) if colon and inside and owner_and_name.count("/") == 1 else (name, "")


def _patterns(file: str) -> list[str]:
    """Returns the patterns to fetch: a GGUF file with all its parts, or all that the loader may read."""
    return list(_shards(file)) or list(PATTERNS)


def _shards(file: str) -> tuple[str, ...]:
    return shard_names(file) if file else ()


def cache_folder() -> Path:
    """Returns the cache folder of the hub's library."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


@contextmanager
def offered(name: str) -> Iterator[tuple[Offer, Path]]:
    """Asks the hub for the files of an id; yields them with a folder that has only the configuration.

    Raises:
        ModelError: the model does not exist, or the hub is unreachable.
    """
    from huggingface_hub import snapshot_download

    with tempfile.TemporaryDirectory(prefix="pml-look-") as folder:
        with _hub(name):
            listed: Any = snapshot_download(name, allow_patterns=[*PATTERNS, f"*{GGUF}"], dry_run=True)
            files = [file for file in listed if not file.filename.lower().endswith(GGUF)]
            snapshot_download(name, allow_patterns=[CONFIGURATION], local_dir=folder)
        yield (
            Offer(
                sum(file.file_size for file in files),
                sum(file.file_size for file in files if file.will_download),
                any(file.filename.endswith(".safetensors") for file in files),
                gguf_models(file.filename for file in listed),
            ),
            Path(folder),
        )


@contextmanager
def beginnings(name: str) -> Iterator[tuple[list[Path], list[int]]]:
    """Fetches the headers of a GGUF file's parts; yields them with the sizes of the whole files in bytes.

    Raises:
        ModelError: the file does not exist, or the hub is unreachable.
    """
    from huggingface_hub import get_hf_file_metadata, get_session, hf_hub_url, utils
    from huggingface_hub.errors import EntryNotFoundError

    library: Any = utils  # its types lack the headers
    owner_and_name, file = parted(name)
    with tempfile.TemporaryDirectory(prefix="pml-look-") as folder:
        paths, sizes = list[Path](), list[int]()
        for part in shard_names(file):
            url, path = hf_hub_url(owner_and_name, part), Path(folder) / Path(part).name
            headers = {**library.build_hf_headers(), "Range": f"bytes=0-{_HEADER - 1}"}
            try:
                with _hub(name), path.open("wb") as target:
                    sizes.append(get_hf_file_metadata(url).size or 0)
                    with get_session().stream("GET", url, headers=headers, follow_redirects=True) as response:
                        response.raise_for_status()
                        for block in response.iter_bytes(1 << 20):
                            target.write(block)
                            if target.tell() >= _HEADER:
                                break
            except ModelError as error:
                if isinstance(error.__cause__, EntryNotFoundError):
                    raise _lacking(owner_and_name, part) from error
                raise
            paths.append(path)
        yield paths, sizes


def _lacking(name: str, file: str) -> ModelError:
    return ModelError(f"{name!r} has no file {file!r} on the Hugging Face hub. Check its name.")


@contextmanager
def _hub(name: str) -> Iterator[None]:
    """Turns errors of the hub's library into a ModelError."""
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
        raise ModelError(
            f"{name!r} is neither a local file or folder nor a Hugging Face id (OWNER/NAME). Check the name."
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise ModelError(
            f"model {name!r} is not on this machine, and {_reason(error)}. Check the network, or give a "
            "folder or a GGUF file on this machine."
        ) from error


def _reason(error: Exception) -> str:
    """Returns the reason of a failed fetch."""
    from huggingface_hub.constants import HF_HUB_OFFLINE
    from huggingface_hub.errors import HfHubHTTPError

    if HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE disables the Hugging Face hub"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, HfHubHTTPError) and status is not None:
        return f"the Hugging Face hub answered with status {status}"
    return "the Hugging Face hub cannot be reached"


def _bar(name: str, progress: Progress) -> Callable[..., Any]:
    """Returns an invisible progress bar class for the hub's library, which reports bytes of all files."""
    from huggingface_hub.utils.tqdm import tqdm

    bar: Any = tqdm

    class Told(bar):  # type: ignore[misc]
        """Bytes of all files whose sizes are known so far."""

        def __init__(self, *given: Any, **options: Any) -> None:
            self.told = options.get("unit") == "B" and options.get("desc") != "Downloading bytes"
            super().__init__(*given, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self.n += n or 0
            if self.told:
                progress(int(self.n), int(self.total or 0), f"fetching {name}")

    return Told
