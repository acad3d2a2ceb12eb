"""A causal language model with its tokenizer, and the forward pass that reads segments.

Knows nothing about schemas or stores. `loading` makes models, `probe` measures what they can do.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from engine.model import attention, dense
from engine.model.attention import Scratch, SegmentKVCache, StopForward
from engine.model.dense import DenseKVCache
from engine.model.probe import AttentionPath, Probe, context_length, probe
from engine.model.rope import Rotaries
from engine.prompt.chat_template import ChatFormat
from engine.segment import Placement

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
KVCache = SegmentKVCache | DenseKVCache
"""What new tokens may attend to, on either path."""


class Model:
    """A causal language model with its tokenizer, ready for attention over segments.

    Args:
        name: as the user wrote it.
        network: of transformers, in evaluation mode.
        tokenizer: of transformers.
        fingerprint: digest of weights, config and tokenizer.

    Raises:
        ModelError: the probe finds that neither path reproduces the model.

    Attributes:
        path: "segments", or "dense" for models with attention code of their own.
        rotaries: of each layer.
        kv_shape: KV heads and head dimension.
        context_length: how many tokens a prompt and its answer may have together.
        probe: what was measured.
    """

    def __init__(self, name: str, network: Any, tokenizer: Any, fingerprint: str) -> None:
        self.name, self.network, self.tokenizer = name, network, tokenizer
        self.fingerprint = fingerprint
        self.config = network.config.get_text_config()
        self.family: str = network.config.model_type
        self.layers: int = self.config.num_hidden_layers
        self.chat = ChatFormat(tokenizer)
        self.scratch = Scratch()
        self.path: AttentionPath = "segments"
        self.rotaries: Rotaries = (None,) * self.layers
        self.kv_shape = (0, 0)
        self._carriers: list[Any] = []
        self._keeps_last = "logits_to_keep" in inspect.signature(network.forward).parameters
        attention.register()
        dense.register()
        self.probe: Probe = probe(self)
        self.context_length = context_length(self.config, self.probe)

    @property
    def torch_dtype(self) -> torch.dtype:
        """Of the weights, and so of keys and values."""
        dtype: torch.dtype = self.network.dtype
        return dtype

    @property
    def dtype(self) -> str:
        """Its short name: fp32, bf16 or fp16."""
        return next(name for name, dtype in DTYPES.items() if dtype == self.torch_dtype)

    @property
    def device(self) -> str:
        """Where the model runs."""
        return str(self.network.device)

    @property
    def relocatable(self) -> bool:
        """Whether a segment may be read at another place than it was encoded at."""
        return self.probe.relocatable

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values that one token takes (paper, section 5.5)."""
        heads, size = self.kv_shape
        return 2 * self.layers * heads * size * self.torch_dtype.itemsize

    @property
    def stand_in(self) -> int:
        """The token that fills a parameter's slot: `<unk>`, else the model's best stand-in."""
        for token in (self.tokenizer.unk_token_id, self.tokenizer.pad_token_id, self.tokenizer.eos_token_id):
            if token is not None:
                return int(token)
        return 0

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end an answer."""
        configured = self.network.generation_config.eos_token_id
        tokens = configured if isinstance(configured, list) else [configured]
        return frozenset(t for t in (*tokens, self.tokenizer.eos_token_id) if t is not None)

    def tokenize(self, text: str) -> list[int]:
        """Tokenizes text of an author, in which the spelling of a special token is plain text."""
        return self.chat.tokens.plain(text)

    def take_path(self, path: AttentionPath) -> None:
        """Has the network compute attention on this path from now on."""
        self.path = path
        if path == "segments":
            self.network.set_attn_implementation(attention.ATTENTION)
        else:  # such models say that they cannot change their attention, and need not: only the mask is ours
            self.config._attn_implementation = dense.DENSE

    def carry(self) -> None:
        """From now on hands keys and values to the attention modules themselves, as attributes."""
        modules = self.network.modules()
        self._carriers = [m for m in modules if hasattr(m, "layer_idx") and "Attention" in type(m).__name__]

    def key_values(self, placements: Sequence[Placement], capacity: int) -> KVCache:
        """Returns what `capacity` new tokens may attend to, beginning with these placements."""
        if self.path == "dense":
            return DenseKVCache(placements, rotaries=self.rotaries, capacity=capacity)
        return SegmentKVCache(placements, rotaries=self.rotaries, capacity=capacity, scratch=self.scratch)

    @torch.inference_mode()
    def forward(
        self, token_ids: Sequence[int], positions: Sequence[int], kv: KVCache, keep: int = 1
    ) -> Tensor:
        """Runs new tokens through the network; their keys and values join the tail of `kv`.

        Args:
            token_ids: the new tokens.
            positions: ascending, one per token, none negative (some models look them up in a table).
            kv: what they may attend to, also at negative positions.
            keep: how many of the last tokens to return logits for.

        Returns:
            Logits [keep, vocabulary].
        """
        logits = self._run(token_ids, positions, kv, keep)
        kv.commit()
        return logits

    @torch.inference_mode()
    def first_keys(
        self, token_ids: Sequence[int], positions: Sequence[int], kv: KVCache, layer: int
    ) -> tuple[Tensor, Tensor]:
        """Runs new tokens through the layers up to the keys and values of one, and no further.

        Args:
            token_ids: the new tokens.
            positions: ascending, one per token.
            kv: what they may attend to; used up by this.
            layer: whose keys are wanted.

        Returns:
            Keys and values, each [kv_heads, tokens, head_dim]; keys rotated for `positions`.
        """
        kv.until = layer
        try:
            self._run(token_ids, positions, kv, 1)
        except StopForward:
            kv.commit()
        return kv.layer_tail(layer)

    @torch.inference_mode()
    def attention_to_cache(
        self, token_ids: Sequence[int], positions: Sequence[int], kv: SegmentKVCache
    ) -> Tensor:
        """Runs new tokens through the network and returns how much they attend to each cached token.

        Args:
            token_ids: the new tokens.
            positions: ascending, one per token.
            kv: what they may attend to, on the path "segments".

        Returns:
            [cached tokens] in the order of the placements, summed over layers, heads and rows.
        """
        kv.watch()
        self._run(token_ids, positions, kv, 1)
        kv.commit()
        assert kv.attention is not None
        return kv.attention

    def _run(self, token_ids: Sequence[int], positions: Sequence[int], kv: KVCache, keep: int) -> Tensor:
        device = self.network.device
        kv.expect(positions)
        inputs: dict[str, Any] = {"use_cache": False, "kv": kv}
        if isinstance(kv, DenseKVCache):
            inputs = {"use_cache": True, "past_key_values": kv}
        if self._keeps_last:
            inputs["logits_to_keep"] = keep
        for module in self._carriers:
            setattr(module, attention.CARRIED, kv)
        try:
            logits: Tensor = self.network(
                input_ids=torch.tensor([list(token_ids)], device=device),
                position_ids=torch.tensor([list(positions)], device=device),
                **inputs,
            ).logits[0]
        finally:
            for module in self._carriers:
                delattr(module, attention.CARRIED)
        return logits[-keep:]
