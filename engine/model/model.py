"""A causal language model: a network that attends to segments, its measurements, and its tokenizer.

`loading` makes models.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from engine.attention.rope import Rotaries
from engine.attention.varlen_kernel import refusal
from engine.checkpoint.generation_config import Generation
from engine.grammars.grammar import FREE
from engine.grammars.matcher import GrammarTokens, Matcher
from engine.model.batch_invariance import RowRounding
from engine.model.hf_attention import AttentionPath
from engine.model.model_files import Stored
from engine.model.network import Network
from engine.model.probe import Probe, context_length, probe
from engine.model.probe_cache import Memory
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.template.turn_end import turn_end
from engine.prompt.unknown_tokens import UnknownTokens
from engine.quantize.packed_weights import packed_layers
from engine.quantize.quantized_weights import quantized_scheme

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Model:
    """A causal language model with its tokenizer, ready for attention over segments.

    Args:
        name: the model's name, as the user wrote it.
        module: a network of transformers, in evaluation mode.
        tokenizer: a tokenizer of transformers.
        fingerprint: digest of weights, config and tokenizer.
        memory: measurements of earlier starts; None to measure now.

    Raises:
        ModelError: neither path reproduces the model.

    Attributes:
        probe: its measurements.
        network: the forward pass, set up by the probe.
        form: the form of its keys and values.
        family: its architecture's name in transformers.
        context_length: the most tokens of a prompt with its answer.
        chat: the chat format, with separate copies of the tokenizer.
        unknown_tokens: the tokens of the tokenizer that the network does not know.
        stored: its files.
        notes: notes on its files for the user; each begins in lower case.
    """

    def __init__(
        self, name: str, module: Any, tokenizer: Any, fingerprint: str, memory: Memory | None = None
    ) -> None:
        self.name, self.tokenizer, self.fingerprint = name, tokenizer, fingerprint
        self.stored = Stored(name)
        plain = Network(module)
        measured = probe(plain, name) if memory is None else memory.probed(plain, name, fingerprint)
        self.probe: Probe = measured
        self.network = plain.under(self.probe.setup)
        self.form = self.probe.form
        self.family: str = module.config.model_type
        self.context_length = context_length(self.network.config, self.probe)
        self.chat = ChatFormat(tokenizer)
        self.unknown_tokens = UnknownTokens.of(name, tokenizer, len(module.get_input_embeddings().weight))
        self.notes = tuple(filter(None, (self.unknown_tokens.note, self._endless)))

    @property
    def config(self) -> Any:
        """The text part of its configuration in transformers."""
        return self.network.config

    @property
    def path(self) -> AttentionPath:
        """The path that reproduces the model."""
        return self.probe.path

    @property
    def rotaries(self) -> Rotaries:
        """The rotary embedding of each layer."""
        return self.network.setup.rotaries

    @property
    def relocatable(self) -> bool:
        """Whether a segment can be read at another place than it was encoded at."""
        return self.probe.relocatable

    @property
    def packs(self) -> bool:
        """Whether one pass can take several texts, each as if alone."""
        return self.probe.packs

    @property
    def alone(self) -> str:
        """The reason why one pass cannot take rows of several prompts; "" if it can."""
        return self.probe.alone

    @property
    def apart(self) -> str:
        """The reason why a GPU reads each shared segment by a separate product.

        Empty if it reads them in one call, if prompts share no pass, and on the processor.
        """
        if self.alone or self.network.device.type == "cpu":
            return ""
        like = torch.empty(self.form.size, dtype=self.form.dtype, device=self.network.device)
        return refusal(like, getattr(self.config, "attn_logit_softcapping", None))

    @property
    def layers(self) -> int:
        """The number of attention layers."""
        return self.network.layers

    @property
    def torch_dtype(self) -> torch.dtype:
        """The number format of the weights, keys and values."""
        return self.network.dtype

    @property
    def dtype(self) -> str:
        """The short name of the number format: fp32, bf16 or fp16."""
        return next(name for name, dtype in DTYPES.items() if dtype == self.torch_dtype)

    @property
    def device(self) -> str:
        """The device of the model."""
        return str(self.network.device)

    @functools.cached_property
    def rows(self) -> RowRounding:
        """The rounding of passes with several rows."""
        return RowRounding(self.network)

    @property
    def weights(self) -> str:
        """The form of the weights: "int8", "int4", "four-bit" as in a file, "packed" or "plain"."""
        rounded = quantized_scheme(self.network.module)
        if rounded != "none":
            return "four-bit" if self.stored.four_bits else rounded
        return "packed" if packed_layers(self.network.module) else "plain"

    @property
    def bytes_per_token(self) -> int:
        """Bytes of the keys and values of one token (paper, section 5.5)."""
        return self.form.bytes_per_token

    @property
    def stand_in(self) -> int:
        """The token that fills a parameter's slot: `<unk>`, else the model's best substitute."""
        for token in (self.tokenizer.unk_token_id, self.tokenizer.pad_token_id, self.tokenizer.eos_token_id):
            if token is not None and token < self.unknown_tokens.known:
                return int(token)
        return 0

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end an answer."""
        ends = (*self.generation.ends, self.tokenizer.eos_token_id, self._turn_end)
        return frozenset(token for token in ends if token is not None)

    @functools.cached_property
    def _turn_end(self) -> int | None:
        return turn_end(self.chat)

    @property
    def _endless(self) -> str:
        """A note if the model knows no token that ends an answer; else empty."""
        if not self.end_tokens or min(self.end_tokens) < self.unknown_tokens.known:
            return ""
        ends = ", ".join(map(str, sorted(self.end_tokens)))
        return (
            f"model {self.name!r} lacks all tokens that end its answers ({ends}), so each answer "
            "has the maximum length; correct eos_token_id in its files"
        )

    @functools.cached_property
    def generation(self) -> Generation:
        """The generation settings of the model's makers."""
        config, added = self.network.module.generation_config, self.tokenizer.get_added_vocab()
        return Generation(config, added, int(self.config.vocab_size), self.context_length)

    @functools.cached_property
    def _grammar_tokens(self) -> GrammarTokens:
        return GrammarTokens(self.tokenizer, int(self.config.vocab_size), self.end_tokens)

    def matcher(self, grammar: str) -> Matcher | None:
        """Returns what keeps an answer to a grammar; None for any text.

        Raises:
            GrammarError: the grammar is invalid or too large.
            ModelError: grammars cannot read the tokenizer.
        """
        return None if grammar == FREE else self._grammar_tokens.matcher(grammar)

    def tokenize(self, text: str) -> list[int]:
        """Tokenizes an author's text, in which the spelling of a special token is plain text."""
        return self.chat.tokens.plain(text)
