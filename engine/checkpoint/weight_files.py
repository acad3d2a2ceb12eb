"""The weights in the files of a checkpoint: each is read when it is asked for, and it is known which were."""

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
        tensors: by the names that transformers knows, or that they have in the files.
        described_by: what says of which sizes they have to be.
        again: what to do where they are not.
    """

    tensors: dict[str, StoredTensor]
    described_by: str = "config.json"
    again: str = "Correct config.json, fetch the model again, or save it with save_pretrained."

    @property
    def unread(self) -> list[str]:
        """The names of the tensors that nobody has asked for, in the order of the files."""
        return [key for key, tensor in self.tensors.items() if not tensor.was_read]


class WeightFiles(Weights):
    """The tensors of all files in safetensors.

    Args:
        name: the model's name, for messages.
        checkpoint: the files.
        files: closes them.
        progress: called with (bytes read, bytes in all).

    Attributes:
        tensors: by the names that they have in the files.

    Raises:
        ModelError: a file is damaged, two files hold different tensors of one name, or none holds a tensor
            that the index names.
    """

    def __init__(
        self,
        name: str,
        checkpoint: Checkpoint,
        files: ExitStack,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        total = sum((checkpoint.folder / one).stat().st_size for one in checkpoint.weights)
        count = Count(total, progress)
        self.tensors = {}
        for file_name in checkpoint.weights:
            file = _opened(name, checkpoint, file_name, files)
            for key in file.keys():  # noqa: SIM118 - it is no dict
                found = _SafeTensor(file.get_slice(key), count)
                if key in self.tensors and not found.equals(self.tensors[key]):
                    raise ModelError(
                        f"two files of model {name!r} hold different weights named {key!r}; one of them is "
                        f"{file_name!r}. Fetch the model again."
                    )
                self.tensors[key] = found
        if checkpoint.weights != (WEIGHTS,):
            self._require_indexed(name, checkpoint)

    def _require_indexed(self, name: str, checkpoint: Checkpoint) -> None:
        index = json.loads((checkpoint.folder / INDEX).read_text(encoding="utf-8"))
        lacking = [key for key in index["weight_map"] if key not in self.tensors]
        if lacking:
            raise ModelError(
                f"{INDEX} of model {name!r} names {listed(lacking)}, and no file holds "
                f"{'it' if len(lacking) == 1 else 'them'}. Fetch the model again."
            )


class StoredTensor(abc.ABC):
    """A tensor in a file, which reads it when it is indexed.

    Attributes:
        dtype: the number format in the file, as safetensors calls it.
        shape: its sizes.
        was_read: whether it was asked for.
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
        """Whether another one holds the same bytes."""
        alike = (self.dtype, self.shape) == (other.dtype, other.shape)
        return alike and _bytes(self.peek()).equal(_bytes(other.peek()))


class _SafeTensor(StoredTensor):
    """A tensor in a file of safetensors.

    Args:
        plain: a slice of safetensors.
        count: takes the bytes that are read.
    """

    def __init__(self, plain: Any, count: Count) -> None:
        super().__init__(plain.get_dtype(), plain.get_shape())
        self._plain, self._count = plain, count

    def __getitem__(self, index: Any) -> Tensor:
        self.was_read = True
        if 0 in self.shape:  # of these safetensors reads none
            return torch.empty(self.shape)
        found: Tensor = self._plain[index]
        self._count.add(found.nbytes)
        return found

    def peek(self) -> Tensor:
        return torch.empty(self.shape) if 0 in self.shape else self._plain[...]


def listed(names: Sequence[str]) -> str:
    """Returns the first few names, and how many more there are."""
    shown, more = ", ".join(map(repr, names[:_SHOWN])), len(names) - _SHOWN
    return shown if more <= 0 else f"{shown} and {more} more"


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.flatten().view(torch.uint8)


class Count:
    """How many bytes of weights are read.

    Args:
        total: how many there are.
        progress: called with (bytes read, bytes in all).
    """

    def __init__(self, total: int, progress: Callable[[int, int], None] | None) -> None:
        self._done, self._total, self._progress = 0, total, progress
        self._lock = threading.Lock()  # several threads read

    def add(self, size: int) -> None:
        """Takes bytes that were read."""
        if self._progress is not None:
            with self._lock:
                self._done = min(self._done + size, self._total)
                self._progress(self._done, self._total)


def _opened(name: str, checkpoint: Checkpoint, file_name: str, files: ExitStack) -> Any:
    path = checkpoint.folder / file_name
    opening: Any = safe_open  # its stub does not know the backend
    try:
        return files.enter_context(opening(path, framework="pt", device="cpu", backend="pread"))
    except SafetensorError as error:
        with path.open("rb") as file:
            pointer = file.read(len(_POINTER)) == _POINTER
        remedy = (
            "It is a pointer of Git LFS: run `git lfs pull` in its folder."
            if pointer
            else "Files that are damaged or were cut short must be fetched again."
        )
        words = str(error).removeprefix("Error while deserializing header: ")
        raise ModelError(
            f"model {name!r} cannot be loaded: {file_name!r} holds no complete weights ({words}). {remedy}"
        ) from error
