"""The transformers configuration of a GGUF file.

Sources: llama.cpp's converter (which field a key comes from) and its loader (the defaults of missing keys).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from gguf.constants import GGMLQuantizationType
from torch import Tensor
from transformers.models.auto.configuration_auto import AutoConfig

from engine.base.errors import ModelError
from engine.gguf.reader import Header

EMBEDDING, HEAD = "token_embd.weight", "output.weight"
FREQUENCIES: Final = "rope_freqs.weight"
FACTORS: Final = ("rope_factors_short.weight", "rope_factors_long.weight")
_PLAIN = {
    GGMLQuantizationType.F32: torch.float32,
    GGMLQuantizationType.F16: torch.float16,
    GGMLQuantizationType.BF16: torch.bfloat16,
}
_REFUSED = (  # keys that change what a network computes, with their neutral values
    *(("expert_count", 0), ("attention.causal", True), ("attention.scale", 0), ("attention.clamp_kqv", 0)),
    *(("attention.temperature_scale", 0), ("attention.max_alibi_bias", 0), ("use_parallel_residual", False)),
    *(("logit_scale", 0), ("residual_scale", 0), ("embedding_scale", 0), ("pooling_type", 0)),
)
_KEPT_SCALES = ("none", "linear", "yarn", "longrope")
_LOCAL_THETA = 10_000.0

Read = Callable[[str], Tensor]
"""Reads a tensor by its name in the file, in fp32."""


@dataclass(frozen=True)
class Architecture:
    """The names and forms in transformers of a llama.cpp architecture.

    Attributes:
        kind: transformers' model_type.
        turned: whether rows of queries and keys are pairs of neighbours in the file.
        shift: an offset that the file adds to the weights of norms.
        layer: names of a layer's parts, by those in the file.
        partial: whether only a part of a head may be rotated.
        further: sets further fields.
    """

    kind: str
    turned: bool = False
    shift: float = 0.0
    layer: Mapping[str, str] = field(default_factory=dict)
    partial: bool = False
    further: Callable[[_Keys, dict[str, Any]], None] | None = None


class _Keys:
    """The metadata of a file."""

    def __init__(self, name: str, header: Header) -> None:
        self.name, self.metadata, self.tensors = name, header.metadata, header.tensors
        self.architecture = str(self.metadata.get("general.architecture", ""))

    def get(self, key: str, kind: type, default: Any = None) -> Any:
        """Returns the value of a key of the architecture; raises ModelError for a missing or wrong one."""
        full = f"{self.architecture}.{key}"
        value = self.metadata.get(full, default)
        if isinstance(value, list) and kind is int and value and all(item == value[0] for item in value):
            value = value[0]  # one for each layer, all equal
        if kind is float and type(value) is int:
            value = float(value)
        if value is None or (type(value) is not kind and value is not default):
            problem = "is missing" if value is None else f"is {str(value)[:80]}"
            raise ModelError(
                f"model {self.name!r}: the key {full!r} of the GGUF file {problem}; it must be of the type "
                f"{kind.__name__}. Fetch the file again, or convert the model again."
            )
        return value

    def number(self, key: str, default: int | None = None) -> int:
        """Returns a positive number; raises ModelError for another one."""
        number: int = self.get(key, int, default)
        if not 0 < number < 1 << 31:
            raise ModelError(
                f"model {self.name!r}: {self.architecture}.{key} of the GGUF file is {number}. Fetch the "
                "file again."
            )
        return number

    def token(self, key: str) -> int | None:
        """Returns a token of the vocabulary; None if there is none."""
        token = self.metadata.get(f"tokenizer.ggml.{key}_token_id")
        return token if isinstance(token, int) and 0 <= token < self.rows else None

    @property
    def rows(self) -> int:
        """The number of tokens that the network knows."""
        return self.tensors[EMBEDDING].shape[0]


def _biased(keys: _Keys, fields: dict[str, Any]) -> None:
    fields["attention_bias"] = "blk.0.attn_q.bias" in keys.tensors
    fields["mlp_bias"] = "blk.0.ffn_gate.bias" in keys.tensors


def _llama(keys: _Keys, fields: dict[str, Any]) -> None:
    window = keys.get("attention.sliding_window", int, 0)
    if window:
        fields["model_type"], fields["sliding_window"] = "mistral", window
    else:
        _biased(keys, fields)


def _qwen3(keys: _Keys, fields: dict[str, Any]) -> None:
    fields["attention_bias"] = "blk.0.attn_q.bias" in keys.tensors


def _phi3(keys: _Keys, fields: dict[str, Any]) -> None:
    window = keys.get("attention.sliding_window", int, 0)
    fields["sliding_window"] = window or None
    fields["original_max_position_embeddings"] = keys.number(
        "rope.scaling.original_context_length", fields["max_position_embeddings"]
    )


def _gemma(fields: dict[str, Any], largest: int) -> None:
    """Sets the scale of attention: the largest size uses its width per head, not the size of a head."""
    heads = fields["num_attention_heads"]
    wide = fields["num_hidden_layers"] == largest
    fields["query_pre_attn_scalar"] = fields["hidden_size"] // heads if wide else fields["head_dim"]
    fields["hidden_activation"] = "gelu_pytorch_tanh"


def _layers(keys: _Keys, fields: dict[str, Any], every: int, usual: int = 0) -> None:
    """Finds the layers with a window: all but every `every`-th. `usual` is the default window."""
    window = keys.get("attention.sliding_window", int, usual)
    # transformers makes a window mask for any network; without windowed layers it has no effect
    fields["sliding_window"] = window or fields["max_position_embeddings"]
    pattern = keys.metadata.get(f"{keys.architecture}.attention.sliding_window_pattern")
    count = fields["num_hidden_layers"]
    if isinstance(pattern, list):
        local = [bool(windowed) for windowed in pattern][:count]
    else:
        every = keys.get("attention.sliding_window_pattern", int, every)
        local = [every == 0 or (layer + 1) % every != 0 for layer in range(count)]
    if len(local) < count:
        raise ModelError(
            f"model {keys.name!r}: {keys.architecture}.attention.sliding_window_pattern of the GGUF file is "
            "shorter than its layers. Fetch the file again."
        )
    fields["layer_types"] = [
        "sliding_attention" if windowed and window else "full_attention" for windowed in local
    ]


def _gemma2(keys: _Keys, fields: dict[str, Any]) -> None:
    _gemma(fields, 46)
    _layers(keys, fields, 2, 4096)
    fields["attn_logit_softcapping"] = keys.get("attn_logit_softcapping", float, 50.0)
    fields["final_logit_softcapping"] = keys.get("final_logit_softcapping", float, 30.0)


def _gemma3(keys: _Keys, fields: dict[str, Any]) -> None:
    _gemma(fields, 62)
    _layers(keys, fields, 6)
    fields["final_logit_softcapping"] = keys.get("final_logit_softcapping", float, 0.0) or None
    local = keys.get("rope.freq_base_swa", float, _LOCAL_THETA)
    fields["rope_parameters"] = {
        "full_attention": fields["rope_parameters"],
        "sliding_attention": {"rope_type": "default", "rope_theta": local},
    }


_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_NORMED: Final = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_GEMMA: Final = {
    **_LAYER,
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_PHI3: Final = {**_LAYER, "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}

ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "llama": Architecture("llama", turned=True, layer=_LAYER, further=_llama),
    "mistral": Architecture("mistral", turned=True, layer=_LAYER, further=_llama),
    "qwen2": Architecture("qwen2", layer=_LAYER),
    "qwen3": Architecture("qwen3", layer={**_LAYER, **_NORMED}, further=_qwen3),
    "gemma2": Architecture("gemma2", shift=1.0, layer=_GEMMA, further=_gemma2),
    "gemma3": Architecture("gemma3_text", shift=1.0, layer={**_GEMMA, **_NORMED}, further=_gemma3),
    "phi3": Architecture("phi3", layer=_PHI3, partial=True, further=_phi3),
}


def architecture_of(name: str, header: Header) -> Architecture:
    """Returns the architecture of a file; raises ModelError if it is not supported."""
    architecture = str(header.metadata.get("general.architecture"))
    if architecture not in ARCHITECTURES:
        raise ModelError(
            f"model {name!r}: the architecture {architecture!r} of the GGUF file is not supported. Use the "
            f"model as safetensors, or one of these architectures: {', '.join(ARCHITECTURES)}."
        )
    return ARCHITECTURES[architecture]


def read_metadata(name: str, header: Header, read: Read) -> Any:
    """Makes the configuration of a file; `read` reads stored rotary frequencies.

    Raises:
        ModelError: the architecture is not supported, a key is missing, or transformers cannot compute it.
    """
    architecture, keys = architecture_of(name, header), _Keys(name, header)
    _require_plain(keys)
    if EMBEDDING not in keys.tensors or len(keys.tensors[EMBEDDING].shape) != 2:
        raise ModelError(
            f"model {name!r}: the GGUF file has no {EMBEDDING!r}, so it is incomplete. Give the file with "
            "the weights."
        )
    heads, width = keys.number("attention.head_count"), keys.number("embedding_length")
    head = keys.number("attention.key_length", width // heads)
    fields: dict[str, Any] = {
        "model_type": architecture.kind,
        "hidden_size": width,
        "num_hidden_layers": keys.number("block_count"),
        "intermediate_size": keys.number("feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": keys.number("attention.head_count_kv", heads),
        "head_dim": head,
        "max_position_embeddings": keys.number("context_length"),
        "rms_norm_eps": keys.get("attention.layer_norm_rms_epsilon", float),
        "vocab_size": keys.rows,
        "tie_word_embeddings": HEAD not in keys.tensors,
        "bos_token_id": keys.token("bos"),
        "eos_token_id": keys.token("eos"),
        "pad_token_id": keys.token("padding"),
        "dtype": number_format(header),
    }
    if keys.get("attention.value_length", int, head) != head:
        raise ModelError(
            f"model {name!r}: its values and keys differ in size ({keys.architecture}.attention."
            "value_length), which transformers does not support for it. Use the model as safetensors."
        )
    _require_sizes(keys, architecture, fields)
    fields["rope_parameters"] = _rope(keys, architecture, fields, read)
    if architecture.further is not None:
        architecture.further(keys, fields)
    try:
        return AutoConfig.for_model(fields.pop("model_type"), **fields)
    except Exception as error:  # transformers raises many kinds for numbers that do not fit each other
        reason = str(error).strip().splitlines()[-1].strip().removeprefix("ValueError: ").rstrip(".")
        raise ModelError(
            f"model {name!r}: transformers rejects the metadata of the GGUF file: {reason}. Fetch the file "
            "again."
        ) from error


def number_format(header: Header) -> torch.dtype:
    """Returns the number format of most numbers in a file; bf16 for blocks."""
    sizes: dict[torch.dtype, int] = {}
    for tensor in header.tensors.values():
        kind = _PLAIN.get(tensor.kind, torch.bfloat16)
        sizes[kind] = sizes.get(kind, 0) + tensor.bytes
    return max(sizes, key=lambda kind: sizes[kind])


def _require_plain(keys: _Keys) -> None:
    """Refuses keys that transformers' network does not support."""
    for key, plain in _REFUSED:
        full = f"{keys.architecture}.{key}"
        value = keys.metadata.get(full, plain)
        if value != plain:
            raise ModelError(
                f"model {keys.name!r}: the GGUF file has {full} = {str(value)[:80]}, which is not "
                "supported. Use the model as safetensors."
            )


def _require_sizes(keys: _Keys, architecture: Architecture, fields: Mapping[str, Any]) -> None:
    """Refuses sizes that differ from the tensors, before a network of these sizes takes memory."""
    queries = fields["num_attention_heads"] * fields["head_dim"]
    values = fields["num_key_value_heads"] * fields["head_dim"]
    fused = "attn_qkv" in architecture.layer
    for key, tensor, side, wanted in (
        ("embedding_length", EMBEDDING, 1, fields["hidden_size"]),
        ("feed_forward_length", "blk.0.ffn_down.weight", 1, fields["intermediate_size"]),
        ("attention.head_count", "blk.0.attn_output.weight", 1, queries),
        ("attention.head_count_kv", "blk.0.attn_k.weight", 0, values),
    ):
        if key.endswith("_kv") and fused:
            tensor, wanted = "blk.0.attn_qkv.weight", queries + 2 * values
        if tensor not in keys.tensors:
            raise ModelError(
                f"model {keys.name!r}: the GGUF file lacks the weight {tensor!r}, which this architecture "
                "needs. Fetch the file again, or use the model as safetensors."
            )
        shape = keys.tensors[tensor].shape
        if len(shape) != 2 or shape[side] != wanted:
            raise ModelError(
                f"model {keys.name!r}: {tensor!r} of the GGUF file has the sizes {list(shape)}, but "
                f"{keys.architecture}.{key} needs {wanted}. Fetch the file again."
            )
    layers = len({key.split(".")[1] for key in keys.tensors if key.startswith("blk.")})
    if layers != fields["num_hidden_layers"]:
        raise ModelError(
            f"model {keys.name!r}: the GGUF file has {layers} layers, but {keys.architecture}.block_count "
            f"is {fields['num_hidden_layers']}. Fetch the file again."
        )


def _rope(keys: _Keys, architecture: Architecture, fields: Mapping[str, Any], read: Read) -> dict[str, Any]:
    """Returns the parameters of the rotary embedding for transformers."""
    head, context = fields["head_dim"], fields["max_position_embeddings"]
    rope: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": keys.get("rope.freq_base", float, 10_000.0),
    }
    turned = keys.number("rope.dimension_count", head)
    if turned != head:
        if not architecture.partial:
            raise ModelError(
                f"model {keys.name!r}: the GGUF file rotates {turned} of {head} channels of a head, which is "
                "not supported. Use the model as safetensors."
            )
        rope["partial_rotary_factor"] = turned / head
    kind = keys.get("rope.scaling.type", str, "linear")
    factor = keys.get("rope.scaling.factor", float, keys.get("rope.scale_linear", float, 1.0)) or 1.0
    if kind not in _KEPT_SCALES:
        raise ModelError(
            f"model {keys.name!r}: the GGUF file scales its rotary embedding by the unknown method {kind!r}. "
            "Use the model as safetensors."
        )
    original = keys.number("rope.scaling.original_context_length", context)
    if kind == "longrope" or any(key in keys.tensors for key in FACTORS):
        if not all(key in keys.tensors for key in FACTORS):
            raise ModelError(
                f"model {keys.name!r}: the GGUF file lacks {FACTORS[0]!r} or {FACTORS[1]!r}. Fetch it again."
            )
        short, long = (read(key).tolist() for key in FACTORS)
        return _longrope(rope, turned, short, long, context / original, original, keys)
    if FREQUENCIES in keys.tensors:  # of Llama 3: a divisor for each frequency
        if kind == "yarn" or (kind == "linear" and factor != 1.0):
            raise ModelError(
                f"model {keys.name!r}: the GGUF file has both {FREQUENCIES!r} and the rope.scaling.type "
                f"{kind!r} with the factor {factor:g}. Use the model as safetensors."
            )
        factors = read(FREQUENCIES).tolist()
        rope["attention_factor"] = 1.0
        return _longrope(rope, turned, factors, factors, 1.0, context, keys)
    if kind == "linear":
        return rope if factor == 1.0 else {**rope, "rope_type": "linear", "factor": factor}
    if kind == "yarn":
        return _yarn(rope, factor, original, keys)
    return rope


def _longrope(
    found: dict[str, Any],
    turned: int,
    short: list[float],
    long: list[float],
    factor: float,
    original: int,
    keys: _Keys,
) -> dict[str, Any]:
    """Adds a factor for each frequency: up to the original context length, and beyond."""
    if {len(short), len(long)} != {turned // 2} or min(*short, *long) <= 0:
        raise ModelError(
            f"model {keys.name!r}: the rotary factors of the GGUF file are not {turned // 2} positive "
            "numbers. Fetch it again."
        )
    own = keys.get("rope.scaling.attn_factor", float, 0.0)
    return {
        **found,
        "rope_type": "longrope",
        "short_factor": short,
        "long_factor": long,
        "factor": factor,
        "original_max_position_embeddings": original,
        **({"attention_factor": own} if own else {}),
    }


def _yarn(found: dict[str, Any], factor: float, original: int, keys: _Keys) -> dict[str, Any]:
    names = {
        "yarn_attn_factor": "attention_factor",
        "yarn_beta_fast": "beta_fast",
        "yarn_beta_slow": "beta_slow",
    }
    factors = {own: keys.get(f"rope.scaling.{key}", float, 0.0) for key, own in names.items()}
    times = keys.get("rope.scaling.attn_factor", float, 0.0)
    if times:  # multiplies the default of the factor
        factors["attention_factor"] = times * (0.1 * math.log(max(factor, 1.0)) + 1.0)
    return {
        **found,
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": original,
        **{own: value for own, value in factors.items() if value},
    }
