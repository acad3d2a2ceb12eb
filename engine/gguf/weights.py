"""The tensors of GGUF files under transformers' names, with lazy reading.

Four-bit blocks can stay packed: torch's product for the processor computes w = (q - 8) * s + z over groups of
32, which has the same form (Q4_0: s = d, z = 0; Q4_1: s = d, z = 8 d + m; Q4_K for each of its 8 parts: s = d
sc, z = 8 s - dmin m). Other blocks become numbers. Source: ggml-quants.c.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from torch import Tensor, nn

from engine.base.errors import ModelError
from engine.checkpoint.weight_files import Count, StoredTensor, Weights
from engine.gguf.configuration import EMBEDDING, FACTORS, FREQUENCIES, HEAD, Architecture
from engine.gguf.reader import TensorInfo
from engine.quantize.quantized_weights import COLUMNS, GROUP, ROWS, FourBitLinear

_Q4_0, _Q4_1, _Q4_K = (
    GGMLQuantizationType.Q4_0,
    GGMLQuantizationType.Q4_1,
    GGMLQuantizationType.Q4_K,
)
_PARTS = 8  # of a block of Q4_K
_TURNED = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}
_WHOLE: Final = {EMBEDDING: "model.embed_tokens", "output_norm.weight": "model.norm", HEAD: "lm_head"}
_TABLES = frozenset({FREQUENCIES, *FACTORS})  # of the rotary embedding; part of the configuration


class GgufTensor(StoredTensor):
    """A tensor of a file under transformers' name; indexing reads it.

    Args:
        info: its place.
        count: counts the bytes that are read.
        heads: of its rows, if these are pairs of neighbours; 0 if they have transformers' order.
        shift: the offset in the file.

    Attributes:
        kept: whether its blocks stay packed; zeros without memory represent it until `keep_blocks`.
    """

    def __init__(self, info: TensorInfo, count: Count, heads: int = 0, shift: float = 0.0) -> None:
        self.info, self._count, self._heads, self._shift = info, count, heads, shift
        super().__init__("F32", info.shape)
        self.kept = False

    def __getitem__(self, index: Any) -> Tensor:
        self.was_read = True
        if self.kept:
            return torch.zeros((), dtype=torch.bfloat16).expand(self.shape)[index]
        self._count.add(self.info.bytes)
        values: Tensor = self.peek()[index]
        return values

    def peek(self) -> Tensor:
        """Returns its numbers in fp32, without counting it as read."""
        numbers = torch.from_numpy(dequantize(self._bytes(), self.info.kind)).float().view(self.shape)
        return self.in_order(numbers).sub_(self._shift) if self._shift else self.in_order(numbers)

    def in_order(self, rows: Tensor) -> Tensor:
        """Puts rows [rows, …] in transformers' order: the first half of a head before the second."""
        if not self._heads:
            return rows
        pairs = rows.view(self._heads, -1, 2, *rows.shape[1:])
        return pairs.transpose(1, 2).reshape(rows.shape)

    def blocks(self) -> tuple[Tensor, Tensor]:
        """Returns four-bit codes [rows, columns] in int32 and scales [groups, rows, 2] in bf16."""
        self._count.add(self.info.bytes)
        rows, columns = self.shape
        raw = torch.from_numpy(self._bytes()).view(rows, -1, GGML_QUANT_SIZES[self.info.kind][1])
        codes, scales, middles = _PARTED[self.info.kind](raw)
        both = torch.stack([scales, middles], -1).view(rows, columns // GROUP, 2)
        return (
            self.in_order(codes.reshape(rows, columns)).int().contiguous(),
            self.in_order(both).transpose(0, 1).contiguous().bfloat16(),
        )

    def _bytes(self) -> Any:
        with self.info.path.open("rb") as file:
            file.seek(self.info.offset)
            raw = np.fromfile(file, dtype=np.uint8, count=self.info.bytes)
        if len(raw) != self.info.bytes:
            raise OSError(0, "the file shrank during reading", str(self.info.path))
        return raw.reshape(*self.shape[:-1], -1)


class GgufWeights(Weights):
    """The tensors of all files of a model, by transformers' names; unknown ones keep the name of the file.

    `stored` has the tensors by the names in the files. `progress` is called with (bytes read, total bytes).
    """

    described_by = "the metadata of the GGUF file"
    again = "Fetch the file again, or convert the model again."

    def __init__(
        self,
        name: str,
        stored: Mapping[str, TensorInfo],
        architecture: Architecture,
        config: Any,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        count = Count(sum(tensor.bytes for tensor in stored.values()), progress)
        self.tensors: dict[str, GgufTensor] = {}  # type: ignore[assignment]
        for key, info in stored.items():
            if key in _TABLES:
                continue
            part = key.split(".")[-2] if "." in key else key
            heads = getattr(config, _TURNED[part]) if architecture.turned and part in _TURNED else 0
            if heads and info.shape[0] % (2 * heads):
                raise ModelError(
                    f"model {name!r}: {key!r} has the sizes {list(info.shape)} in the GGUF file, which do "
                    f"not fit {heads} heads. Fetch the file again."
                )
            shift = architecture.shift if part.endswith("norm") else 0.0
            renamed = _renamed(key, architecture)
            if renamed in self.tensors:
                raise ModelError(
                    f"model {name!r}: the GGUF file has two tensors for {renamed!r}; one is {key!r}. Fetch "
                    "the file again."
                )
            self.tensors[renamed] = GgufTensor(info, count, heads, shift)

    def keep(self) -> None:
        """Marks four-bit blocks to stay packed if torch's product supports their shape."""
        for key, tensor in self.tensors.items():
            tensor.kept = (
                tensor.info.kind in _PARTED
                and len(tensor.shape) == 2
                and tensor.shape[1] % COLUMNS == 0
                and tensor.shape[0] % ROWS == 0
                and not key.startswith("model.embed_tokens")
            )

    def keep_blocks(self, module: Any) -> None:
        """Replaces layers of packed tensors by layers that compute with the files' blocks."""
        for key, tensor in self.tensors.items():
            if tensor.kept:
                place = key.removesuffix(".weight")
                plain: nn.Linear = module.get_submodule(place)
                module.set_submodule(place, FourBitLinear.of(plain, *tensor.blocks()))


def require_readable(name: str, stored: Mapping[str, TensorInfo]) -> None:
    """Raises ModelError for a tensor in a format without a conversion to numbers."""
    readable = {kind: _readable(kind) for kind in {info.kind for info in stored.values()}}
    for key, info in stored.items():
        if not readable[info.kind]:
            raise ModelError(
                f"model {name!r}: {key!r} of the GGUF file is stored as {info.kind.name}, which is not "
                "supported. Use a GGUF file in another format, or the model as safetensors."
            )


def _readable(kind: GGMLQuantizationType) -> bool:
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def four_bit_share(stored: Mapping[str, TensorInfo]) -> float:
    """Returns the share of a model's bytes in four-bit blocks with which torch can compute."""
    total = sum(info.bytes for info in stored.values())
    return sum(info.bytes for info in stored.values() if info.kind in _PARTED) / max(total, 1)


def read_plain(info: TensorInfo) -> Tensor:
    """Returns the numbers of a tensor in fp32, in the order of the file."""
    return GgufTensor(info, Count(0, None)).peek()


def _renamed(key: str, architecture: Architecture) -> str:
    if key in _WHOLE:
        return f"{_WHOLE[key]}.weight"
    match key.split("."):
        case ["blk", number, part, ("weight" | "bias") as kind] if part in architecture.layer:
            return f"model.layers.{number}.{architecture.layer[part]}.{kind}"
    return key


def _half(raw: Tensor) -> Tensor:
    """Converts two bytes [..., 2] to numbers [..., 1] of fp16."""
    return raw.contiguous().view(torch.float16).float()


def _nibbles(raw: Tensor) -> Tensor:
    """Returns the lower halves of all bytes [..., n], then the upper ones: [..., 2 n]."""
    return torch.cat([raw & 15, raw >> 4], -1)


def _q4_0(raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scales = _half(raw[..., :2])
    return _nibbles(raw[..., 2:]), scales, torch.zeros_like(scales)


def _q4_1(raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scales, least = _half(raw[..., :2]), _half(raw[..., 2:4])
    return _nibbles(raw[..., 4:]), scales, least + 8 * scales


def _q4_k(raw: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Unpacks blocks of 256 in 8 parts, with six-bit scales and minima in twelve bytes."""
    packed = raw[..., 4:16]
    first, second, upper = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = torch.cat([first & 63, (upper & 15) | ((first >> 6) << 4)], -1)
    least = torch.cat([second & 63, (upper >> 4) | ((second >> 6) << 4)], -1)
    scales, least = _half(raw[..., :2]) * scales, _half(raw[..., 2:4]) * least
    codes = _nibbles(raw[..., 16:].reshape(*raw.shape[:-1], _PARTS // 2, -1)).flatten(-2)
    return codes, scales, 8 * scales - least


_PARTED: Final = {_Q4_0: _q4_0, _Q4_1: _q4_1, _Q4_K: _q4_k}
