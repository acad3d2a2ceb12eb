"""Weights laid out once in the blocks that the processor's products read, where they are measured to win.

A linear layer of torch keeps its weight in rows, and oneDNN reads it in blocks: for the few rows of a cached
prefill, or the one of a decoding step, bringing it into blocks costs more than the product. Here it is done
when the model is loaded, layer by layer, and the rows are let go. By itself only where the products are the
same to the last bit, so that what a model answers does not hang on a measurement.

The public way (`torch.utils.mkldnn`) converts each layer's rows there and back and lays out nothing; the
operators below are those that torch's own compiler writes.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.base.choices import Weights

ROWS = (
    32  # that blocks are laid out for: one row reads them as fast, and many rows faster than blocks for one
)
SMALL = 64 << 20  # bytes of weights; below, the calls cost more than the products
SAMPLE = 48 << 20  # bytes of one shape that are measured
SECONDS = 0.3  # that timing may take; answers are compared for every shape
COMPARED = (1, 2, 8, 32, 256)  # rows, of which products may be summed in other orders
WINS = 0.95  # of the time with rows, or less
_TURNS = 3


class PackedLinear(nn.Module):
    """A linear layer whose weight is in blocks.

    Args:
        plain: the layer to do the work of; on the processor, in fp32 or bf16.

    Attributes:
        in_features: channels of its input.
        out_features: channels of its output.
        bias: [out_features], or None.
    """

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.bias = plain.bias
        self._blocks: Tensor = torch.ops.mkldnn._reorder_linear_weight(plain.weight.detach(), ROWS)

    @property
    def dtype(self) -> torch.dtype:
        """The number format of the weight."""
        return self._blocks.dtype

    @property
    def weight(self) -> Tensor:
        """The weight in rows, [out_features, in_features]; a copy, for who looks at it."""
        rows: Tensor = self._blocks.to_dense()
        return rows

    def forward(self, x: Tensor) -> Tensor:
        """Maps x [..., in_features] to [..., out_features]."""
        if not x.numel():
            return x.new_empty(*x.shape[:-1], self.out_features)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._blocks, self.bias, "none", [], "")
        return out


def pack_weights(module: nn.Module, weights: Weights = "auto") -> int:
    """Replaces linear layers of a network by packed ones, one at a time, so that no weight is held twice.

    A weight that other modules share (of an embedding and the head that is tied to it) stays as it is: packed
    it would be held twice. So do layers of other kinds, and of formats that the processor does not multiply.

    Args:
        module: of transformers, in evaluation mode.
        weights: "plain" for none, "packed" for all that can be, "auto" for the shapes on which they win here.

    Returns:
        How many layers are packed.
    """
    if weights == "plain" or not _possible():
        return 0
    shapes: dict[tuple[Any, ...], list[tuple[str, nn.Linear]]] = defaultdict(list)
    for name, layer in _linear_layers(module):
        shapes[layer.weight.dtype, tuple(layer.weight.shape), layer.bias is None].append((name, layer))
    groups = sorted(shapes.values(), key=_bytes, reverse=True)
    if weights == "auto":
        groups = _winners(groups) if sum(map(_bytes, groups)) >= SMALL else []
    packed = 0
    with torch.inference_mode():
        for group in groups:
            while group:
                name, layer = group.pop()
                module.set_submodule(name, PackedLinear(layer))
                packed += 1
                del layer
    return packed


def packed_layers(module: nn.Module) -> int:
    """Returns how many layers of a network are packed."""
    return sum(isinstance(part, PackedLinear) for part in module.modules())


def _possible() -> bool:
    """Whether this torch has the operators, and may use them."""
    backend: Any = torch.backends.mkldnn  # its functions have no types
    if not backend.is_available():
        return False
    return hasattr(torch.ops.mkldnn, "_reorder_linear_weight") and hasattr(
        torch.ops.mkldnn, "_linear_pointwise"
    )


def _linear_layers(module: nn.Module) -> list[tuple[str, nn.Linear]]:
    """The layers that can be packed, by name."""
    formats = {torch.float32}
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        formats.add(torch.bfloat16)
    held = Counter(id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False))
    return [
        (name, part)
        for name, part in module.named_modules()
        if type(part) is nn.Linear
        and part.weight.device.type == "cpu"
        and part.weight.dtype in formats
        and held[id(part.weight)] == 1
        and not part._forward_hooks
        and not part._forward_pre_hooks
    ]


def _bytes(group: Sequence[tuple[str, nn.Linear]]) -> int:
    return sum(layer.weight.nbytes for _, layer in group)


def _winners(groups: Sequence[list[tuple[str, nn.Linear]]]) -> list[list[tuple[str, nn.Linear]]]:
    """The shapes on which packed weights give the same and win, heaviest first.

    For what time is too short is taken to be as fast as the last that was timed.
    """
    found: list[list[tuple[str, nn.Linear]]] = []
    spent, last = 0.0, False
    for group in groups:
        layers = [layer for _, layer in group]
        timed = spent < SECONDS
        if not (timed or last) or not _alike(layers[0]):
            continue
        if timed:
            started = time.perf_counter()
            last = _wins(layers)
            spent += time.perf_counter() - started
        if last:
            found.append(group)
    return found


@torch.inference_mode()
def _alike(layer: nn.Linear) -> bool:
    """Whether a packed weight gives the same to the last bit, for one row as for many."""
    packed = PackedLinear(layer)
    return all(_same(layer(x), packed(x)) for x in (_drawn(layer, rows) for rows in COMPARED))


def _drawn(layer: nn.Linear, rows: int) -> Tensor:
    """An input, [1, rows, in_features]."""
    draw = torch.Generator().manual_seed(0)
    return torch.randn(1, rows, layer.in_features, generator=draw).to(layer.weight.dtype)


@torch.inference_mode()
def _wins(layers: Sequence[nn.Linear]) -> bool:
    """Whether packed weights take less time, for one row and a prefill's together, in turns."""
    sample = layers[: max(1, SAMPLE // layers[0].weight.nbytes)]
    sides: tuple[Sequence[Callable[[Tensor], Tensor]], ...] = (sample, [PackedLinear(one) for one in sample])
    inputs = [_drawn(layers[0], rows) for rows in (1, ROWS)]
    times: dict[tuple[int, int], list[float]] = defaultdict(list)
    for _ in range(_TURNS + 1):
        for rows, x in enumerate(inputs):
            for side, products in enumerate(sides):
                started = time.perf_counter()
                for product in products:
                    product(x)
                times[side, rows].append(time.perf_counter() - started)
    plain, packed = (
        sum(statistics.median(times[side, rows][1:]) for rows in range(len(inputs))) for side in (0, 1)
    )
    return packed <= WINS * plain


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one, other)
