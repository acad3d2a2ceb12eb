"""A model in GGUF files, for the loader."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.generation.configuration_utils import GenerationConfig

from engine.base.errors import ModelError
from engine.gguf.configuration import architecture_of, read_metadata
from engine.gguf.reader import Header, TensorInfo, read_header
from engine.gguf.tokenizer import build
from engine.gguf.weights import GgufWeights, four_bit_share, read_plain, require_readable

FOUR_BIT_BYTES = 0.625  # per weight, with the scale and the middle of its group
_ENDS = ("eos", "eot", "eom")  # tokens that end an answer
_MOSTLY = 0.5  # share of a file's bytes in four-bit blocks


class GgufModel:
    """The files of one model.

    Args:
        name: the model's name, for messages.
        files: the file, or all its shards in order.
        sizes: bytes of the whole files, if only their beginnings exist; then the configuration lacks rotary
            factors, and no tensor can be read.

    Raises:
        ModelError: a file is damaged, a shard belongs to another model, or the architecture or a number
            format is unknown.
        OSError: a file cannot be read.
    """

    def __init__(self, name: str, files: Sequence[Path], sizes: Sequence[int] = ()) -> None:
        self._name, self._cut = name, bool(sizes)
        self._header = _merged(name, files, sizes or [None] * len(files))
        self._architecture = architecture_of(name, self._header)
        require_readable(name, self._header.tensors)

    @functools.cached_property
    def configuration(self) -> Any:
        """The configuration, of transformers; raises ModelError if it is not supported."""
        return read_metadata(self._name, self._header, self._factors)

    def _factors(self, key: str) -> Tensor:
        tensor = self._header.tensors[key]
        return torch.ones(tensor.shape) if self._cut else read_plain(tensor)

    @functools.cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, of transformers; raises ModelError if the file has none or an unknown one."""
        return build(self._name, self._header.metadata)

    def tensors(self, progress: Callable[[int, int], None] | None = None) -> GgufWeights:
        """Returns the tensors by transformers' names; `progress` is called with (bytes read, total bytes).

        Raises:
            ModelError: the sizes of a tensor do not fit the configuration.
        """
        return GgufWeights(self._name, self._header.tensors, self._architecture, self.configuration, progress)

    @property
    def generation(self) -> GenerationConfig:
        """The tokens that begin and end an answer."""
        generation = GenerationConfig.from_model_config(self.configuration)
        ends = {token for key in _ENDS if (token := self._token(key)) is not None and self._has(token)}
        generation.eos_token_id = sorted(ends) or None
        return generation

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on unused parts of the files."""
        absent = [
            f"{key}_token_id ({token})"
            for key in ("bos", *_ENDS)
            if (token := self._token(key)) is not None and not self._has(token)
        ]
        if not absent:
            return ()
        return (
            f"the GGUF file of model {self._name!r} names tokens that its vocabulary lacks: "
            f"{', '.join(absent)}. They are ignored",
        )

    def _token(self, key: str) -> int | None:
        token = self.metadata.get(f"tokenizer.ggml.{key}_token_id")
        return token if type(token) is int else None

    def _has(self, token: int) -> bool:
        return 0 <= token < len(self.metadata.get("tokenizer.ggml.tokens", ()))

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return sum(math.prod(info.shape) for info in self._header.tensors.values())

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the file by key."""
        return self._header.metadata

    @property
    def tensors_stored(self) -> Collection[TensorInfo]:
        """The tensors in the files."""
        return self._header.tensors.values()

    @property
    def bytes(self) -> int:
        """The bytes of all tensors in the files."""
        return sum(info.bytes for info in self.tensors_stored)

    def require_roundable(self, quantize: str) -> None:
        """Raises ModelError for a request to round weights that have four bits already."""
        if quantize != "none" and self.in_four_bits:
            raise ModelError(
                f"the weights of model {self._name!r} are in four bits already. Leave --quantize {quantize} "
                "out; --dtype bf16 computes with them as they are."
            )

    @property
    def in_four_bits(self) -> bool:
        """Whether most of its bytes are four-bit blocks with which torch computes on the processor."""
        return four_bit_share(self._header.tensors) > _MOSTLY

    def keeps_blocks(self, device: torch.device, dtype: torch.dtype) -> bool:
        """Whether four-bit blocks stay packed: in bf16 on the processor."""
        return device.type == "cpu" and dtype == torch.bfloat16 and self.in_four_bits

    def loaded_bytes(self, device: torch.device, dtype: torch.dtype) -> int:
        """Returns the bytes of the weights on a device in a number format."""
        packed = self.keeps_blocks(device, dtype)
        weights = self.tensors()
        if packed:
            weights.keep()
        return int(
            sum(
                math.prod(tensor.shape) * (FOUR_BIT_BYTES if tensor.kept else dtype.itemsize)
                for tensor in weights.tensors.values()
            )
        )


def _merged(name: str, files: Sequence[Path], sizes: Sequence[int | None]) -> Header:
    """Merges the headers of all shards: the metadata of the first, the tensors of all."""
    headers = [read_header(name, path, size) for path, size in zip(files, sizes, strict=True)]
    tensors: dict[str, TensorInfo] = {}
    for number, (path, header) in enumerate(zip(files, headers, strict=True)):
        count = header.metadata.get("split.count", 1)
        if (header.metadata.get("split.no", 0), count) != (number, len(files)) and (count or len(files) > 1):
            raise ModelError(
                f"model {name!r}: {path.name!r} is part {header.metadata.get('split.no', 0)} of {count} by "
                f"its header (from 0), but part {number} of {len(files)} by its name. Fetch all parts "
                "again."
            )
        twice = next((key for key in header.tensors if key in tensors), None)
        if twice is not None:
            raise ModelError(
                f"model {name!r}: two of its files have the tensor {twice!r}; one is {path.name!r}. Fetch "
                "all parts again."
            )
        tensors.update(header.tensors)
    wanted = headers[0].metadata.get("split.tensors.count", len(tensors))
    if wanted != len(tensors):
        raise ModelError(
            f"model {name!r}: its files have {len(tensors)} tensors, but {wanted} are needed. Fetch "
            "all parts again."
        )
    return Header(headers[0].metadata, tensors)
