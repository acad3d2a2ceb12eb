"""Packs weights once into the blocks that the processor's products read, if a measurement favours it.

A linear layer of torch has its weight in rows, and oneDNN reads blocks. For the few rows of a cached prefill,
or the one of a decoding step, the conversion costs more than the product. This module converts each layer
when the model loads and frees the rows. In automatic mode it packs only if the products are bit-identical, so
that answers do not depend on a measurement.

The public way (`torch.utils.mkldnn`) converts each layer's rows back and forth and packs nothing. The
operators below are those that torch's own compiler emits.
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

ROWS = 32  # row count of the block layout: one row is as fast with it, and many rows are faster than with 1
SMALL = 64 << 20  # bytes of weights; below, the calls cost more than the products
SAMPLE = 48 << 20  # bytes of one shape to measure
SECONDS = 0.3  # limit of the timing; equality is tested for every shape
COMPARED = (1, 2, 8, 32, 256)  # row counts whose products may add in different orders
WINS = 0.95  # the most time, relative to rows
_TURNS = 3


class PackedLinear(nn.Module):
    """A linear layer with its weight in blocks.

    Args:
        plain: the layer to replace; on the processor, in fp32 or bf16.

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
        """A copy of the weight in rows, [out_features, in_features]."""
        rows: Tensor = self._blocks.to_dense()
        return rows

    def forward(self, x: Tensor) -> Tensor:
        """Maps x [..., in_features] to [..., out_features]."""
        if not x.numel():
            return x.new_empty(*x.shape[:-1], self.out_features)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._blocks, self.bias, "none", [], "")
        return out


def pack_weights(module: nn.Module, weights: Weights = "auto") -> int:
    """Replaces linear layers of a network by packed ones, one at a time, so that no weight has two copies.

    Weights that several modules share (embedding and tied head) stay, because packing would duplicate them.
    Layers of other kinds, and of formats that the processor does not multiply, stay too.

    Args:
        module: of transformers, in evaluation mode.
        weights: "plain" for none, "packed" for all possible ones, "auto" for the shapes that a measurement
            favours.

    Returns:
        The number of packed layers.
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
    """Returns the number of a network's packed layers."""
    return sum(isinstance(part, PackedLinear) for part in module.modules())


def _possible() -> bool:
    """Whether this torch has the operators and may use them."""
    backend: Any = torch.backends.mkldnn  # its functions have no types
    if not backend.is_available():
        return False
    return hasattr(torch.ops.mkldnn, "_reorder_linear_weight") and hasattr(
        torch.ops.mkldnn, "_linear_pointwise"
    )


def _linear_layers(module: nn.Module) -> list[tuple[str, nn.Linear]]:
    formats = {torch.float32}
    if torch.ops.mkldnn._is_mkldnn_bf16_supported():
        formats.add(torch.bfloat16)
    users = Counter(id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False))
    return [
        (name, part)
        for name, part in module.named_modules()
        if type(part) is nn.Linear
        and part.weight.device.type == "cpu"
        and part.weight.dtype in formats
        and users[id(part.weight)] == 1
        and not part._forward_hooks
        and not part._forward_pre_hooks
    ]


def _bytes(group: Sequence[tuple[str, nn.Linear]]) -> int:
    return sum(layer.weight.nbytes for _, layer in group)


def _winners(groups: Sequence[list[tuple[str, nn.Linear]]]) -> list[list[tuple[str, nn.Linear]]]:
    """The shapes for which packed weights give identical results and are faster, heaviest first.

    After the time limit, a shape counts as fast as the last timed one.
    """
    faster: list[list[tuple[str, nn.Linear]]] = []
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
            faster.append(group)
    return faster


@torch.inference_mode()
def _alike(layer: nn.Linear) -> bool:
    """Whether a packed weight gives bit-identical results, for one row and for many."""
    packed = PackedLinear(layer)
    return all(_same(layer(x), packed(x)) for x in (_drawn(layer, rows) for rows in COMPARED))


def _drawn(layer: nn.Linear, rows: int) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(1, rows, layer.in_features, generator=draw).to(layer.weight.dtype)


@torch.inference_mode()
def _wins(layers: Sequence[nn.Linear]) -> bool:
    """Whether packed weights take less time for one row and a prefill together."""
    sample = layers[: max(1, SAMPLE // layers[0].weight.nbytes)]
    sides: tuple[Sequence[Callable[[Tensor], Tensor]], ...] = (
        sample,
        [PackedLinear(layer) for layer in sample],
    )
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
