"""Checks that a loaded network matches its files: no missing, unused or different weights.

Differences that change an answer are refused. Others are noted, unless transformers itself ignores them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from engine.base.errors import ModelError
from engine.checkpoint.weight_files import StoredTensor, Weights, listed

_PLAIN = frozenset({"F64", "F32", "F16", "BF16"})
_TABLE = re.compile(r"(^|\.)(masked_bias|position_ids|(cos|sin)_cached|(\w+_)?inv_freq|version)$")
_MASK = re.compile(
    r"(attn|attention)\.(bias|causal_mask)$"
)  # [..., tokens, tokens]; a bias has one dimension
_EXPERT = re.compile(r"(?P<all>.*\.experts\.)(?P<number>\d+)(?P<part>\..*)")
_LAYER = re.compile(r"(?:^|\.)(?:layers|layer|h|blocks|block)\.(\d+)\.")
_ADAPTER = re.compile(
    r"(^|[._])(lora|adapters?|ia3|loha|lokr|vera|modules_to_save|base_layer)([._]|$)", re.IGNORECASE
)
_ROUNDED = re.compile(
    r"[._](scales?|scale_inv|zero_point|zeros|qzeros|qweight|g_idx|absmax|quant_map|quant_state|amax|SCB"
    r"|weight_packed)(\.|$)|_blocks$"
)
_APART = 0.02  # relative difference of a frequency; bf16 rounds by a hundredth at most


def require_experts(name: str, stored: Mapping[str, StoredTensor]) -> None:
    """Raises ModelError for a layer with missing experts, because others would take their places."""
    numbers: dict[str, set[int]] = defaultdict(set)
    parts: dict[str, set[str]] = defaultdict(set)
    for match in filter(None, map(_EXPERT.fullmatch, stored)):
        numbers[match["all"]].add(int(match["number"]))
        parts[match["all"]].add(match["part"])
    lacking = [
        f"{layer}{number}{part}"
        for layer, known in numbers.items()
        for number in range(max(known) + 1)
        for part in sorted(parts[layer])
        if f"{layer}{number}{part}" not in stored
    ]
    if lacking:
        raise ModelError(
            f"the files of model {name!r} lack {listed(lacking)}, but have these weights of other experts. "
            "Fetch it again."
        )


def require_whole(
    name: str,
    network: Any,
    config: Any,
    found: Mapping[str, Any],
    weights: Weights,
    targets: Iterable[tuple[str, str]],
) -> tuple[str, ...]:
    """Checks that a network has exactly the weights of its files.

    Args:
        name: the model's name, for messages.
        network: of transformers, with its weights.
        config: of the whole model, which may include parts for images or audio.
        found: transformers' report of the loading.
        weights: of its files.
        targets: the name of each tensor that was read, with its weight in transformers.

    Returns:
        Notes on harmless parts that were left out.

    Raises:
        ModelError: the network lacks weights, or its answers would differ from the stored model's.
    """
    unread, missing = weights.unread, sorted(found["missing_keys"])
    if missing:
        others = f" They have {listed(unread)}, which the network lacks." if unread else ""
        lacking = f"weight {missing[0]!r}"
        if len(missing) > 1:
            lacking = f"weights {missing[0]!r} and {len(missing) - 1} more"
        raise ModelError(
            f"the files of model {name!r} lack the {lacking}; random numbers would be "
            f"used instead.{others} {_remedy(weights, unread, config, missing)}"
        )
    _require_numbers(name, network, weights)
    _require_shapes(name, weights, sorted(found["mismatched_keys"]))
    _require_one_of_each(name, network, weights, targets)
    harmless, declared = list(_harmless(network, config, weights)), _declared(network)
    left = unread or sorted(found["unexpected_keys"])
    unknown = [key for key in left if key not in harmless and not declared.search(key)]
    if unknown:
        raise ModelError(
            f"the files of model {name!r} have {listed(unknown)}, which the network of "
            f"{weights.described_by} lacks. Its answers would differ from the model's. "
            f"{_remedy(weights, unknown, config)}"
        )
    turns = [key for key in harmless if key.endswith("inv_freq")]
    return (
        *_left_out(name, [key for key in harmless if not declared.search(key)]),
        *_turned(name, weights, [key for key in turns if not _is_of(network, weights.tensors[key])]),
    )


def _require_shapes(
    name: str, weights: Weights, mismatched: Sequence[tuple[str, Sequence[int], Sequence[int]]]
) -> None:
    for key, stored, wanted in mismatched:
        more = f" ({len(mismatched) - 1} more sizes differ)" if len(mismatched) > 1 else ""
        raise ModelError(
            f"{key!r} of model {name!r} has the sizes {list(stored)} in the files but {list(wanted)} by "
            f"{weights.described_by}{more}. {weights.again}"
        )


def _require_numbers(name: str, network: Any, weights: Weights) -> None:
    """Refuses integers and eight-bit numbers in place of weights."""
    stored, unread = weights.tensors, weights.unread
    whole = [key for key, weight in network.state_dict().items() if not weight.is_floating_point()]
    odd = [
        key
        for key, weight in stored.items()
        if weight.was_read
        and weight.dtype not in _PLAIN
        and not any(key.endswith(other) or other.endswith(key) for other in whole)
    ]
    if odd:
        others = f" {listed(unread)} would stay unread." if unread else ""
        raise ModelError(
            f"the weights of model {name!r} are stored as {stored[odd[0]].dtype} ({listed(odd)}), as in a "
            f"quantized model, but {weights.described_by} does not describe their format.{others} Use the "
            "model in its plain form (bf16, fp16 or fp32)."
        )


def _require_one_of_each(
    name: str,
    network: Any,
    weights: Weights,
    targets: Iterable[tuple[str, str]],
) -> None:
    """Refuses different tensors for one weight, because the network would have an arbitrary one."""
    for target, source in network.get_expanded_tied_weights_keys(all_submodels=True).items():
        if network.get_parameter_or_buffer(target) is not network.get_parameter_or_buffer(source):
            raise ModelError(
                f"{weights.described_by} of model {name!r} ties {target!r} to {source!r}, but the files "
                f"have different values for it. {weights.again} If the files are right, "
                "tie_word_embeddings must be false."
            )
    first_keys: dict[str, str] = {}
    stored = weights.tensors
    for key, target in targets:
        first = first_keys.setdefault(target, key)
        if first != key and not stored[first].equals(stored[key]):
            raise ModelError(
                f"the files of model {name!r} have {first!r} and {key!r} for the same weight, with different "
                "values. " + weights.again
            )


def _declared(network: Any) -> re.Pattern[str]:
    """A pattern of tensors that transformers itself ignores."""
    buffers = [key for key, _ in network.named_buffers()]
    patterns = list(network._keys_to_ignore_on_load_unexpected or ())
    if any(key.endswith("rotary_emb.inv_freq") for key in buffers):
        patterns.append(r"rotary_emb\.inv_freq$")
    if any(key.endswith("position_ids") for key in buffers):
        patterns.append(r"(^|\.)position_ids$")
    return re.compile("|".join(f"({pattern})" for pattern in patterns) or "(?!)")


def _harmless(network: Any, config: Any, weights: Weights) -> Iterator[str]:
    """Yields unread tensors that are not weights of the network: tables, empty ones, image or audio parts."""
    unread = weights.unread
    read = {_place(key) for key in weights.tensors.keys() - unread}
    whole = type(network.config) is type(config)
    for key in unread:
        shape = weights.tensors[key].shape
        mask = _MASK.search(key) and len(shape) >= 2 and shape[-1] == shape[-2]
        if mask or _TABLE.search(key) or 0 in shape or not (whole or _place(key) in read):
            yield key


def _place(key: str) -> str:
    """The part of a model to which a tensor belongs."""
    return ".".join(key.split(".")[:2])


def _is_of(network: Any, stored: StoredTensor) -> bool:
    """Whether the network has these rotary frequencies."""
    frequencies = stored.peek().float()
    own = (buffer.float() for key, buffer in network.named_buffers() if key.endswith("inv_freq"))
    return any(
        buffer.shape == frequencies.shape and torch.allclose(buffer, frequencies, rtol=_APART, atol=0)
        for buffer in own
    )


def _left_out(name: str, keys: list[str]) -> Iterator[str]:
    if keys:
        yield (
            f"model {name!r} does not read {listed(keys)} of its files: empty tensors, tables that the "
            "network computes itself, or parts for pictures and sound. Answers do not depend on them"
        )


def _turned(name: str, weights: Weights, keys: list[str]) -> Iterator[str]:
    if keys:
        yield (
            f"the files of model {name!r} have other rotary frequencies ({listed(keys)}) than "
            f"{weights.described_by}, whose frequencies are used; check rope_theta and rope_scaling there"
        )


def _remedy(weights: Weights, unknown: Sequence[str], config: Any, missing: Sequence[str] = ()) -> str:
    """Returns a hint on tensors that a network does not have."""
    layers = getattr(config.get_text_config(), "num_hidden_layers", 0)
    numbers = [int(layer[1]) for key in unknown if (layer := _LAYER.search(key))]
    wrapped = [key[: -len(own)] for own in missing[:1] for key in unknown if key.endswith(f".{own}")]
    if any(_ADAPTER.search(key) for key in unknown):
        return "They belong to an adapter: merge it into the weights (merge_and_unload of peft)."
    if any(_ROUNDED.search(key) for key in unknown):
        return (
            f"They belong to quantized weights, which {weights.described_by} does not mention. Use the model "
            "in its plain form (bf16, fp16 or fp32)."
        )
    if wrapped:
        return (
            f"Their names begin with {wrapped[0]!r}, like a wrapper's: call save_pretrained of the model "
            "inside it."
        )
    if numbers and layers and max(numbers) >= layers:
        return (
            f"{weights.described_by} says num_hidden_layers: {layers}, but the files have layer "
            f"{max(numbers)}. {weights.again}"
        )
    return weights.again
