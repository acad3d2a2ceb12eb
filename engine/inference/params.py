"""How a prompt is run, as data that is checked once. No tensors, so a command line can use it at once."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from engine.errors import SettingsError
from engine.prompt.layout import SCOPES, Scope
from engine.prompt.plan import PLACEMENTS, PlacementPolicy

RepairKind = Literal["none", "link", "blend", "query"]
_FORMS = "none, link:K (the first K tokens of each module), blend:R or query:R (a share between 0 and 1)"


@dataclass(frozen=True)
class Repair:
    """Which cached tokens are computed again.

    Attributes:
        kind: how they are chosen.
        tokens: of each run, for `link`.
        share: of all cached tokens, for `blend` and `query`.
    """

    kind: RepairKind = "none"
    tokens: int = 0
    share: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Repair:
        """Reads "none", "link:2", "blend:0.15", "query:0.1".

        Raises:
            SettingsError: the text is none of these.
        """
        if text == "none":
            return cls()
        if found := re.fullmatch(r"link:(\d{1,9})", text):
            return cls("link", tokens=int(found[1]))
        if found := re.fullmatch(r"(blend|query):(0|1|0?\.\d+|1\.0*)", text):
            return cls("blend" if found[1] == "blend" else "query", share=float(found[2]))
        raise SettingsError(f"repair is {text!r}; it must be {_FORMS}.")


@dataclass(frozen=True)
class RunSettings:
    """How a prompt is run.

    Attributes:
        max_new_tokens: the longest answer, in tokens.
        temperature: 0 takes the likeliest token every time.
        top_p: only the likeliest tokens that reach this share of the probability together; 1 for all.
        top_k: only this many of the likeliest tokens; 0 for all.
        repetition_penalty: above 1 makes tokens less likely that the prompt or the answer holds already.
        stop: texts that end the answer; they are not part of it.
        seed: of the sampling; the same on both sides.
        scope: what modules see while they are encoded.
        repair: which cached tokens are computed again: "none", "link:K", "blend:R" or "query:R".
        placement: "compact", or "schema" for the schema's own positions.
        hold_conversation: earlier turns of the conversation become segments, for the next prompt that goes on
            from them; else they are computed with the new text, which is quicker where none follows.
        store_conversation: earlier turns of the conversation are written to the disk too; else their
            segments are held in memory only.

    Raises:
        SettingsError: a value is out of its range.
    """

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int = 0
    scope: Scope = "anchored"
    repair: str = "none"
    placement: PlacementPolicy = "compact"
    hold_conversation: bool = True
    store_conversation: bool = False

    @property
    def turns_held(self) -> bool:
        """Whether earlier turns become segments, in memory or on disk."""
        return self.hold_conversation or self.store_conversation

    def __post_init__(self) -> None:
        _require(self.max_new_tokens >= 1, "max_new_tokens", self.max_new_tokens, "at least 1")
        finite = math.isfinite(self.temperature) and self.temperature >= 0
        _require(finite, "temperature", self.temperature, "0 or more")
        _require(0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        _require(self.top_k >= 0, "top_k", self.top_k, "0 or more")
        penalty = math.isfinite(self.repetition_penalty) and self.repetition_penalty > 0
        _require(penalty, "repetition_penalty", self.repetition_penalty, "above 0 (1 changes nothing)")
        _require(all(self.stop), "stop", list(self.stop), "texts of at least one character")
        _require(0 <= self.seed < 1 << 63, "seed", self.seed, "between 0 and 2**63 - 1")
        _require(self.scope in SCOPES, "scope", self.scope, f"one of {', '.join(SCOPES)}")
        _require(self.placement in PLACEMENTS, "placement", self.placement, f"one of {', '.join(PLACEMENTS)}")
        Repair.parse(self.repair)


def _require(fits: bool, name: str, value: object, rule: str) -> None:
    if not fits:
        raise SettingsError(f"{name} is {value!r}; it must be {rule}.")
