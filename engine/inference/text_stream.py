"""Decodes tokens to text piece by piece; emitted text never changes."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from itertools import takewhile
from typing import Any

from tokenizers import Tokenizer, models
from tokenizers.decoders import DecodeStream
from transformers.tokenization_utils_tokenizers import PreTrainedTokenizerFast

_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_MARK = 0x10F000  # private characters that replace special tokens
_CLEANED = 6  # characters that cleaning up spaces may still change, as of " n ' t"


class TextStream:
    """Token ids → text, without splitting a character or emitting part of a stop text.

    All pieces together equal the tokenizer's decoding of all tokens, up to a stop text. Special tokens have
    no text, but a stop text that contains some ends the answer when they come.

    Args:
        tokenizer: a tokenizer of transformers.
        stops: texts that end the answer.
        continues: the tokens continue a text, so a space before the first word is text; else the space that
            some tokenizers add at the start is not.

    Attributes:
        text: all emitted text.
        stopped: whether a stop text came, which ends the output.
        stop: that stop text.
    """

    def __init__(self, tokenizer: Any, stops: Sequence[str] = (), *, continues: bool = False) -> None:
        spelled = _spelled(tokenizer, stops)
        self._marks = {index: chr(_MARK + place) for place, index in enumerate(spelled)}
        stepwise = decodes_by_itself(tokenizer)
        self._decoding: _Stepwise | _Whole = (_Stepwise if stepwise else _Whole)(
            tokenizer, self._marks, _lead(tokenizer) if continues else ()
        )
        marked = {_marked(stop, spelled, self._marks): stop for stop in stops}
        self._stops = {**marked, **{stop: stop for stop in stops}}  # they may also come letter by letter
        self._held = ""
        self.text = ""
        self.stopped = False
        self.stop: str | None = None

    def add(self, token: int) -> str:
        """Returns the text that this token completes."""
        piece, mark = self._decoding.add(token), self._marks.get(token, "")
        if mark and any(stop in self._held + piece + mark for stop in self._stops):
            piece += self._decoding.rest()
        return self._give(piece + mark, ended=False)

    def rest(self) -> str:
        """Returns the buffered text, once no more tokens come."""
        return self._give(self._decoding.rest(), ended=True)

    def _give(self, piece: str, *, ended: bool) -> str:
        if self.stopped:
            return ""
        ready = self._held + piece
        ends = [(place, text) for stop, text in self._stops.items() if (place := ready.find(stop)) >= 0]
        self.stopped = bool(ends)
        first, self.stop = min(ends, default=(0, None))
        cut = first if ends else len(ready) - (0 if ended else self._begun(ready))
        ready, self._held = ready[:cut], ready[cut:]
        for mark in self._marks.values():
            ready = ready.replace(mark, "")
        self.text += ready
        return ready

    def _begun(self, text: str) -> int:
        """The number of characters at the end that may begin a stop text."""
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        for count in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-count:]) for stop in self._stops):
                return count
        return 0


class _Stepwise:
    """Decodes each token once, with those that complete a character with it.

    In a vocabulary with byte fallback, a byte's meaning is open until a token follows that is none: one
    invalid byte turns all of them into replacement characters.
    """

    def __init__(self, tokenizer: Any, marks: Container[int], lead: Sequence[int]) -> None:
        self._backend: Tokenizer = tokenizer.backend_tokenizer
        self._stream = DecodeStream(ids=list(lead), skip_special_tokens=True)
        decoder = self._backend.decoder
        self._bytes = decoder is not None and b"ByteFallback" in decoder.__getstate__()
        added = self._backend.get_added_tokens_decoder()
        self._skipped = frozenset(
            index for index, token in added.items() if token.special and index not in marks
        )
        self._ids = list(lead)
        self._open = 0  # number of last tokens with an open meaning
        self._given = len(self._backend.decode(self._ids, skip_special_tokens=True))
        self._lost = False

    def add(self, token: int) -> str:
        self._ids.append(token)
        self._open += 1
        if self._lost or (self._bytes and self._is_open(token)):
            return ""
        try:
            piece: str = self._stream.step(self._backend, self._ids[-self._open :]) or ""
        except Exception:  # the decoder changed emitted text; `rest` decodes all again
            self._lost = True
            return ""
        self._open = 0
        self._given += len(piece)
        return piece

    def rest(self) -> str:
        whole: str = self._backend.decode(self._ids, skip_special_tokens=True)
        piece = whole[self._given :]
        self._given += len(piece)
        self._lost = True  # the stream lacks this text
        return piece

    def _is_open(self, token: int) -> bool:
        spelled = self._backend.id_to_token(token)
        if self._open > 1 and (spelled is None or token in self._skipped):
            return True
        return spelled is not None and _BYTE.fullmatch(spelled) is not None


class _Whole:
    """Decodes all tokens again for each, for tokenizers with Python code.

    Such a decoder may still change its last words, so text is emitted once the next token leaves it
    unchanged.
    """

    def __init__(self, tokenizer: Any, marks: Container[int], lead: Sequence[int]) -> None:
        self._tokenizer, self._marks = tokenizer, marks
        self._cleans = bool(getattr(tokenizer, "clean_up_tokenization_spaces", False))
        self._ids = list(lead)
        self._latest = self._given = self._decoded() if lead else ""

    def add(self, token: int) -> str:
        self._ids.append(token)
        before, now = self._latest, self._decoded()
        if token in self._marks and now.startswith(self._given):  # the text before it ends here
            return self._take(now)
        if now == before:  # a token without text
            return ""
        self._latest = now
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, now, strict=False)))
        settled = now[:same].rstrip("\ufffd")
        if self._cleans:
            space = settled.find(" ", max(0, len(settled) - _CLEANED))
            settled = settled if space < 0 else settled[:space]
        return self._take(settled) if settled.startswith(self._given) else ""

    def rest(self) -> str:
        return self._take(self._decoded())

    def _decoded(self) -> str:
        return str(self._tokenizer.decode(self._ids, skip_special_tokens=True))

    def _take(self, text: str) -> str:
        piece, self._given = text[len(self._given) :], text
        return piece


def _lead(tokenizer: Any) -> Sequence[int]:
    """The tokens of a letter to continue from; none if they decode differently."""
    tokens = list(tokenizer("a", add_special_tokens=False)["input_ids"])
    return tokens if tokenizer.decode(tokens, skip_special_tokens=True) == "a" else ()


def _spelled(tokenizer: Any, stops: Sequence[str]) -> dict[int, str]:
    """The special tokens in stop texts, by their ids, the longest first."""
    if not stops:
        return {}
    added: Mapping[int, Any] = getattr(tokenizer, "added_tokens_decoder", {})
    special = dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
    special |= {index: token.content for index, token in added.items() if token.special}
    spelled = [pair for pair in special.items() if pair[1] and any(pair[1] in stop for stop in stops)]
    return dict(sorted(spelled, key=lambda pair: -len(pair[1])))


def _marked(stop: str, spelled: Mapping[int, str], marks: Mapping[int, str]) -> str:
    """A stop text with marks instead of special tokens."""
    for index, content in spelled.items():
        stop = stop.replace(content, marks[index])
    return stop


def decodes_by_itself(tokenizer: Any) -> bool:
    """Whether transformers decodes tokens exactly as the library's own tokenizer does."""
    fast: Any = PreTrainedTokenizerFast
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(tokenizer, fast) or not isinstance(backend, Tokenizer):
        return False
    if type(tokenizer).decode is not fast.decode or type(tokenizer)._decode is not fast._decode:
        return False
    anyway = "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"
    cleans = not isinstance(backend.model, models.BPE) or getattr(tokenizer, anyway, False)
    return not (cleans and tokenizer.clean_up_tokenization_spaces)
