"""Writes the weights of a llama network as a GGUF file, in the network's number format.

Rows of queries and keys have another order there: llama.cpp rotates pairs of neighbours, transformers the
first half against the second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.base.errors import PromptCacheError

ARCHITECTURE = "llama"
_FORMATS = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
_WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_OF_A_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: Path, network: Any) -> None:
    """Writes a network without its tokenizer."""
    config = network.config
    require_plain_llama(config)
    import gguf

    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("no_vocab")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    for name, tensor in _tensors(network):
        stored = tensor.dtype if tensor.dim() > 1 else torch.float32
        kind = gguf.GGMLQuantizationType[_FORMATS[stored]]
        size = math.prod(tensor.shape) * stored.itemsize
        writer.add_tensor_info(name, tuple(tensor.shape), np.dtype(np.uint8), size, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, tensor in _tensors(network):
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
        count = heads.get(name.split(".")[-2], 0)
        plain = tensor.detach() if tensor.dim() > 1 else tensor.detach().float()
        rows = _neighbours(plain, count) if count else plain
        writer.write_tensor_data(rows.contiguous().view(torch.uint8).numpy())
    writer.close()


def require_plain_llama(config: Any) -> None:
    """Refuses what the file could not say."""
    rope = getattr(config, "rope_parameters", None) or {}
    if config.model_type != "llama" or rope.get("rope_type") != "default":
        raise PromptCacheError(
            f"llama.cpp is compared on plain llama shapes only, not on {config.model_type!r} with rotary "
            f"embeddings {rope.get('rope_type')!r}; name a model such as random:llama-100m."
        )
    if config.attention_bias or config.mlp_bias:
        raise PromptCacheError("llama.cpp is compared on llama shapes without biases only.")


def _tensors(network: Any) -> Iterator[tuple[str, Tensor]]:
    """Every tensor by its name in the file; llama.cpp takes the embeddings where there is no other output."""
    for name, tensor in network.state_dict().items():
        if name in _WHOLE:
            if name != "lm_head.weight" or not network.config.tie_word_embeddings:
                yield _WHOLE[name], tensor
            continue
        number, _, inner = name.removeprefix("model.layers.").partition(".")
        yield f"blk.{number}.{_OF_A_LAYER[inner.removesuffix('.weight')]}.weight", tensor


def _neighbours(rows: Tensor, heads: int) -> Tensor:
    """Rows [heads * head_dim, hidden] with those that are turned together beside each other."""
    return rows.view(heads, 2, -1, rows.shape[1]).transpose(1, 2).reshape(rows.shape)
