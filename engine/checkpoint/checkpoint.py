"""The files of a checkpoint: which files of a folder are read, and if they are unchanged.

The loader never opens a file that is not listed here, so such a file can change without changing the model.
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
"""The bundled model, next to this package in the sources and in an installation."""

SAFETENSORS = ".safetensors"
WEIGHTS = f"model{SAFETENSORS}"
INDEX = "model.safetensors.index.json"
TEMPLATES = "additional_chat_templates"
GGUF = ".gguf"
MAGIC = b"GGUF"
"""The first bytes of a GGUF file."""
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_PROJECTOR = "mmproj"  # of a model with images or audio, in a separate file

COARSE = 2.0
"""Seconds within which two changes of a file can have the same time, on the coarsest file systems."""

_TEXTS = (
    *("*.json", "*.jinja", "*.model", "*.model.*", "*.tiktoken", "*.bpe", "*.codes", "*.spm", "*.vocab"),
    *("*.tokenizer", "vocab*", "merges*", "dict.*"),
)
_NOT_READ = (
    "generation_config.json"  # it has sampling settings and end tokens, which do not affect keys and values
)

PATTERNS = ("*.safetensors", *_TEXTS)
"""The files to fetch from the Hugging Face hub: all that the loader may read."""

Stamp = tuple[int, int, int, int, int]
"""Device, inode, size, time of the last change of the content and of the entry, in nanoseconds."""


@dataclass(frozen=True)
class Signature:
    """The state of a checkpoint's files at a moment, without their contents.

    Attributes:
        stamps: the stamp of every file, by name.
        settled: whether any later change of a file would change its stamp.
    """

    stamps: tuple[tuple[str, Stamp], ...]
    settled: bool

    @property
    def contents(self) -> tuple[tuple[str, int, int], ...]:
        """Name, size and time of the last change of the content."""
        return tuple((name, entry[2], entry[3]) for name, entry in self.stamps)


@dataclass(frozen=True)
class Checkpoint:
    """The files of a folder that determine a model.

    Attributes:
        folder: the folder.
        texts: names of configuration, tokenizer, chat templates and shard index in the folder.
        weights: names of the weight files, with / between folders.
    """

    folder: Path
    texts: tuple[str, ...]
    weights: tuple[str, ...]

    @classmethod
    def of(cls, name: str, folder: Path) -> Checkpoint:
        """Finds the files that the loader reads in a folder, or for a GGUF file.

        Raises:
            ModelError: the folder has neither safetensors nor exactly one GGUF model, lacks a shard, names
                files elsewhere, or has an adapter.
        """
        try:
            if (gguf_names := _gguf_files(name, folder)) is not None:
                return cls(folder if folder.is_dir() else folder.parent, (), gguf_names)
        except OSError as error:
            raise _unreadable(name, error) from error
        require_no_adapter(name, folder)
        try:
            texts = sorted(_texts(folder))
            _check_tokenizer(name, folder)
            sharded = not (folder / WEIGHTS).is_file() and INDEX in texts
            weights = _shards(name, folder) if sharded else (WEIGHTS,)
            missing = [file_name for file_name in weights if not (folder / file_name).is_file()]
        except OSError as error:
            raise _unreadable(name, error) from error
        if missing and not sharded:
            raise ModelError(
                f"model {name!r} has neither {WEIGHTS} nor {INDEX} in {folder}. Other weight formats can run "
                "code and are not supported. Convert them with save_pretrained."
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
        """Labels of the files, parallel to `names`; GGUF files are numbered, because their names vary."""
        return tuple(f"{number}{GGUF}" for number, _ in enumerate(self.weights)) if self.gguf else self.names

    @property
    def gguf(self) -> bool:
        """Whether the model is in GGUF files."""
        return not self.weights[0].endswith(SAFETENSORS)

    @property
    def place(self) -> Path:
        """The path of the model: the folder, or the first GGUF file."""
        return self.folder / self.weights[0] if self.gguf else self.folder

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths of the weight files."""
        return tuple(self.folder / weights for weights in self.weights)

    @property
    def others(self) -> tuple[str, ...]:
        """Unread safetensors in the folder, except Mistral's own copies ("consolidated")."""
        names = {path.name for path in self.folder.glob("*.safetensors")} - set(self.weights)
        return tuple(sorted(file_name for file_name in names if not file_name.startswith("consolidated")))

    def signature(self, name: str) -> Signature:
        """Returns the current state of the files; raises ModelError if one is missing."""
        try:
            stamps = tuple((file_name, stamp(self.folder / file_name)) for file_name in self.names)
        except OSError as error:
            raise _unreadable(name, error) from error
        return Signature(stamps, all(settled(entry) for _, entry in stamps))


def local_folder(name: str) -> Path | None:
    """Returns the folder or GGUF file of a model's name, "demo" included; None if there is none."""
    path = DEMO_FOLDER if name == "demo" else here(name) or from_home(name)
    return path if path.is_dir() or is_gguf(path) else None


def is_gguf(path: Path) -> bool:
    """Returns whether a path is a GGUF file, by its name or its first bytes."""
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
    """Returns the names of all files of a GGUF model, in order, from the name of one."""
    shard = _SHARD.fullmatch(file_name)
    if shard is None:
        return (file_name,)
    count = int(shard["count"])
    ending = file_name[-len(GGUF) :]
    return tuple(f"{shard['stem']}-{number:05}-of-{count:05}{ending}" for number in range(1, count + 1))


def gguf_models(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the first file of each GGUF model, sorted."""
    files = (file_name for file_name in names if file_name.lower().endswith(GGUF))
    models = (
        file_name for file_name in files if not file_name.rpartition("/")[2].lower().startswith(_PROJECTOR)
    )
    return tuple(
        sorted({shard_names(file_name)[0] if shard_names(file_name) else file_name for file_name in models})
    )


def require_no_adapter(name: str, folder: Path) -> None:
    """Raises ModelError for a folder with an adapter, because the loader would ignore it."""
    for file_name in ADAPTER:
        if (folder / file_name).is_file():
            raise ModelError(
                f"the folder of model {name!r} has an adapter ({file_name}), which is not supported. "
                "Merge it into the weights of its base model (merge_and_unload of peft) and give the folder "
                "with these, or remove the file."
            )


def stamp(path: Path) -> Stamp:
    """Returns values that change with a file; follows links. Raises OSError if it does not exist."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def settled(found: Stamp) -> bool:
    """Whether a file is old enough that its next change gets another time."""
    return max(found[3:]) / 1e9 < time.time() - COARSE


def _gguf_files(name: str, path: Path) -> tuple[str, ...] | None:
    """Returns the GGUF files at a path; None for safetensors or no model. Raises ModelError for several."""
    if not path.is_dir():
        folder, first = path.parent, path.name
    else:
        folder = path
        models = gguf_models(entry.name for entry in path.iterdir() if entry.is_file())
        if not models or (path / WEIGHTS).exists() or (path / INDEX).exists():
            return None
        if len(models) > 1:
            raise ModelError(
                f"folder {name!r} has {len(models)} GGUF models: {', '.join(models[:5])}"
                f"{', …' if len(models) > 5 else ''}. Name one of these files."
            )
        first = models[0]
    shards = shard_names(first)
    missing = [entry for entry in shards if not (folder / entry).is_file()]
    if missing or not shards:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        lacking = f"{missing[0]!r}{others} is missing in {folder}" if missing else f"{first!r} has no parts"
        raise ModelError(f"model {name!r} is not complete: {lacking}. Fetch it again.")
    return shards


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
    """Raises ModelError for a tokenizer configuration that names files elsewhere."""
    try:
        fields: Any = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        files = list(fields.get("fast_tokenizer_files") or ())
    except (FileNotFoundError, ValueError, TypeError, AttributeError, RecursionError):
        return  # the tokenizer reports its own errors
    for file_name in files:
        if not isinstance(file_name, str) or "/" in file_name or "\\" in file_name:
            raise ModelError(
                f"model {name!r}: tokenizer_config.json names {file_name!r}, which is not a "
                "file in its folder. Save the tokenizer with save_pretrained."
            )


def _shards(name: str, folder: Path) -> tuple[str, ...]:
    """Returns the sorted file names in the index of a sharded checkpoint.

    Raises:
        ModelError: the index is malformed, or names something else than a safetensors file in the folder.
    """
    try:
        index: Any = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        named = set(index["weight_map"].values())
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        named = set()
    if not named:
        raise ModelError(f"model {name!r}: {INDEX} is not an index of weights. Fetch the file again.")
    for shard in named:
        inside = (
            isinstance(shard, str) and not PurePosixPath(shard).is_absolute() and ".." not in shard.split("/")
        )
        if not inside or "\\" in shard or not shard.endswith(SAFETENSORS):
            raise ModelError(
                f"model {name!r}: {INDEX} names {shard!r}, which is not a *.safetensors file in its "
                "folder. Use a folder that save_pretrained wrote."
            )
    return tuple(sorted(named))


def _unreadable(name: str, error: OSError) -> ModelError:
    reason = (error.strerror or "it cannot be read").lower()
    return ModelError(
        f"model {name!r}: {str(error.filename)!r} cannot be read ({reason}). Check the folder and "
        "its permissions."
    )
