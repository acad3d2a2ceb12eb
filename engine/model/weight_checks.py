"""Checks that the weights of a network are finite numbers."""

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

_DAMAGED = "The file is damaged: fetch the model again, or use another copy of it."


def require_sound(network: Network, name: str) -> None:
    """Refuses weights that are not finite.

    Every weight is checked, because a short pass may skip a row of an embedding or an expert.

    Raises:
        ModelError: some are NaN or infinite; the message names them.
    """
    problems = {}
    for key, weight in _weights(network.module):
        least, most = float(weight.min()), float(weight.max())
        if math.isnan(least):
            problems[key] = "NaN"
        elif math.isinf(least) or math.isinf(most):
            problems[key] = "infinite numbers"
    if not problems:
        return
    narrow = "NaN" not in problems.values() and network.dtype == torch.float16
    fix = "The numbers may be too large for fp16: use --dtype bf16 or fp32." if narrow else _DAMAGED
    kinds = " and ".join(dict.fromkeys(problems.values()))
    raise ModelError(f"the weights of model {name!r} have {kinds} in {listed([*problems])}. {fix}")


def require_logits(network: Network, logits: Tensor, name: str) -> None:
    """Raises ModelError for logits [tokens, vocabulary] that are NaN or infinite, or all equal."""
    least, most = float(logits.min()), float(logits.max())
    if math.isnan(least) or math.isinf(most):
        numbers = str(network.dtype).removeprefix("torch.")
        fix = "Use --dtype fp32" if network.dtype != torch.float32 else "Fetch the model again"
        raise ModelError(
            f"model {name!r} computes no finite logits in {numbers}, although its weights are finite. "
            f"{fix}, or check that config.json belongs to this model."
        )
    if least == most:
        zeros = [key for key, weight in _weights(network.module) if not weight.any()]
        where = f" All numbers are zero in {listed(zeros)}." if zeros else ""
        raise ModelError(f"model {name!r} gives all tokens the same logit.{where} {_DAMAGED}")


def _weights(module: Any) -> Iterator[tuple[str, Tensor]]:
    """All weights by name, and the scales of rounded ones."""
    for group in (module.named_parameters(), module.named_buffers()):
        for key, weight in group:
            if weight.is_floating_point() and weight.numel():
                yield re.sub(r"\.scales$", ".weight", key), weight.detach()
