"""Log-probabilities of tokens, in OpenAI's two forms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import Field

from app.server.http.errors import INVALID, ApiError
from app.server.http.shapes import Count, Reply
from engine.base.events import TokenLogprob

MOST_ALTERNATIVES = 20
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_LOST = "\ufffd"  # decoding returns it for a part of a character
_PRINTED = [*range(33, 127), *range(161, 173), *range(174, 256)]
# GPT-2's alphabet for bytes: printed ones stand for themselves, the others are the characters from 256 on.
_ALPHABET = {chr(byte): byte for byte in _PRINTED} | {
    chr(256 + place): byte for place, byte in enumerate(byte for byte in range(256) if byte not in _PRINTED)
}


class Alternative(Reply):
    """A token with its log-probability."""

    token: str
    logprob: float
    bytes: list[int] | None = Field(description="The token in UTF-8, maybe a part of a character.")


class ScoredToken(Alternative):
    """A token of the answer, with the likeliest tokens at its place."""

    top_logprobs: list[Alternative]


class ChatLogprobs(Reply):
    """The tokens of a message."""

    content: list[ScoredToken]
    refusal: None = None


class TextLogprobs(Reply):
    """The tokens of a text; the first token of a prompt has no log-probability."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[Count]


class TokenTexts:
    """The texts of a tokenizer's tokens as they continue a text."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._known = tokenizer, dict[int, str]()
        lead = list(tokenizer("a", add_special_tokens=False)["input_ids"])
        self._lead = lead if self._decoded(lead) == "a" else []

    def __getitem__(self, token: int) -> str:
        if token not in self._known:
            self._known[token] = self.joined([token])
        return self._known[token]

    def joined(self, tokens: Sequence[int]) -> str:
        """Returns the text of several tokens."""
        return self._decoded([*self._lead, *tokens])[len(self._lead and "a") :]

    def bytes_of(self, token: int) -> list[int] | None:
        """Returns the bytes of a token; None if the tokenizer does not have them."""
        text = self[token]
        if _LOST not in text:
            return list(text.encode())
        piece = self._tokenizer.convert_ids_to_tokens(token) or ""
        if match := _BYTE.fullmatch(piece):
            return [int(match[1], 16)]
        found = [_ALPHABET.get(char) for char in piece]
        return None if None in found else [byte for byte in found if byte is not None]

    def begins(self, text: str, token: int) -> bool:
        """Whether a text begins with a token, or may begin with one that is a part of a character."""
        return text.startswith(self[token]) or (_LOST in self[token] and bool(self.bytes_of(token)))

    def span(self, token: int) -> tuple[int, int]:
        """Returns the characters that begin in a token, and 1 if it begins within an earlier one, else 0."""
        data = self.bytes_of(token) if _LOST in self[token] else None
        if not data:
            return len(self[token]), 0
        return sum(map(_begins, data)), int(not _begins(data[0]))

    def width(self, tokens: Iterable[int]) -> int:
        """Returns the characters that begin in tokens."""
        return sum(self.span(token)[0] for token in tokens)

    def _decoded(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text


def _begins(byte: int) -> bool:
    """Whether a byte begins a character in UTF-8."""
    return byte & 0xC0 != 0x80


def require_alternatives(given: int | None, param: str) -> None:
    """Rejects an invalid number of alternatives with an ApiError."""
    if given is not None and not 0 <= given <= MOST_ALTERNATIVES:
        raise ApiError(INVALID, f"{param} is {given}; it must be 0 to {MOST_ALTERNATIVES}.", param)


def chat_logprobs(texts: TokenTexts, scored: Iterable[TokenLogprob]) -> ChatLogprobs:
    """Returns the tokens of a message."""

    def named(token: int, logprob: float) -> dict[str, Any]:
        return {"token": texts[token], "logprob": logprob, "bytes": texts.bytes_of(token)}

    content = [
        ScoredToken(
            **named(one.token, one.logprob), top_logprobs=[Alternative(**named(*pair)) for pair in one.top]
        )
        for one in scored
    ]
    return ChatLogprobs(content=content)


def text_logprobs(
    texts: TokenTexts, scored: Iterable[TokenLogprob], start: int = 0, first: int | None = None
) -> TextLogprobs:
    """Returns the tokens of a text.

    Args:
        texts: the texts of tokens.
        scored: the tokens.
        start: the offset of their text, in characters; below 0 if a token before it is not in the text.
        first: a token before them, without a log-probability.
    """
    found = TextLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])
    if first is not None:
        found.tokens.append(texts[first])
        found.token_logprobs.append(None)
        found.top_logprobs.append(None)
        found.text_offset.append(max(0, start))
        start += texts.span(first)[0]
    for one in scored:
        best: dict[str, float] = {}
        for token, logprob in one.top:
            best.setdefault(texts[token], logprob)  # the likeliest of tokens with the same text
        found.tokens.append(texts[one.token])
        found.token_logprobs.append(one.logprob)
        found.top_logprobs.append(best)
        width, within = texts.span(one.token)
        found.text_offset.append(max(0, start - within))
        start += width
    return found
