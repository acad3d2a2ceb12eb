"""A folder of attention maps: a manifest, and a safetensors file for each text.

An entry's maps are fp16 [layers, heads, rows, rows], as a whole: half of each is empty, but the file is
mapped as it is. A file's time of change is the last use of its entry.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import time
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
import xxhash
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from engine.base.errors import MapsError
from engine.files import atomic
from engine.model.model import Model

log = logging.getLogger(__name__)

BUDGET = 2 << 30  # bytes
MANIFEST, _FORMAT = "maps.json", 1
_NAME = re.compile(r"([0-9a-f]{32})\.safetensors")


@dataclass(frozen=True)
class Made:
    """What a folder's maps were made with.

    Attributes:
        format: the version of the folder's form.
        model: the model's name.
        fingerprint: the digest of its weights, configuration and tokenizer.
        dtype: its number format.
        layers: its layers.
        heads: the attention heads of each.
        by_layer: whether entries have the input of each layer.
    """

    format: int
    model: str
    fingerprint: str
    dtype: str
    layers: int
    heads: int
    by_layer: bool


@dataclass(frozen=True)
class Entry:
    """A text's maps on disk.

    Attributes:
        key: the digest of the tokens.
        rows: the number of tokens.
        bytes: the size of the file.
        used: the time of the last use, in nanoseconds.
    """

    key: str
    rows: int
    bytes: int
    used: int


def key_of(tokens: Sequence[int]) -> str:
    """Returns the name of a text's entry."""
    return xxhash.xxh3_128(array("i", tokens).tobytes()).hexdigest()


class MapStore:
    """The maps of one model in a folder. Made by `MapStore.create` or `MapStore.open`.

    Attributes:
        path: the folder.
        made: what they were made with.
        entries: the entries by key.
    """

    def __init__(self, path: Path, made: Made) -> None:
        self.path, self.made = path, made
        self.entries: dict[str, Entry] = {}
        self._checked: set[str] = set()
        self._in_use: Counter[str] = Counter()
        for file in sorted(path.iterdir()):
            if (match := _NAME.fullmatch(file.name)) is not None:
                with contextlib.suppress(OSError, SafetensorError, ValueError, KeyError, TypeError):
                    self.entries[match[1]] = _entry(file, match[1])

    @staticmethod
    def create(path: Path, model: Model, heads: int, *, by_layer: bool = False) -> MapStore:
        """Opens a folder, which is made if it does not exist.

        Raises:
            MapsError: it belongs to another model, has other files, or cannot be written.
        """
        made = Made(_FORMAT, model.name, model.fingerprint, model.dtype, model.layers, heads, by_layer)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not (path / MANIFEST).exists():
                if any(not one.name.endswith((".tmp", ".lock")) for one in path.iterdir()):
                    raise MapsError(f"{path} has other files. Name an empty or a new folder.")
                with atomic.writing(path, MANIFEST) as file:
                    file.write(json.dumps(asdict(made), indent=1).encode())
        except OSError as error:
            raise MapsError(f"{path} cannot be written: {error.strerror or error}.") from None
        store = MapStore.open(path, model)
        if by_layer and not store.made.by_layer:
            raise MapsError(f"{path} was built without the inputs of layers. Name a new folder.")
        return store

    @staticmethod
    def open(path: Path, model: Model | None = None) -> MapStore:
        """Opens a folder of maps, for a model or to look at it.

        Raises:
            MapsError: it is no such folder, is damaged, or was made for another model.
        """
        try:
            given: Any = json.loads((path / MANIFEST).read_bytes())
            if not isinstance(given, dict) or "format" not in given:
                raise ValueError("it names no format")
            if given["format"] != _FORMAT:
                raise MapsError(f"{path} has the format {given['format']!r}; this version reads {_FORMAT}.")
            if {*given} != {field.name for field in fields(Made)}:
                raise ValueError("it has other fields")
            made = Made(**given)
            store = MapStore(path, made)
        except FileNotFoundError:
            raise MapsError(
                f"{path} is no folder of attention maps. Build one: pml maps build CORPUS --maps {path}"
            ) from None
        except (OSError, ValueError) as error:
            raise MapsError(
                f"{path / MANIFEST} cannot be read ({error}). Delete the folder, and build it again."
            ) from None
        if model is not None and (made.fingerprint, made.dtype) != (model.fingerprint, model.dtype):
            raise MapsError(
                f"{path} was built for {made.model!r} ({made.dtype}), and the model is {model.name!r} "
                f"({model.dtype}) with other weights or another number format. Build a folder for it."
            )
        return store

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """Keeps other programs from writing; raises MapsError if one does."""
        try:
            with FileLock(self.path / "build.lock", timeout=0):
                yield
        except Timeout:
            raise MapsError(f"Another program builds {self.path}. Wait for it.") from None

    @property
    def bytes(self) -> int:
        """The size of all entries."""
        return sum(entry.bytes for entry in self.entries.values())

    @contextlib.contextmanager
    def in_use(self, key: str) -> Iterator[None]:
        """Notes the use of an entry, and keeps it from eviction meanwhile."""
        self._in_use[key] += 1
        if key in self.entries:
            self.entries[key] = replace(self.entries[key], used=time.time_ns())
            with contextlib.suppress(OSError):
                os.utime(self._file(key))
        try:
            yield
        finally:
            self._in_use[key] -= 1

    def load(self, key: str) -> dict[str, Tensor] | None:
        """Maps an entry into memory: `maps` and `inputs`. A damaged one is deleted and gives None.

        The digest is checked at the first load of this store.
        """
        entry = self.entries.get(key)
        if entry is None:
            return None
        file = self._file(key)
        try:
            with safe_open(file, "pt") as opened:
                notes = opened.metadata() or {}
                found = {name: opened.get_tensor(name) for name in ("inputs", "maps")}
            sides = (self.made.layers, self.made.heads, entry.rows, entry.rows)
            if tuple(found["maps"].shape) != sides or found["maps"].dtype != torch.float16:
                raise ValueError("its maps have another shape")
            if key not in self._checked and _digest(found) != notes.get("digest"):
                raise ValueError("its digest differs")
            self._checked.add(key)
            return found
        except (OSError, SafetensorError, ValueError, KeyError) as error:
            log.warning("maps %s are not used (%s); pml maps build computes them again", key, error)
            self.remove([key])
            return None

    def add(self, key: str, maps: Tensor, inputs: Tensor, budget: int, protected: Collection[str]) -> bool:
        """Writes an entry, and evicts the least recently used ones if the budget is full.

        Args:
            key: the digest of the tokens.
            maps: [layers, heads, rows, rows].
            inputs: what projectors read, [projectors, width].
            budget: the most bytes of all entries.
            protected: entries that are not evicted, like those in use.

        Returns:
            False if there is no room next to the protected entries.

        Raises:
            MapsError: the file cannot be written.
        """
        tensors = {"maps": maps.cpu().half().contiguous(), "inputs": inputs.cpu().half().contiguous()}
        data = save(tensors, {"rows": str(maps.shape[-1]), "digest": _digest(tensors)})
        free, evicted = budget - self.bytes, []
        for old in sorted(self.entries.values(), key=lambda entry: entry.used):
            if free >= len(data):
                break
            if old.key not in protected and not self._in_use[old.key]:
                free += old.bytes
                evicted.append(old.key)
        if free < len(data):
            return False
        self.remove(evicted)
        try:
            with atomic.writing(self.path, self._file(key).name) as file:
                file.write(data)
        except OSError as error:
            raise MapsError(
                f"maps cannot be written to {self.path}: {error.strerror or error}. What is finished stays; "
                "make room and build again."
            ) from None
        self.entries[key] = _entry(self._file(key), key)
        return True

    def remove(self, keys: Sequence[str]) -> None:
        """Deletes entries."""
        for key in keys:
            self._checked.discard(key)
            if self.entries.pop(key, None) is not None:
                with contextlib.suppress(OSError):
                    self._file(key).unlink()

    def _file(self, key: str) -> Path:
        return self.path / f"{key}.safetensors"


def _entry(file: Path, key: str) -> Entry:
    status = file.stat()
    with safe_open(file, "pt") as opened:
        rows = int((opened.metadata() or {})["rows"])
    return Entry(key, rows, status.st_size, status.st_mtime_ns)


def _digest(tensors: dict[str, Tensor]) -> str:
    digest = xxhash.xxh3_128()
    for name in sorted(tensors):
        digest.update(f"{name}{tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].numpy().data)
    return digest.hexdigest()
