"""Weights in eight or four bits, for torch's quantized products on the processor.

A decoding step reads all weights once, so fewer bits are faster. Activations, keys and values stay in bf16,
and so do embeddings and layers that are not torch's own linear ones. A rounded network has its own
fingerprint and is probed separately.
"""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from engine.base.choices import Quantize
from engine.base.errors import ModelError

GROUP = 32  # four-bit weights of a row that share a scale and a middle
COLUMNS, ROWS = (
    32,
    16,
)  # required multiples of the products; with other shapes they fail or read out of bounds
BLOCK = 1 << 18  # weights to round at once
_ROUTERS = frozenset({"gate", "router"})  # a rounded score would pick another expert


class QuantizedLinear(nn.Module, abc.ABC):
    """A linear layer with a rounded weight. Its result for a row does not depend on other rows.

    Args:
        plain: the layer to replace, on the processor; its sizes are multiples of `COLUMNS` and `ROWS`.

    Attributes:
        scheme: of its weight.
        in_features: channels of its input.
        out_features: channels of its output.
        bias: [out_features] in bf16, or None.
    """

    scheme: Quantize
    bias: nn.Parameter | None

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.bias = plain.bias

    @property
    def weight(self) -> Tensor:
        """A bf16 copy of the rounded weight, [out_features, in_features]."""
        return self._product(torch.eye(self.in_features, dtype=torch.bfloat16)).t().contiguous()

    def forward(self, x: Tensor) -> Tensor:
        """Maps x [..., in_features] in bf16 to [..., out_features]."""
        if not x.numel():
            return x.new_empty(*x.shape[:-1], self.out_features)
        out = self._product(x.reshape(-1, self.in_features).contiguous())
        if self.bias is not None:
            out += self.bias
        return out.view(*x.shape[:-1], self.out_features)

    @abc.abstractmethod
    def _product(self, x: Tensor) -> Tensor:
        """Maps [rows, in_features] to [rows, out_features], without the bias."""


class EightBitLinear(QuantizedLinear):
    """A layer with eight bits for each weight, and a scale for each row."""

    scheme = "int8"

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__(plain)
        codes = torch.empty(plain.weight.shape, dtype=torch.int8)
        self.scales: Tensor
        self.register_buffer("scales", torch.empty(self.out_features, dtype=torch.bfloat16))
        for at, rows in _blocks(plain.weight):
            scales = _held(rows.abs().amax(1) / 127)
            self.scales[at] = scales.bfloat16()
            codes[at] = (rows / scales[:, None]).round_().clamp_(-127, 127).to(torch.int8)
        self.codes = nn.Parameter(codes, requires_grad=False)

    def _product(self, x: Tensor) -> Tensor:
        # For hundreds of rows, bf16 copies of the codes would be a fourth faster but round differently.
        # Then a
        # segment's content would depend on the number of segments computed with it.
        return torch._weight_int8pack_mm(x, self.codes, self.scales)


class FourBitLinear(QuantizedLinear):
    """A layer with four bits for each weight, and a scale and a middle in bf16 for each `GROUP` of a row."""

    scheme = "int4"

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__(plain)
        groups = self.in_features // GROUP
        codes = torch.empty(plain.weight.shape, dtype=torch.int32)
        scales_and_middles = torch.empty(groups, self.out_features, 2, dtype=torch.bfloat16)
        for at, rows in _blocks(plain.weight):
            grouped = rows.view(-1, groups, GROUP)
            least, most = grouped.aminmax(dim=2, keepdim=True)
            scales = _held((most - least) / 15)
            middles = (least + 8 * scales).bfloat16().float()
            scales_and_middles[:, at] = torch.cat([scales, middles], 2).transpose(0, 1).bfloat16()
            codes[at] = ((grouped - middles) / scales).add_(8).round_().clamp_(0, 15).view_as(rows).int()
        self._hold(codes, scales_and_middles)

    @classmethod
    def of(cls, plain: nn.Linear, codes: Tensor, scales: Tensor) -> FourBitLinear:
        """Returns a layer from weights that are rounded already: (code - 8) * scale + middle.

        Args:
            plain: gives the sizes and the bias.
            codes: [out_features, in_features] in int32, 0 to 15.
            scales: the scale and the middle of each group, [groups, out_features, 2] in bf16.
        """
        layer = cls.__new__(cls)
        QuantizedLinear.__init__(layer, plain)
        layer._hold(codes, scales)
        return layer

    def _hold(self, codes: Tensor, scales: Tensor) -> None:
        self.scales: Tensor
        self.register_buffer("scales", scales)
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
        self.codes = nn.Parameter(packed, requires_grad=False)

    def _product(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.codes, GROUP, self.scales)
        return out


def require_quantizable(quantize: Quantize, device: torch.device, dtype: str) -> None:
    """Raises ModelError for a device or requested dtype that does not support rounded weights."""
    if device.type != "cpu":
        raise ModelError(
            f"--quantize {quantize} needs the processor, but this model would run on {device}; add --device "
            "cpu, or leave it out."
        )
    if dtype not in ("auto", "bf16"):
        raise ModelError(f"--quantize {quantize} computes in bf16 only; leave --dtype {dtype} out.")


def quantize_weights(name: str, module: Any, quantize: Quantize) -> None:
    """Replaces linear layers of a network by rounded ones, one at a time, so that no weight has two copies.

    The head gets at least eight bits, because its errors are those of the logits. Weights that several
    modules share (embedding and tied head) stay unchanged. So do routers of experts, layers of other kinds,
    and sizes that are not multiples of `COLUMNS` and `ROWS`.

    Args:
        name: the model's name, for messages.
        module: of transformers, on the processor, in bf16 and evaluation mode.
        quantize: "int8" or "int4".

    Raises:
        ModelError: no layer can be rounded.
    """
    head = module.get_output_embeddings()
    names = {part: place for place, part in module.named_modules()}
    layers = _roundable(name, module, "cpu")
    with torch.inference_mode():
        while layers:
            layer = layers.pop()
            rounded: Callable[[nn.Linear], QuantizedLinear] = (
                EightBitLinear if quantize == "int8" or layer is head else FourBitLinear
            )
            module.set_submodule(names.pop(layer), rounded(layer))
            head = None if layer is head else head
            del layer


def quantized_scheme(module: nn.Module) -> Quantize:
    """Returns the rounding of a network's weights."""
    schemes = {part.scheme for part in module.modules() if isinstance(part, QuantizedLinear)}
    return "int4" if "int4" in schemes else "int8" if schemes else "none"


def _roundable(name: str, module: Any, device: str) -> list[nn.Linear]:
    """Returns the layers on a device that can be rounded, at least one."""
    layers = _linear_layers(module, device)
    if not layers:
        raise ModelError(
            f"model {name!r} has no layers that --quantize can round; leave it out. It rounds torch's own "
            "linear layers."
        )
    return layers


def rounded_bytes(name: str, module: Any, quantize: Quantize) -> int:
    """Returns the bytes of a network's weights after rounding, the rest in bf16; the module is on `meta`."""
    layers = _roundable(name, module, "meta")
    head = module.get_output_embeddings()
    plain: int = sum(part.numel() for part in module.parameters()) - sum(
        part.weight.numel() for part in layers
    )
    rounded = 0
    for layer in layers:
        if quantize == "int8" or layer is head:
            rounded += layer.weight.numel() + 2 * layer.out_features
        else:
            rounded += layer.weight.numel() // 2 + 4 * layer.weight.numel() // GROUP
    return 2 * plain + rounded


def _linear_layers(module: nn.Module, device: str) -> list[nn.Linear]:
    users = Counter(id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False))
    return [
        part
        for name, part in module.named_modules()
        if type(part) is nn.Linear
        and part.weight.device.type == device
        and part.in_features % COLUMNS == 0
        and part.out_features % ROWS == 0
        and users[id(part.weight)] == 1
        and name.rpartition(".")[2] not in _ROUTERS
        and not part._forward_hooks
        and not part._forward_pre_hooks
    ]


def _blocks(weight: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yields rows of a weight in fp32, few enough at once to stay in the processor's cache."""
    step = max(1, BLOCK // weight.shape[1])
    for at in range(0, len(weight), step):
        yield slice(at, at + step), weight[at : at + step].float()


def _held(scales: Tensor) -> Tensor:
    """Returns scales rounded to bf16, in fp32 and above 0."""
    return scales.clamp_min(1e-30).bfloat16().float()
