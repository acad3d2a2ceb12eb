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
_HEADER = 48 << 20  # bytes within which a GGUF file ends what it says of its tensors


@dataclass(frozen=True)
class Offer:
    """What the hub has under an id.

    Attributes:
        bytes: of all files that the loader reads.
        missing: bytes of those that are not in the hub's cache here.
        safe: whether there are weights in safetensors.
        gguf: the first files of GGUF models that are there.
    """

    bytes: int
    missing: int
    safe: bool
    gguf: tuple[str, ...] = ()


def local_files(name: str) -> Path | None:
    """Returns the folder or the GGUF file that a name means; None where it can only be an id of the hub.

    Raises:
        ModelError: it is a path to what is neither.
    """
    if (found := here(name)) is not None:
        return found
    path = from_home(name)
    if name in CATALOGUE and not path.exists():
        return None
    if path.is_dir():
        if not (path / CONFIGURATION).is_file() and not gguf_models(one.name for one in path.iterdir()):
            require_no_adapter(name, path)
            raise ModelError(
                f"folder {name!r} holds no model: config.json is missing. Give the folder that "
                "save_pretrained wrote, with config.json, *.safetensors and the tokenizer's files, or a GGUF "
                "file."
            )
        return path
    if is_gguf(path):
        return path
    if path.exists():
        raise ModelError(
            f"file {name!r} is no GGUF file. Give a GGUF file, or the folder that holds config.json and "
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
    """Returns where the hub's cache has a model; None where it has not all of it. Nothing is asked.

    Raises:
        ModelError: it is no id.
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
            whole = all((folder / one).is_file() for one in _shards(file))
            return folder / file if whole else None
    except ModelError as error:
        if isinstance(error.__cause__, LocalEntryNotFoundError):
            return None
        raise


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Fetches what is not here yet; returns the folder, or the GGUF file.

    Args:
        name: an id of the hub, of a GGUF file there with ":" and its name.
        progress: called with (bytes done, bytes in all, what); what it raises ends the fetching.

    Raises:
        ModelError: there is no such model, or the hub cannot be reached.
    """
    from huggingface_hub import snapshot_download

    given: dict[str, Any] = {} if progress is None else {"tqdm_class": _bar(name, progress)}
    owner_and_name, file = parted(name)
    with _hub(name):
        folder = Path(snapshot_download(owner_and_name, allow_patterns=_patterns(file), **given))
    missing = [one for one in _shards(file) if not (folder / one).is_file()]
    if missing:
        raise _lacking(owner_and_name, missing[0])
    return folder / file


def fetch_file(
    owner_and_name: str, file: str, revision: str, folder: Path, title: str, progress: Progress | None = None
) -> Path:
    """Fetches one file into a folder; what is there of it already is not fetched again.

    Args:
        owner_and_name: an id of the hub.
        file: its name there.
        revision: of the repository.
        folder: where it is written.
        title: what the progress calls it.
        progress: as of `fetch`.

    Raises:
        ModelError: there is no such file, or the hub cannot be reached.
    """
    from huggingface_hub import constants, get_session, hf_hub_download

    try:
        get_session().head(constants.ENDPOINT, timeout=_PATIENCE)  # else the library tries for half a minute
    except Exception as error:  # of the library, for no network, no hub, or a setting that forbids to ask it
        raise ModelError("the Hugging Face hub is out of reach") from error
    given: dict[str, Any] = {} if progress is None else {"tqdm_class": _bar(title, progress)}
    with _hub(owner_and_name):
        return Path(hf_hub_download(owner_and_name, file, revision=revision, local_dir=folder, **given))


def parted(name: str) -> tuple[str, str]:
    """Returns the id of a name on the hub, and the GGUF file there; "" where it names none."""
    owner_and_name, colon, file = name.partition(":")
    inside = file.lower().endswith(GGUF) and ".." not in file.split("/") and not file.startswith("/")
    return (owner_and_name, file) if colon and inside and owner_and_name.count("/") == 1 else (name, "")


def _patterns(file: str) -> list[str]:
    """What is fetched: a GGUF file with all its parts, or all that the loader may read."""
    return list(_shards(file)) or list(PATTERNS)


def _shards(file: str) -> tuple[str, ...]:
    return shard_names(file) if file else ()


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
            listed: Any = snapshot_download(name, allow_patterns=[*PATTERNS, f"*{GGUF}"], dry_run=True)
            found = [one for one in listed if not one.filename.lower().endswith(GGUF)]
            snapshot_download(name, allow_patterns=[CONFIGURATION], local_dir=folder)
        yield (
            Offer(
                sum(one.file_size for one in found),
                sum(one.file_size for one in found if one.will_download),
                any(one.filename.endswith(".safetensors") for one in found),
                gguf_models(one.filename for one in listed),
            ),
            Path(folder),
        )


@contextmanager
def beginnings(name: str) -> Iterator[tuple[list[Path], list[int]]]:
    """Fetches the beginnings of a GGUF file's parts; gives them with the sizes of the whole files, in bytes.

    Raises:
        ModelError: there is no such file, or the hub cannot be reached.
    """
    from huggingface_hub import get_hf_file_metadata, get_session, hf_hub_url, utils
    from huggingface_hub.errors import EntryNotFoundError

    library: Any = utils  # its types leave out the headers
    owner_and_name, file = parted(name)
    with tempfile.TemporaryDirectory(prefix="pml-look-") as folder:
        paths, sizes = list[Path](), list[int]()
        for part in shard_names(file):
            url, path = hf_hub_url(owner_and_name, part), Path(folder) / Path(part).name
            asked = {**library.build_hf_headers(), "Range": f"bytes=0-{_HEADER - 1}"}
            try:
                with _hub(name), path.open("wb") as held:
                    sizes.append(get_hf_file_metadata(url).size or 0)
                    with get_session().stream("GET", url, headers=asked, follow_redirects=True) as given:
                        given.raise_for_status()
                        for block in given.iter_bytes(1 << 20):
                            held.write(block)
                            if held.tell() >= _HEADER:
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
        raise ModelError(
            f"{name!r} is no file and no folder here, and no Hugging Face id (OWNER/NAME). Check the name."
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise ModelError(
            f"model {name!r} is not on this machine, and {_reason(error)}. Check the network, or give a "
            "folder or a GGUF file on this machine."
        ) from error


def _reason(error: Exception) -> str:
    """Why nothing could be fetched."""
    from huggingface_hub.constants import HF_HUB_OFFLINE
    from huggingface_hub.errors import HfHubHTTPError

    if HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE forbids to ask the Hugging Face hub"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, HfHubHTTPError) and status is not None:
        return f"the Hugging Face hub answered with status {status}"
    return "the Hugging Face hub cannot be reached"


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
