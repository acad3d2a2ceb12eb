"""Whether the weights of a network are numbers that an answer can be computed from."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from engine.base.errors import ModelError
from engine.checkpoint.weight_files import listed
from engine.model.network import Network

_DAMAGED = "The file is damaged, or was saved so: fetch the model again, or use another copy of it."


def require_sound(network: Network, name: str) -> None:
    """Refuses weights that are no numbers.

    Every weight is looked at once, as a row of an embedding or an expert may take no part in a short pass.

    Args:
        network: the network.
        name: the model's name, for messages.

    Raises:
        ModelError: some are NaN or infinite; the message names them.
    """
    faults = {}
    for key, weight in _weights(network.module):
        least, most = float(weight.min()), float(weight.max())
        if math.isnan(least):
            faults[key] = "NaN"
        elif math.isinf(least) or math.isinf(most):
            faults[key] = "infinite numbers"
    if not faults:
        return
    narrow = "NaN" not in faults.values() and network.dtype == torch.float16
    remedy = "The numbers may be too large for fp16: use --dtype bf16 or fp32." if narrow else _DAMAGED
    kinds = " and ".join(dict.fromkeys(faults.values()))
    raise ModelError(f"the weights of model {name!r} hold {kinds} in {listed([*faults])}. {remedy}")


def require_logits(network: Network, logits: Tensor, name: str) -> None:
    """Refuses logits that say nothing.

    Args:
        network: the network, whose weights are numbers.
        logits: of a few tokens, by its own code, [tokens, vocabulary].
        name: the model's name, for messages.

    Raises:
        ModelError: they are NaN or infinite, or all alike.
    """
    least, most = float(logits.min()), float(logits.max())
    if math.isnan(least) or math.isinf(most):
        numbers = str(network.dtype).removeprefix("torch.")
        remedy = "Use --dtype fp32" if network.dtype != torch.float32 else "Fetch the model again"
        raise ModelError(
            f"model {name!r} computes no finite logits in {numbers}, although its weights are finite. "
            f"{remedy}, or see whether config.json is of this model."
        )
    if least == most:
        zeros = [key for key, weight in _weights(network.module) if not weight.any()]
        where = f" All numbers are zero in {listed(zeros)}." if zeros else ""
        raise ModelError(f"model {name!r} gives all tokens the same logit.{where} {_DAMAGED}")


def _weights(module: Any) -> Iterator[tuple[str, Tensor]]:
    """All weights by name, and what rounded ones are scaled by."""
    for held in (module.named_parameters(), module.named_buffers()):
        for key, one in held:
            if one.is_floating_point() and one.numel():
                yield re.sub(r"\.scales$", ".weight", key), one.detach()
