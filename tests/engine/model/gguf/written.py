"""Writes a network of transformers as GGUF, by the package of llama.cpp: its names, its keys, its formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf.constants import GGMLQuantizationType as Kind
from tokenizers import pre_tokenizers
from torch import Tensor

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "phi3": gguf.MODEL_ARCH.PHI3,
}
TOKENS = ["<unk>", "<|im_start|>", "<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "th"]

Stored = Callable[[str, Tensor], tuple[Any, Kind]]
"""Says how a tensor is stored: its bytes or numbers, and the format."""


def plain(_name: str, tensor: Tensor) -> tuple[Any, Kind]:
    """Every number in fp32."""
    return tensor.float().numpy(), Kind.F32


def rounded(kind: Kind) -> Stored:
    """Weights of layers and embeddings in a format of the package, norms in fp32."""

    def stored(name: str, tensor: Tensor) -> tuple[Any, Kind]:
        if tensor.dim() < 2:
            return plain(name, tensor)
        return gguf.quants.quantize(tensor.float().numpy(), kind), kind

    return stored


def write(
    path: Path,
    network: Any,
    stored: Stored = plain,
    *,
    further: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
    leave_out: tuple[str, ...] = (),
    shard: int = 0,
) -> Path:
    """Writes a network and a tokenizer of one token per byte.

    Args:
        path: of the file.
        network: of transformers.
        stored: how its tensors are stored.
        further: adds keys, or others in their place.
        leave_out: names in the file of tensors that are not written.
        shard: tensors for each file; 0 for one file.
    """
    config = network.config
    made = ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(
        path, gguf.MODEL_ARCH_NAMES[made], **({"split_max_tensors": shard} if shard else {})
    )
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head)
    writer.add_value_length(head)
    if getattr(config, "sliding_window", None) and config.model_type != "qwen2":
        writer.add_sliding_window(config.sliding_window)
    _rope(writer, network, head)
    for softcap in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, softcap, None):
            getattr(writer, f"add_{softcap}")(getattr(config, softcap))
    _tokenizer(writer)
    further(writer)
    names = gguf.get_tensor_name_map(made, config.num_hidden_layers)
    for name, tensor in network.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert own is not None, name
        if own not in leave_out:
            writer.add_tensor(own, *_placed(stored(own, _in_file(name, tensor, network))))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _placed(found: tuple[Any, Kind]) -> tuple[Any, None, Kind | None]:
    numbers, kind = found
    return numbers, None, None if kind == Kind.F32 else kind


def _in_file(name: str, tensor: Tensor, network: Any) -> Tensor:
    """As llama.cpp's converter stores a tensor."""
    config, tensor = network.config, tensor.detach().float()
    if config.model_type.startswith("gemma") and name.endswith("norm.weight"):
        return tensor + 1
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    count = heads.get(name.split(".")[-2])
    if config.model_type in ("llama", "mistral") and count:
        halves = tensor.reshape(count, 2, -1, *tensor.shape[1:])
        return halves.swapaxes(1, 2).reshape(tensor.shape).contiguous()
    return tensor


def _rope(writer: gguf.GGUFWriter, network: Any, head: int) -> None:
    config = network.config
    rope = config.rope_parameters.get("full_attention", config.rope_parameters)
    writer.add_rope_freq_base(rope["rope_theta"])
    turned = int(head * rope.get("partial_rotary_factor", 1.0))
    writer.add_rope_dimension_count(turned)
    kind = rope.get("rope_type", "default")
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(rope["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if kind == "llama3":
        plain_turns = 1.0 / rope["rope_theta"] ** (torch.arange(0, head, 2).float() / head)
        own = network.model.rotary_emb.inv_freq
        writer.add_tensor("rope_freqs.weight", (plain_turns / own).numpy())
    if kind == "longrope":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        for length in ("short", "long"):
            factors = np.array(rope[f"{length}_factor"], dtype=np.float32)
            writer.add_tensor(f"rope_factors_{length}.weight", factors)


def _tokenizer(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3, *[1] * 257])
    writer.add_token_merges(["t h"])
    writer.add_unk_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)
