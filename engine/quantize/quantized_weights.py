"""Weights in eight or four bits, read as they are by torch's own products for the processor.

A step of decoding reads all weights once, so fewer bits of them are less to read. Activations, keys and
values stay in bf16, and so do embeddings and what is no linear layer of torch's own kind. What is rounded is
another network: it has a fingerprint of its own, and is probed as it is.
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

GROUP = 32  # weights of a row that share a scale and a middle, in four bits
COLUMNS, ROWS = 32, 16  # multiples that the products take; other shapes they read beyond, or refuse
BLOCK = 1 << 18  # weights that are rounded at once
_ROUTERS = frozenset({"gate", "router"})  # whose rounded score would pick another expert


class QuantizedLinear(nn.Module, abc.ABC):
    """A linear layer whose weight is rounded. What it computes is the same for a row beside any others.

    Args:
        plain: the layer to do the work of, on the processor; its sizes are multiples of `COLUMNS` and `ROWS`.

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
        """The rounded weight in bf16, [out_features, in_features]; made anew, for who looks at it."""
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
        """[rows, in_features] to [rows, out_features], without the bias."""


class EightBitLinear(QuantizedLinear):
    """Eight bits for each weight, and a scale for each row of them."""

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
        # For hundreds of rows bf16 copies of the codes would be a fourth faster, and round otherwise: then
        # what a segment holds would hang on how many others were computed beside it.
        return torch._weight_int8pack_mm(x, self.codes, self.scales)


class FourBitLinear(QuantizedLinear):
    """Four bits for each weight; a scale and a middle in bf16 for each `GROUP` of a row."""

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
        """Returns a layer of weights that are rounded already: (code - 8) * scale + middle.

        Args:
            plain: gives the sizes and the bias.
            codes: [out_features, in_features] in int32, 0 to 15.
            scales: the scale and the middle of each group, [groups, out_features, 2] in bf16.
        """
        made = cls.__new__(cls)
        QuantizedLinear.__init__(made, plain)
        made._hold(codes, scales)
        return made

    def _hold(self, codes: Tensor, scales: Tensor) -> None:
        self.scales: Tensor
        self.register_buffer("scales", scales)
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
        self.codes = nn.Parameter(packed, requires_grad=False)

    def _product(self, x: Tensor) -> Tensor:
        made: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.codes, GROUP, self.scales)
        return made


def require_quantizable(quantize: Quantize, device: torch.device, dtype: str) -> None:
    """Sees to it that a choice of devices and formats can be had with rounded weights.

    Args:
        quantize: "int8" or "int4".
        device: where the model would run.
        dtype: as it was asked for.

    Raises:
        ModelError: it cannot.
    """
    if device.type != "cpu":
        raise ModelError(
            f"--quantize {quantize} is for the processor, and this model would run on {device}; add --device "
            "cpu, or leave it out."
        )
    if dtype not in ("auto", "bf16"):
        raise ModelError(
            f"--quantize {quantize} computes in bf16, in which alone the products are fast; leave --dtype "
            f"{dtype} out."
        )


def quantize_weights(name: str, module: Any, quantize: Quantize) -> None:
    """Replaces linear layers of a network by rounded ones, one at a time, so that no weight is held twice.

    The head, whose errors are those of the logits, gets eight bits at least. A weight that other modules
    share (of an embedding and the head that is tied to it) stays as it is; so do what routes tokens to
    experts, layers of other kinds, and sizes that are no multiples of `COLUMNS` and `ROWS`.

    Args:
        name: the model's name, for messages.
        module: of transformers, on the processor, in bf16 and evaluation mode.
        quantize: "int8" or "int4".

    Raises:
        ModelError: it has no layer that can be rounded.
    """
    head = module.get_output_embeddings()
    names = {part: place for place, part in module.named_modules()}
    layers = _roundable(name, module, "cpu")
    with torch.inference_mode():
        while layers:
            layer = layers.pop()
            made: Callable[[nn.Linear], QuantizedLinear] = (
                EightBitLinear if quantize == "int8" or layer is head else FourBitLinear
            )
            module.set_submodule(names.pop(layer), made(layer))
            head = None if layer is head else head
            del layer


def quantized_scheme(module: nn.Module) -> Quantize:
    """Returns how a network's weights are rounded."""
    found = {part.scheme for part in module.modules() if isinstance(part, QuantizedLinear)}
    return "int4" if "int4" in found else "int8" if found else "none"


def _roundable(name: str, module: Any, device: str) -> list[nn.Linear]:
    """The layers on a device that can be rounded, of which there must be one."""
    layers = _linear_layers(module, device)
    if not layers:
        raise ModelError(
            f"model {name!r} has no layers that --quantize can round; leave it out. Rounded are linear "
            "layers of torch's own kind."
        )
    return layers


def rounded_bytes(name: str, module: Any, quantize: Quantize) -> int:
    """Returns what the weights of a network would take, rounded and in bf16; they are without memory.

    Args:
        name: the model's name, for messages.
        module: of transformers, on torch's device `meta`.
        quantize: "int8" or "int4".

    Raises:
        ModelError: it has no layer that can be rounded.
    """
    layers = _roundable(name, module, "meta")
    head = module.get_output_embeddings()
    plain: int = sum(one.numel() for one in module.parameters()) - sum(one.weight.numel() for one in layers)
    rounded = 0
    for layer in layers:
        if quantize == "int8" or layer is head:
            rounded += layer.weight.numel() + 2 * layer.out_features
        else:
            rounded += layer.weight.numel() // 2 + 4 * layer.weight.numel() // GROUP
    return 2 * plain + rounded


def _linear_layers(module: nn.Module, device: str) -> list[nn.Linear]:
    held = Counter(id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False))
    return [
        part
        for name, part in module.named_modules()
        if type(part) is nn.Linear
        and part.weight.device.type == device
        and part.in_features % COLUMNS == 0
        and part.out_features % ROWS == 0
        and held[id(part.weight)] == 1
        and name.rpartition(".")[2] not in _ROUTERS
        and not part._forward_hooks
        and not part._forward_pre_hooks
    ]


def _blocks(weight: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Rows of a weight in fp32, so few at once that what is made of them stays near the processor."""
    step = max(1, BLOCK // weight.shape[1])
    for at in range(0, len(weight), step):
        yield slice(at, at + step), weight[at : at + step].float()


def _held(scales: Tensor) -> Tensor:
    """Scales as bf16 holds them, in fp32; none is 0."""
    return scales.clamp_min(1e-30).bfloat16().float()
