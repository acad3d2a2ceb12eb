"""Keeps an answer to a grammar: which tokens may come next, and which must."""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from cachetools import LRUCache
from llguidance import LLMatcher, LLTokenizer
from torch import Tensor

from engine.base.errors import ModelError
from engine.grammars.grammar import GrammarError, compiled, first_reason, limits

_MATCHERS = 32  # compiled grammars in memory
_MINUS_INFINITY = np.uint32(0xFF800000)  # the bits of that float


class Matcher:
    """The state of one answer under a grammar.

    Attributes:
        forced: the tokens that must come next; empty if there is a choice.
    """

    def __init__(self, own: LLMatcher, size: int) -> None:
        self._own, self._size = own, size
        self._bias = np.empty(size, np.uint32)  # the bits of floats
        self._known = False  # whether the bias is of the next token
        self.forced: list[int] = own.compute_ff_tokens()

    @property
    def complete(self) -> bool:
        """Whether the answer is complete and nothing may follow."""
        return self._own.is_stopped()

    def permits(self, token: int) -> bool:
        """Whether a token may come next: much faster than `bias`, for a single token."""
        return bool(self._own.validate_tokens([token]))

    def bias(self) -> Tensor:
        """Returns what to add to the scores of the next token: [vocabulary] fp32, 0 or -inf.

        The next call overwrites it.

        Raises:
            GrammarError: the grammar is too complex to go on.
        """
        if not self._known:
            bits = np.frombuffer(self._own.compute_bitmask(), np.uint8)
            self._require_sound()
            self._bias[:] = np.unpackbits(bits, count=self._size, bitorder="little")
            self._bias -= 1  # 0 for a permitted token, else all bits
            self._bias &= _MINUS_INFINITY
            self._known = True
        return torch.from_numpy(self._bias.view(np.float32))

    def take(self, token: int) -> None:
        """Goes on by one token of the answer.

        Raises:
            GrammarError: the grammar is too complex to go on.
        """
        self._own.consume_token(token)
        self._require_sound()
        self._known = False
        del self.forced[:1]
        if not self.forced and not self.complete:
            self.forced = self._own.compute_ff_tokens()

    def _require_sound(self) -> None:
        if error := self._own.get_error():
            raise GrammarError(
                f"The answer cannot follow its grammar: {first_reason(error)}. Simplify the grammar."
            )


class GrammarTokens:
    """The tokenizer of a model as grammars need it.

    Args:
        tokenizer: a tokenizer of transformers.
        size: the number of scores of the model.
        ends: tokens that end an answer.

    Raises:
        ModelError: the tokenizer has no form that grammars can read.
    """

    def __init__(self, tokenizer: Any, size: int, ends: Collection[int]) -> None:
        self._size, self._lock = size, threading.Lock()
        self._matchers: LRUCache[str, LLMatcher] = LRUCache(_MATCHERS)
        try:
            form = tokenizer.backend_tokenizer.to_str()
            most = max(size, len(tokenizer))
            known = sorted(end for end in ends if end < most)
            self._own = LLTokenizer(form, n_vocab=most, eos_token=known or None)
        except Exception as error:  # Python code in the tokenizer, or a form that the library cannot read
            why = " ".join(str(error).split())[:200]
            raise ModelError(
                f"The tokenizer of this model cannot be used with a grammar ({why}). Remove the grammar, or "
                "use a model with a tokenizer.json."
            ) from error

    def matcher(self, grammar: str) -> Matcher:
        """Returns the state before an answer's first token.

        Raises:
            GrammarError: the grammar is invalid or too large.
        """
        with self._lock:
            known = self._matchers.get(grammar)
        if known is None:
            known = LLMatcher(self._own, compiled(grammar), log_level=0, limits=limits())
            first = known.deep_copy()
            if not known.is_error():
                first.compute_bitmask()  # many limits are checked only here
            if error := known.get_error() or first.get_error():
                raise GrammarError(f"The grammar cannot be enforced: {first_reason(error)}. Simplify it.")
            with self._lock:
                self._matchers[grammar] = known
        return Matcher(known.deep_copy(), self._size)
