"""The files of a checkpoint: which files of a folder are read, and whether they are still the same.

Knows neither what is in them nor what a model is. A file that is not listed here is never opened by the
loader, so it can change without a change of the model.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from engine.base.errors import ModelError
from engine.checkpoint.model_catalogue import here
from engine.files.places import from_home

DEMO_FOLDER = Path(__file__).resolve().parents[2] / "assets" / "demo_model"
"""The bundled model; it stands beside this package in the sources and in an installation."""

SAFETENSORS = ".safetensors"
WEIGHTS = f"model{SAFETENSORS}"
INDEX = "model.safetensors.index.json"
TEMPLATES = "additional_chat_templates"
GGUF = ".gguf"
MAGIC = b"GGUF"
"""The first bytes of a GGUF file."""
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_PROJECTOR = "mmproj"  # of a model that sees or hears, in a file of its own

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
            folder: the folder with the files, or a GGUF file.

        Raises:
            ModelError: there are neither safetensors nor one GGUF model, a shard is missing, its files name
                files elsewhere, or they hold an adapter.
        """
        try:
            if (found := _gguf_files(name, folder)) is not None:
                return cls(folder if folder.is_dir() else folder.parent, (), found)
        except OSError as error:
            raise _unreadable(name, error) from error
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
    def labels(self) -> tuple[str, ...]:
        """What the files are, one for each of `names`: the name of a GGUF file says nothing of it."""
        return tuple(f"{number}{GGUF}" for number, _ in enumerate(self.weights)) if self.gguf else self.names

    @property
    def gguf(self) -> bool:
        """Whether the model is in GGUF files."""
        return not self.weights[0].endswith(SAFETENSORS)

    @property
    def place(self) -> Path:
        """What the files are found by: the folder, or the first GGUF file."""
        return self.folder / self.weights[0] if self.gguf else self.folder

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files with weights."""
        return tuple(self.folder / one for one in self.weights)

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
    """Returns the folder or the GGUF file that a name of a model stands for; None if none does.

    "demo" is the bundled one.
    """
    path = DEMO_FOLDER if name == "demo" else here(name) or from_home(name)
    return path if path.is_dir() or is_gguf(path) else None


def is_gguf(path: Path) -> bool:
    """Returns whether there is a GGUF file at a path, by its name or by its first bytes."""
    if not path.is_file():
        return False
    if path.name.lower().endswith(GGUF):
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def shard_names(file_name: str) -> tuple[str, ...]:
    """Returns the names of all files of the GGUF model that a file is of, in their order."""
    found = _SHARD.fullmatch(file_name)
    if found is None:
        return (file_name,)
    count = int(found["count"])
    ending = file_name[-len(GGUF) :]
    return tuple(f"{found['stem']}-{number:05}-of-{count:05}{ending}" for number in range(1, count + 1))


def gguf_models(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the first file of each GGUF model among files, sorted."""
    files = (one for one in names if one.lower().endswith(GGUF))
    models = (one for one in files if not one.rpartition("/")[2].lower().startswith(_PROJECTOR))
    return tuple(sorted({shard_names(one)[0] if shard_names(one) else one for one in models}))


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


def _gguf_files(name: str, path: Path) -> tuple[str, ...] | None:
    """The names of the GGUF files at a path; None for a folder with safetensors, or with none of these.

    Raises:
        ModelError: there are several models, or a shard is missing.
    """
    if not path.is_dir():
        folder, first = path.parent, path.name
    else:
        folder = path
        models = gguf_models(one.name for one in path.iterdir() if one.is_file())
        if not models or (path / WEIGHTS).exists() or (path / INDEX).exists():
            return None
        if len(models) > 1:
            raise ModelError(
                f"folder {name!r} holds {len(models)} GGUF models: {', '.join(models[:5])}"
                f"{', …' if len(models) > 5 else ''}. Name one of these files."
            )
        first = models[0]
    found = shard_names(first)
    missing = [one for one in found if not (folder / one).is_file()]
    if missing or not found:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        lacking = f"{missing[0]!r}{others} is missing in {folder}" if missing else f"{first!r} has no parts"
        raise ModelError(f"model {name!r} is not complete: {lacking}. Fetch it again.")
    return found


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
        if not inside or "\\" in one or not one.endswith(SAFETENSORS):
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
