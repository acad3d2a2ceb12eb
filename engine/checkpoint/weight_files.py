"""The weights in the files of a checkpoint, with lazy reading and a record of which were read."""

from __future__ import annotations

import abc
import json
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.base.errors import ModelError
from engine.checkpoint.checkpoint import INDEX, WEIGHTS, Checkpoint

_POINTER = b"version https://git-lfs"
_SHOWN = 3  # names in a message


class Weights:
    """The tensors of a model in its files.

    Attributes:
        tensors: by their names in transformers or in the files.
        described_by: the source of their expected sizes.
        again: the hint for wrong sizes.
    """

    tensors: dict[str, StoredTensor]
    described_by: str = "config.json"
    again: str = "Correct config.json, fetch the model again, or save it with save_pretrained."

    @property
    def unread(self) -> list[str]:
        """The names of the tensors that were not read, in the order of the files."""
        return [key for key, tensor in self.tensors.items() if not tensor.was_read]


class WeightFiles(Weights):
    """The tensors of all safetensors files, by their names in the files.

    `progress` is called with (bytes read, total bytes). The exit stack closes the files.

    Raises:
        ModelError: a file is damaged, two files have different tensors of one name, or a tensor of the index
            is missing.
    """

    def __init__(
        self,
        name: str,
        checkpoint: Checkpoint,
        files: ExitStack,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        total = sum((checkpoint.folder / shard).stat().st_size for shard in checkpoint.weights)
        count = Count(total, progress)
        self.tensors = {}
        for file_name in checkpoint.weights:
            file = _opened(name, checkpoint, file_name, files)
            for key in file.keys():  # noqa: SIM118 - not a dict
                tensor = _SafeTensor(file.get_slice(key), count)
                if key in self.tensors and not tensor.equals(self.tensors[key]):
                    raise ModelError(
                        f"two files of model {name!r} have different weights named {key!r}; one of them is "
                        f"{file_name!r}. Fetch the model again."
                    )
                self.tensors[key] = tensor
        if checkpoint.weights != (WEIGHTS,):
            self._require_indexed(name, checkpoint)

    def _require_indexed(self, name: str, checkpoint: Checkpoint) -> None:
        index = json.loads((checkpoint.folder / INDEX).read_text(encoding="utf-8"))
        lacking = [key for key in index["weight_map"] if key not in self.tensors]
        if lacking:
            raise ModelError(
                f"{INDEX} of model {name!r} names {listed(lacking)}, but no file has "
                f"{'it' if len(lacking) == 1 else 'them'}. Fetch the model again."
            )


class StoredTensor(abc.ABC):
    """A tensor in a file; indexing reads it.

    Attributes:
        dtype: the number format in the file, by its name in safetensors.
        shape: its sizes.
        was_read: whether it was read.
    """

    def __init__(self, dtype: str, shape: Sequence[int]) -> None:
        self.dtype, self.shape, self.was_read = dtype, list(shape), False

    @abc.abstractmethod
    def __getitem__(self, index: Any) -> Tensor:
        """Reads it, or a part of it."""

    @abc.abstractmethod
    def peek(self) -> Tensor:
        """Returns it, without counting it as read."""

    def equals(self, other: StoredTensor) -> bool:
        """Whether another tensor has the same bytes."""
        alike = (self.dtype, self.shape) == (other.dtype, other.shape)
        return alike and _bytes(self.peek()).equal(_bytes(other.peek()))


class _SafeTensor(StoredTensor):
    def __init__(self, plain: Any, count: Count) -> None:
        super().__init__(plain.get_dtype(), plain.get_shape())
        self._plain, self._count = plain, count

    def __getitem__(self, index: Any) -> Tensor:
        self.was_read = True
        if 0 in self.shape:  # safetensors cannot read empty tensors
            return torch.empty(self.shape)
        values: Tensor = self._plain[index]
        self._count.add(values.nbytes)
        return values

    def peek(self) -> Tensor:
        return torch.empty(self.shape) if 0 in self.shape else self._plain[...]


def listed(names: Sequence[str]) -> str:
    """Returns the first few names, and the number of others."""
    shown, more = ", ".join(map(repr, names[:_SHOWN])), len(names) - _SHOWN
    return shown if more <= 0 else f"{shown} and {more} more"


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.flatten().view(torch.uint8)


class Count:
    """Counts the bytes of weights; `progress` is called with (bytes read, total bytes)."""

    def __init__(self, total: int, progress: Callable[[int, int], None] | None) -> None:
        self._done, self._total, self._progress = 0, total, progress
        self._lock = threading.Lock()  # several threads read

    def add(self, size: int) -> None:
        """Adds bytes that were read."""
        if self._progress is not None:
            with self._lock:
                self._done = min(self._done + size, self._total)
                self._progress(self._done, self._total)


def _opened(name: str, checkpoint: Checkpoint, file_name: str, files: ExitStack) -> Any:
    path = checkpoint.folder / file_name
    opening: Any = safe_open  # its stub lacks the backend
    try:
        return files.enter_context(opening(path, framework="pt", device="cpu", backend="pread"))
    except SafetensorError as error:
        with path.open("rb") as file:
            pointer = file.read(len(_POINTER)) == _POINTER
        fix = (
            "It is a pointer of Git LFS: run `git lfs pull` in its folder."
            if pointer
            else "The file is damaged or cut short: fetch it again."
        )
        words = str(error).removeprefix("Error while deserializing header: ")
        raise ModelError(
            f"model {name!r} cannot be loaded: {file_name!r} has incomplete weights ({words}). {fix}"
        ) from error
