"""Describes a model from its configuration and files, before its weights are read.

It refuses models early with the same messages as loading. Only `look_up` uses the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from engine.base.choices import RANDOM, Quantize
from engine.base.errors import ModelError
from engine.checkpoint import hub
from engine.checkpoint import synthetic as random_models
from engine.checkpoint.checkpoint import DEMO_FOLDER, Checkpoint
from engine.checkpoint.configuration import described, network_class, read_configuration, usable
from engine.checkpoint.kv_sizes import KVSizes, kv_sizes
from engine.checkpoint.model_catalogue import CATALOGUE
from engine.gguf.model import GgufModel
from engine.model.devices import candidates, held_format
from engine.model.loading import Unfilled, guarded
from engine.model.long_context_check import declared_length
from engine.model.model import DTYPES
from engine.model.model_files import Stored, stored
from engine.quantize.quantized_weights import require_quantizable, rounded_bytes

Kind = Literal["bundled", "random", "folder", "file", "hub"]
WORKING_TOKENS = 2048
_WIDTHS = 4  # tensors as wide as a layer's input that exist at once in a pass
_INNER = 3  # and as wide as its inner layer


@dataclass(frozen=True)
class Look:
    """A model that can be loaded.

    Attributes:
        kind: its source.
        family: its architecture's name in transformers.
        parameters: the number of weights.
        sizes: of the keys and values of one token.
        context_length: tokens that its configuration declares.
        device: the device for it.
        dtype: its number format on that device: fp32, bf16 or fp16.
        weight_bytes: bytes of its loaded weights.
        peak_bytes: the most bytes of weights during loading.
        working_bytes: an estimate of the extra bytes of a prompt of `working_tokens`, without the cache.
        working_tokens: tokens of that prompt.
        stored: its files, if they are on this machine.
        weights: "four-bit" if blocks of its file stay packed, "int8" or "int4" if they are rounded.
        fetch_bytes: bytes to fetch first.
    """

    kind: Kind
    family: str
    parameters: int
    sizes: KVSizes
    context_length: int
    device: str
    dtype: str
    weight_bytes: int
    peak_bytes: int
    working_bytes: int
    working_tokens: int
    stored: Stored
    weights: str = ""
    fetch_bytes: int = 0

    @property
    def bytes_per_token(self) -> int:
        """Bytes of the keys and values of one token."""
        return self.sizes.bytes_per_token(DTYPES[self.dtype].itemsize)


class AbsentError(ModelError):
    """The files of a Hugging Face id are not on this machine."""


def look(name: str, *, device: str = "auto", dtype: str = "auto", quantize: Quantize = "none") -> Look:
    """Describes a model on this machine. The arguments are those of `loading.load`.

    Raises:
        AbsentError: the files of an id are not on this machine.
        ModelError: the model could not be loaded.
    """
    wanted = _Wanted.of(device, dtype, quantize)
    if name.startswith(RANDOM):
        config, own = random_models.configuration(name)
        return wanted.look("random", name, config, own)
    folder = DEMO_FOLDER if name == "demo" else hub.local_files(name)
    here: Kind = "file" if folder is not None and folder.is_file() else "folder"
    kind: Kind = "bundled" if name == "demo" else here if folder is not None else "hub"
    if folder is None and name in CATALOGUE:
        entry = CATALOGUE[name]
        config = described(name, entry.shape)
        return wanted.look("hub", name, config, torch.bfloat16, fetch_bytes=entry.bytes)
    if folder is None and (folder := hub.cached(name)) is None:
        raise AbsentError(
            f"model {name!r} is not on this machine: there is no such file or folder. It may be a model of "
            "the Hugging Face hub."
        )
    checkpoint = Checkpoint.of(name, folder)
    if checkpoint.gguf:
        model = guarded(name, lambda: GgufModel(name, checkpoint.paths))
        config = guarded(name, lambda: usable(name, model.configuration))
        return wanted.look(kind, name, config, gguf=model, files=stored(name, checkpoint, model))
    config = _configuration(name, folder)
    return wanted.look(kind, name, config, files=stored(name, checkpoint))


def look_up(name: str, *, device: str = "auto", dtype: str = "auto", quantize: Quantize = "none") -> Look:
    """Asks the Hugging Face hub for a model's configuration and file sizes; fetches no weights.

    The arguments are those of `look`, with an id as the name.

    Raises:
        ModelError: the model does not exist or could not be loaded, or the hub is unreachable.
    """
    wanted = _Wanted.of(device, dtype, quantize)
    if hub.parted(name)[1]:
        with hub.beginnings(name) as (paths, sizes):
            model = guarded(name, lambda: GgufModel(name, paths, sizes))
            config = guarded(name, lambda: usable(name, model.configuration))
        return wanted.look("hub", name, config, fetch_bytes=sum(sizes), gguf=model)
    with hub.offered(name) as (offer, folder):
        if not offer.safe and offer.gguf:
            raise ModelError(
                f"{name!r} has GGUF files. Name one of them: "
                f"{', '.join(f'{name}:{file}' for file in offer.gguf[:8])}."
            )
        if not offer.safe:
            raise ModelError(
                f"model {name!r} has no weights in safetensors or GGUF. Other formats can run code and are "
                "not supported. Convert them with save_pretrained."
            )
        return wanted.look("hub", name, _configuration(name, folder), fetch_bytes=offer.missing)


def _configuration(name: str, folder: Path) -> Any:
    return guarded(name, lambda: read_configuration(name, folder))


@dataclass(frozen=True)
class _Wanted:
    """The requested device, dtype and rounding of a model."""

    device: torch.device
    dtype: torch.dtype | None
    quantize: Quantize

    @classmethod
    def of(cls, device: str, dtype: str, quantize: Quantize) -> _Wanted:
        first = candidates(device)[0]
        if dtype != "auto" and dtype not in DTYPES:
            raise ModelError(f"dtype {dtype!r} is unknown; use one of auto, {', '.join(DTYPES)}.")
        if quantize != "none":
            require_quantizable(quantize, first, dtype)
            return cls(first, torch.bfloat16, quantize)
        return cls(first, DTYPES.get(dtype), quantize)

    def look(
        self,
        kind: Kind,
        name: str,
        config: Any,
        own: torch.dtype | None = None,
        fetch_bytes: int = 0,
        gguf: GgufModel | None = None,
        files: Stored | None = None,
    ) -> Look:
        """Measures a network of this configuration without memory for its weights."""
        network, text = guarded(name, lambda: _without_weights(config))
        own = own or getattr(text, "dtype", None) or torch.float32
        parameters = sum(weight.numel() for weight in network.parameters())
        four_bits = gguf is not None and gguf.in_four_bits
        if gguf is not None:
            gguf.require_roundable(self.quantize)
        run_dtype = held_format(self.dtype, self.device, own, parameters, four_bits)
        keeps_blocks = gguf is not None and gguf.keeps_blocks(self.device, run_dtype)
        plain = parameters * run_dtype.itemsize if gguf is None else gguf.loaded_bytes(self.device, run_dtype)
        weights = plain if self.quantize == "none" else rounded_bytes(name, network, self.quantize)
        sizes, context = kv_sizes(text), declared_length(text)
        tokens = min(context, WORKING_TOKENS)
        return Look(
            kind,
            text.model_type,
            parameters,
            sizes,
            context,
            str(self.device),
            next(short for short, torch_dtype in DTYPES.items() if torch_dtype == run_dtype),
            weights,
            max(plain, weights),
            tokens * (sizes.bytes_per_token(run_dtype.itemsize) + _width(text) * run_dtype.itemsize),
            tokens,
            files or Stored(name),
            "four-bit" if keeps_blocks else self.quantize.removeprefix("none"),
            fetch_bytes,
        )


def _width(text: Any) -> int:
    """Numbers per token in a pass, besides its keys and values."""
    inner = next(
        (n for field in ("intermediate_size", "ffn_dim", "n_inner") if (n := getattr(text, field, None))),
        4 * text.hidden_size,
    )
    return int(_WIDTHS * text.hidden_size + _INNER * inner)


def _without_weights(config: Any) -> tuple[Any, Any]:
    made, text = network_class(config)
    with torch.device("meta"), Unfilled():
        network = made(text)
    network.tie_weights()
    return network, text.get_text_config()
