"""The files of a checkpoint: which files of a folder are read, and whether they are still the same.

Knows neither what is in them nor what a model is. A file that is not listed here is never opened by the
loader, so it can change without a change of the model.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from engine.errors import ModelError
from engine.places import from_home

DEMO_FOLDER = Path(__file__).resolve().parents[2] / "assets" / "demo_model"
"""The bundled model; it stands beside this package in the sources and in an installation."""

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TEMPLATES = "additional_chat_templates"
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")

COARSE = 2.0
"""Seconds within which two changes of a file may bear the same time, on the coarsest of file systems."""

_TEXTS = (
    *("*.json", "*.jinja", "*.model", "*.model.*", "*.tiktoken", "*.bpe", "*.codes", "*.spm", "*.vocab"),
    *("*.tokenizer", "vocab*", "merges*", "dict.*"),
)
_NOT_READ = "generation_config.json"  # it says how to sample and when to stop, not what keys and values are

PATTERNS = ("*.safetensors", *_TEXTS)
"""What is fetched from the Hugging Face hub: all that the loader may read."""

Stamp = tuple[int, int, int, int, int]
"""Device, inode, size, time of the last change of the content and of the entry, in nanoseconds."""


@dataclass(frozen=True)
class Signature:
    """The files of a checkpoint as they were at a moment, without their contents.

    Attributes:
        stamps: the stamp of every file, by name.
        settled: whether any later change of a file would change its stamp.
    """

    stamps: tuple[tuple[str, Stamp], ...]
    settled: bool

    @property
    def contents(self) -> tuple[tuple[str, int, int], ...]:
        """Name, size and time of the last change of the content."""
        return tuple((name, found[2], found[3]) for name, found in self.stamps)


@dataclass(frozen=True)
class Checkpoint:
    """The files of a folder that make a model what it is.

    Attributes:
        folder: the folder with the files.
        texts: names in the folder of configuration, tokenizer, chat templates and the index of the shards.
        weights: names of the files with weights, with / between folders.
    """

    folder: Path
    texts: tuple[str, ...]
    weights: tuple[str, ...]

    @classmethod
    def of(cls, name: str, folder: Path) -> Checkpoint:
        """Finds the files that the loader reads.

        Args:
            name: the model's name, for messages.
            folder: the folder with the files.

        Raises:
            ModelError: there are no safetensors, a shard is missing, its files name files elsewhere, or they
                hold an adapter.
        """
        require_no_adapter(name, folder)
        try:
            texts = sorted(_texts(folder))
            _check_tokenizer(name, folder)
            sharded = not (folder / WEIGHTS).is_file() and INDEX in texts
            weights = _shards(name, folder) if sharded else (WEIGHTS,)
            missing = [one for one in weights if not (folder / one).is_file()]
        except OSError as error:
            raise _unreadable(name, error) from error
        if missing and not sharded:
            raise ModelError(
                f"model {name!r} has neither {WEIGHTS} nor {INDEX} in {folder}. Other weight formats can run "
                "code when they are read and are not opened; convert them with save_pretrained."
            )
        if missing:
            others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise ModelError(
                f"model {name!r} is not complete: {missing[0]!r}{others} is missing in {folder}. Fetch it "
                "again."
            )
        return cls(folder, tuple(texts), weights)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all files."""
        return (*self.texts, *self.weights)

    @property
    def others(self) -> tuple[str, ...]:
        """The names of files with weights that are not read, but those in Mistral's own form of the same."""
        found = {path.name for path in self.folder.glob("*.safetensors")} - set(self.weights)
        return tuple(sorted(one for one in found if not one.startswith("consolidated")))

    def signature(self, name: str) -> Signature:
        """The files as they are now.

        Args:
            name: the model's name, for messages.

        Raises:
            ModelError: a file is gone.
        """
        try:
            stamps = tuple((one, stamp(self.folder / one)) for one in self.names)
        except OSError as error:
            raise _unreadable(name, error) from error
        return Signature(stamps, all(settled(one) for _, one in stamps))


def local_folder(name: str) -> Path | None:
    """Returns the folder that a name of a model stands for, "demo" for the bundled one; None if none does."""
    path = DEMO_FOLDER if name == "demo" else from_home(name)
    return path if path.is_dir() else None


def require_no_adapter(name: str, folder: Path) -> None:
    """Refuses a folder with an adapter, which would be left out.

    Raises:
        ModelError: it holds one.
    """
    for one in ADAPTER:
        if (folder / one).is_file():
            raise ModelError(
                f"the folder of model {name!r} holds an adapter ({one}), which is not applied. Merge it into "
                "the weights of its base model (merge_and_unload of peft) and give the folder with these, or "
                "remove the file."
            )


def stamp(path: Path) -> Stamp:
    """What tells a file from itself after a change, links followed.

    Raises:
        OSError: there is none.
    """
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def settled(found: Stamp) -> bool:
    """Whether a file has lain long enough that its next change bears another time."""
    return max(found[3:]) / 1e9 < time.time() - COARSE


def _texts(folder: Path) -> Iterator[str]:
    for path in folder.iterdir():
        name = path.name
        wanted = name != _NOT_READ and not name.startswith(".")
        if wanted and any(fnmatchcase(name, one) for one in _TEXTS) and path.is_file():
            yield name
    templates = folder / TEMPLATES
    if templates.is_dir():
        yield from (f"{TEMPLATES}/{path.name}" for path in templates.glob("*.jinja") if path.is_file())


def _check_tokenizer(name: str, folder: Path) -> None:
    """Refuses a tokenizer whose configuration names files elsewhere.

    Raises:
        ModelError: the tokenizer's configuration names such files.
    """
    try:
        given: Any = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        files = list(given.get("fast_tokenizer_files") or ())
    except (FileNotFoundError, ValueError, TypeError, AttributeError, RecursionError):
        return  # the tokenizer itself says what is wrong with it
    for one in files:
        if not isinstance(one, str) or "/" in one or "\\" in one:
            raise ModelError(
                f"model {name!r}: tokenizer_config.json names {one!r}, which is no file beside it and is not "
                "opened. Save the tokenizer with save_pretrained."
            )


def _shards(name: str, folder: Path) -> tuple[str, ...]:
    """The files that the index of a sharded checkpoint names, sorted.

    Raises:
        ModelError: it is no index, or names a file that is no safetensors file inside the folder.
    """
    try:
        index: Any = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        named = set(index["weight_map"].values())
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        named = set()
    if not named:
        raise ModelError(f"model {name!r}: {INDEX} is no index of weights. Fetch the file again.")
    for one in named:
        inside = isinstance(one, str) and not PurePosixPath(one).is_absolute() and ".." not in one.split("/")
        if not inside or "\\" in one or not one.endswith(".safetensors"):
            raise ModelError(
                f"model {name!r}: {INDEX} names {one!r}, which is no *.safetensors file in its folder and "
                "is not opened. Use a folder that save_pretrained wrote."
            )
    return tuple(sorted(named))


def _unreadable(name: str, error: OSError) -> ModelError:
    reason = (error.strerror or "it cannot be read").lower()
    return ModelError(
        f"model {name!r}: {str(error.filename)!r} cannot be read ({reason}). Check the folder and who "
        "may read it."
    )
