"""Whether a network is the one that is stored: what of its files it lacks, leaves out, or has otherwise.

What changes an answer is refused. What changes none is named, unless transformers' own class leaves it out.
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
_MASK = re.compile(r"(attn|attention)\.(bias|causal_mask)$")  # [..., tokens, tokens]; a bias has one side
_EXPERT = re.compile(r"(?P<all>.*\.experts\.)(?P<number>\d+)(?P<part>\..*)")
_LAYER = re.compile(r"(?:^|\.)(?:layers|layer|h|blocks|block)\.(\d+)\.")
_ADAPTER = re.compile(
    r"(^|[._])(lora|adapters?|ia3|loha|lokr|vera|modules_to_save|base_layer)([._]|$)", re.IGNORECASE
)
_ROUNDED = re.compile(
    r"[._](scales?|scale_inv|zero_point|zeros|qzeros|qweight|g_idx|absmax|quant_map|quant_state|amax|SCB"
    r"|weight_packed)(\.|$)|_blocks$"
)
_APART = 0.02  # of a frequency, which bf16 rounds by a hundredth at most


def require_experts(name: str, stored: Mapping[str, StoredTensor]) -> None:
    """Refuses layers of which some experts are missing: the others would be put in their places.

    Raises:
        ModelError: a tensor of an expert is missing.
    """
    numbers: dict[str, set[int]] = defaultdict(set)
    parts: dict[str, set[str]] = defaultdict(set)
    for found in filter(None, map(_EXPERT.fullmatch, stored)):
        numbers[found["all"]].add(int(found["number"]))
        parts[found["all"]].add(found["part"])
    lacking = [
        f"{one}{number}{part}"
        for one, known in numbers.items()
        for number in range(max(known) + 1)
        for part in sorted(parts[one])
        if f"{one}{number}{part}" not in stored
    ]
    if lacking:
        raise ModelError(
            f"the files of model {name!r} lack {listed(lacking)}, and hold such weights of other experts. "
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
    """Sees to it that a network has all that its files hold, and nothing else.

    Args:
        name: the model's name, for messages.
        network: of transformers, with its weights.
        config: of the whole model, which may be more than the network: what reads pictures or sound.
        found: what transformers reports of the loading.
        weights: of its files.
        targets: the names of tensors that were read, with the one weight that transformers makes of each.

    Returns:
        What was left out and changes no answer, in words.

    Raises:
        ModelError: the network lacks weights, or its answers would not be those of the stored model.
    """
    unread, missing = weights.unread, sorted(found["missing_keys"])
    if missing:
        others = f" They hold {listed(unread)}, which the network does not have." if unread else ""
        lacking = f"weight {missing[0]!r}"
        if len(missing) > 1:
            lacking = f"weights {missing[0]!r} and {len(missing) - 1} more"
        raise ModelError(
            f"the files of model {name!r} lack the {lacking}; random numbers would stand "
            f"there.{others} {_remedy(weights, unread, config, missing)}"
        )
    _require_numbers(name, network, weights)
    _require_shapes(name, weights, sorted(found["mismatched_keys"]))
    _require_one_of_each(name, network, weights, targets)
    harmless, declared = list(_harmless(network, config, weights)), _declared(network)
    left = unread or sorted(found["unexpected_keys"])
    unknown = [key for key in left if key not in harmless and not declared.search(key)]
    if unknown:
        raise ModelError(
            f"the files of model {name!r} hold {listed(unknown)}, which the network of "
            f"{weights.described_by} does not have. Its answers would be another model's. "
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
        more = f" ({len(mismatched) - 1} more have other sizes too)" if len(mismatched) > 1 else ""
        raise ModelError(
            f"{key!r} of model {name!r} has the sizes {list(stored)} in the files and {list(wanted)} by "
            f"{weights.described_by}{more}. {weights.again}"
        )


def _require_numbers(name: str, network: Any, weights: Weights) -> None:
    """Refuses integers and numbers of eight bits in the place of weights."""
    stored, unread = weights.tensors, weights.unread
    whole = [key for key, one in network.state_dict().items() if not one.is_floating_point()]
    odd = [
        key
        for key, one in stored.items()
        if one.was_read
        and one.dtype not in _PLAIN
        and not any(key.endswith(other) or other.endswith(key) for other in whole)
    ]
    if odd:
        others = f" Nothing reads {listed(unread)}." if unread else ""
        raise ModelError(
            f"the weights of model {name!r} are stored as {stored[odd[0]].dtype} ({listed(odd)}), as of a "
            f"quantized model, and {weights.described_by} does not say how they are read.{others} Use the "
            "model in its plain form (bf16, fp16 or fp32)."
        )


def _require_one_of_each(
    name: str,
    network: Any,
    weights: Weights,
    targets: Iterable[tuple[str, str]],
) -> None:
    """Refuses two tensors for one weight, of which the network has either."""
    for target, source in network.get_expanded_tied_weights_keys(all_submodels=True).items():
        if network.get_parameter_or_buffer(target) is not network.get_parameter_or_buffer(source):
            raise ModelError(
                f"{weights.described_by} of model {name!r} says that {target!r} is the same as {source!r}, "
                f"and the files hold other values for it. {weights.again} Where the files "
                "are right, tie_word_embeddings is to be false."
            )
    given: dict[str, str] = {}
    stored = weights.tensors
    for key, target in targets:
        first = given.setdefault(target, key)
        if first != key and not stored[first].equals(stored[key]):
            raise ModelError(
                f"the files of model {name!r} hold {first!r} and {key!r} for the same weight, with different "
                "values. " + weights.again
            )


def _declared(network: Any) -> re.Pattern[str]:
    """A pattern of what transformers leaves out itself."""
    buffers = [key for key, _ in network.named_buffers()]
    found = list(network._keys_to_ignore_on_load_unexpected or ())
    if any(key.endswith("rotary_emb.inv_freq") for key in buffers):
        found.append(r"rotary_emb\.inv_freq$")
    if any(key.endswith("position_ids") for key in buffers):
        found.append(r"(^|\.)position_ids$")
    return re.compile("|".join(f"({one})" for one in found) or "(?!)")


def _harmless(network: Any, config: Any, weights: Weights) -> Iterator[str]:
    """What was not read and is no weight of the network: tables, nothing, what reads pictures or sound."""
    unread = weights.unread
    read = {_place(key) for key in weights.tensors.keys() - unread}
    whole = type(network.config) is type(config)
    for key in unread:
        shape = weights.tensors[key].shape
        mask = _MASK.search(key) and len(shape) >= 2 and shape[-1] == shape[-2]
        if mask or _TABLE.search(key) or 0 in shape or not (whole or _place(key) in read):
            yield key


def _place(key: str) -> str:
    """The part of a model that a tensor is in."""
    return ".".join(key.split(".")[:2])


def _is_of(network: Any, stored: StoredTensor) -> bool:
    """Whether the network has these rotary frequencies."""
    given = stored.peek().float()
    own = (one.float() for key, one in network.named_buffers() if key.endswith("inv_freq"))
    return any(one.shape == given.shape and torch.allclose(one, given, rtol=_APART, atol=0) for one in own)


def _left_out(name: str, keys: list[str]) -> Iterator[str]:
    if keys:
        yield (
            f"model {name!r} does not read {listed(keys)} of its files: empty tensors, tables that the "
            "network computes itself, or parts for pictures and sound. Answers do not depend on them"
        )


def _turned(name: str, weights: Weights, keys: list[str]) -> Iterator[str]:
    if keys:
        yield (
            f"the files of model {name!r} hold other rotary frequencies ({listed(keys)}) than "
            f"{weights.described_by} gives, which are used; check rope_theta and rope_scaling there"
        )


def _remedy(weights: Weights, unknown: Sequence[str], config: Any, missing: Sequence[str] = ()) -> str:
    """What to do about tensors that a network does not have."""
    layers = getattr(config.get_text_config(), "num_hidden_layers", 0)
    numbers = [int(found[1]) for key in unknown if (found := _LAYER.search(key))]
    wrapped = [key[: -len(own)] for own in missing[:1] for key in unknown if key.endswith(f".{own}")]
    if any(_ADAPTER.search(key) for key in unknown):
        return "They are of an adapter: merge it into the weights (merge_and_unload of peft)."
    if any(_ROUNDED.search(key) for key in unknown):
        return (
            f"They are of quantized weights, of which {weights.described_by} says nothing. Use the model in "
            "its plain form (bf16, fp16 or fp32)."
        )
    if wrapped:
        return (
            f"Their names begin with {wrapped[0]!r}, as of a wrapper: call save_pretrained of the model "
            "inside it."
        )
    if numbers and layers and max(numbers) >= layers:
        return (
            f"{weights.described_by} says num_hidden_layers: {layers}, and the files hold layer "
            f"{max(numbers)}. {weights.again}"
        )
    return weights.again
