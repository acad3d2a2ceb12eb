"""Biases of tokens: numbers that are added to the model's scores of single tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from engine.base.errors import SettingsError

NONE: Final = "none"
MOST: Final = 100
FORM: Final = f"none, or TOKEN:BIAS pairs with biases from -{MOST} to {MOST}, such as 15:-100,29:2.5"
_PAIR: Final = r"[0-9]{1,9}:-?(100([.]0*)?|[0-9]{1,2}([.][0-9]*)?)"
PATTERN: Final = f"none|{_PAIR}(,{_PAIR})*"
_TOKEN: Final = re.compile(r"[0-9]{1,9}")


class TokenBiasError(SettingsError):
    """A bias is out of range, or its token is not of the model's vocabulary."""


def biases_of(text: str) -> dict[int, float]:
    """Reads the setting: the bias of each token. Of several for one token, the last counts."""
    if text == NONE:
        return {}
    pairs = (pair.split(":") for pair in text.split(","))
    return {int(token): float(bias) for token, bias in pairs}


def of_biases(biases: Mapping[str, float]) -> str:
    """Spells biases by token as the setting.

    Raises:
        TokenBiasError: a token is not a whole number, or a bias is out of range.
    """
    for token, bias in biases.items():
        if not _TOKEN.fullmatch(token):
            raise TokenBiasError(f"logit_bias has {token!r}; each key must be the number of a token.")
        if not (math.isfinite(bias) and abs(bias) <= MOST):
            raise TokenBiasError(
                f"logit_bias gives token {token} the bias {bias!r}; it must be -{MOST} to {MOST}."
            )
    return ",".join(f"{token}:{bias:.9f}" for token, bias in biases.items()) or NONE


def require_known(text: str, vocabulary: int) -> None:
    """Raises TokenBiasError if a token is not below `vocabulary`, the number of the model's tokens."""
    for token in biases_of(text):
        if token >= vocabulary:
            raise TokenBiasError(
                f"logit_bias has token {token}; the tokens of this model are 0 to {vocabulary - 1}."
            )
