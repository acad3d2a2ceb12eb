"""Settings of a run, declared once: sampling and reuse of segments.

The command line, the page and the docs use these declarations. An invalid value raises an error with a
sentence. The module imports no tensor library, so that a command line starts quickly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, Literal

from engine.base import token_bias
from engine.base.choices import (
    PLACEMENTS,
    REUSES,
    SCOPES,
    SPECULATIONS,
    PlacementPolicy,
    Reuse,
    Scope,
    Speculate,
)
from engine.base.errors import SettingsError
from engine.grammars.grammar import FORM, FREE, JSON_OBJECT, PATTERN, compiled
from engine.inference.setting import declared, settings_of

RepairKind = Literal["none", "link", "blend", "query", "impact"]
REPAIRS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "none": "no cached token is computed again",
        "link:K": "the first K tokens of each module",
        "blend:R": "the share R of cached tokens whose keys deviate most from a full pass",
        "query:R": "the share R of cached tokens that the new text attends to most",
        "impact:R": "the share R that the new text attends to most in deep layers, first tokens preferred",
    }
)
_REPAIR = r"none|link:[0-9]{1,9}|(blend|query|impact):(0|1|0?[.][0-9]+|1[.]0*)"
_REPAIR_FORM = (
    "none, link:K (the first K tokens of each module), blend:R, query:R or impact:R (a share between 0 and 1)"
)
REPAIR_EXAMPLES: Final = (
    "none",
    "link:2",
    "link:8",
    "blend:0.15",
    "query:0.15",
    "impact:0.15",
)  # offered, and tried as fixes


@dataclass(frozen=True)
class Repair:
    """Which cached tokens to compute again: `tokens` of each run for `link`, else a share of all."""

    kind: RepairKind = "none"
    tokens: int = 0
    share: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Repair:
        """Parses "none", "link:2", "blend:0.15", "query:0.1".

        Raises:
            SettingsError: the text is none of these.
        """
        if not re.fullmatch(_REPAIR, text):
            raise SettingsError(f"repair is {text!r}; it must be {_REPAIR_FORM}.")
        kind, _, number = text.partition(":")
        match kind:
            case "link":
                return cls("link", tokens=int(number))
            case "blend":
                return cls("blend", share=float(number))
            case "query":
                return cls("query", share=float(number))
            case "impact":
                return cls("impact", share=float(number))
        return cls()


CHOOSES: Final = (
    "reuse 'auto' chooses scope and repair itself. Leave them out, or set reuse to 'off' to use yours."
)


class _Checked:
    """Rejects values out of range."""

    def __post_init__(self) -> None:
        for name, setting in settings_of(type(self)).items():
            object.__setattr__(self, name, setting.checked(getattr(self, name)))


@dataclass(frozen=True)
class SamplingParams(_Checked):
    """Sampling settings of an answer, and where it ends.

    Raises:
        SettingsError: a value is out of range.
    """

    max_new_tokens: int = field(
        default=128,
        metadata=declared(
            "Max answer length", "Maximum length of the answer.", unit="tokens", least=1, most=1_000_000
        ),
    )
    temperature: float = field(
        default=0.0,
        metadata=declared(
            "Temperature", "0 always takes the likeliest token; higher is more varied.", least=0, most=10
        ),
    )
    top_p: float = field(
        default=1.0,
        metadata=declared(
            "Top-p",
            "Draw from the likeliest tokens whose probabilities add up to this share; 1 means all.",
            least=0,
            above=True,
            most=1,
        ),
    )
    top_k: int = field(
        default=0,
        metadata=declared("Top-k", "Draw from this many of the likeliest tokens; 0 means all.", least=0),
    )
    min_p: float = field(
        default=0.0,
        metadata=declared(
            "Min-p",
            "Draw from tokens with at least this share of the likeliest token's probability; 0 means all.",
            least=0,
            most=1,
        ),
    )
    repetition_penalty: float = field(
        default=1.0,
        metadata=declared(
            "Repetition penalty",
            "Above 1 discourages tokens that the prompt or the answer already has.",
            least=0.01,
            most=10,
        ),
    )
    presence_penalty: float = field(
        default=0.0,
        metadata=declared(
            "Presence penalty", "Subtracted from scores of tokens that the answer has.", least=-2, most=2
        ),
    )
    frequency_penalty: float = field(
        default=0.0,
        metadata=declared(
            "Frequency penalty",
            "Subtracted from a token's score as often as the answer has it.",
            least=-2,
            most=2,
        ),
    )
    logit_bias: str = field(
        default=token_bias.NONE,
        metadata=declared(
            "Token biases",
            "Numbers added to the scores of tokens; -100 excludes a token, 100 forces it.",
            pattern=token_bias.PATTERN,
            form=token_bias.FORM,
            examples=(token_bias.NONE,),
        ),
    )
    stop: tuple[str, ...] = field(
        default=(), metadata=declared("Stop before", "End the answer before any of these texts.")
    )
    seed: int = field(
        default=0,
        metadata=declared("Seed", "Seed of the sampling, the same on both sides.", least=0, most=2**63 - 1),
    )
    speculate: Speculate = field(
        default="auto",
        metadata=declared(
            "Speculative decoding",
            "Guess tokens that repeat the prompt or the answer, and check several of them in one pass.",
            choices=SPECULATIONS,
        ),
    )
    grammar: str = field(
        default=FREE,
        metadata=declared(
            "Answer format",
            'Limits the answer: text, json, schema:{…}, regex:…, choices:["A", "B"] or lark:….',
            pattern=PATTERN,
            form=FORM,
            examples=(FREE, JSON_OBJECT),
        ),
    )

    def __post_init__(self) -> None:
        """Rejects values out of range, and a grammar that cannot be enforced."""
        super().__post_init__()
        if self.grammar != FREE:
            compiled(self.grammar)


@dataclass(frozen=True)
class ReuseParams(_Checked):
    """How a prompt reuses segments.

    Raises:
        SettingsError: a value is out of range.
    """

    reuse: Reuse = field(
        default="off",
        metadata=declared("Reuse", "How scope and repair are chosen.", choices=REUSES),
    )
    max_kl: float = field(
        default=0.02,
        metadata=declared(
            "Max KL",
            "With reuse auto, the maximum mean KL between an answer and the uncached one.",
            unit="nats per token",
            least=0,
            most=100,
        ),
    )
    scope: Scope = field(
        default="anchored",
        metadata=declared("Scope", "The context of a module when it is encoded.", choices=SCOPES),
    )
    repair: str = field(
        default="none",
        metadata=declared(
            "Repair",
            "Cached tokens to compute again.",
            pattern=_REPAIR,
            form=_REPAIR_FORM,
            examples=REPAIR_EXAMPLES,
        ),
    )
    placement: PlacementPolicy = field(
        default="compact",
        metadata=declared(
            "Placement",
            "Positions of tokens. Models that cannot move segments always use the schema's positions.",
            choices=PLACEMENTS,
        ),
    )
    hold_conversation: bool = field(
        default=True,
        metadata=declared(
            "Cache earlier turns",
            "Encode earlier turns as segments, which the next prompt of the conversation reuses. Turn it "
            "off for single prompts, which are faster without it.",
        ),
    )
    store_conversation: bool = field(
        default=False,
        metadata=declared(
            "Store earlier turns",
            "Also write earlier turns of the prompt to disk; by default only segments of the schema are "
            "stored.",
        ),
    )

    sync: bool = field(
        default=False,
        metadata=declared(
            "Wait for the disk",
            "Write new segments to disk before the first token; by default they are written during the "
            "answer.",
        ),
    )

    def __post_init__(self) -> None:
        """Rejects values out of range, and a scope or repair together with reuse "auto"."""
        super().__post_init__()
        declared = self.__dataclass_fields__
        own = [name for name in ("scope", "repair") if getattr(self, name) != declared[name].default]
        if self.reuse == "auto" and own:
            if declared["reuse"].default != "auto":
                raise SettingsError(f"{own[0]} is {getattr(self, own[0])!r}, and {CHOOSES}")
            object.__setattr__(self, "reuse", "off")  # "auto" was only the default

    @property
    def turns_held(self) -> bool:
        """Whether earlier turns become segments, in memory or on disk."""
        return self.hold_conversation or self.store_conversation


@dataclass(frozen=True)
class RunSettings(ReuseParams, SamplingParams):
    """All settings of a run.

    Raises:
        SettingsError: a value is out of range.
    """

    @classmethod
    def read(cls, sent: Mapping[str, object]) -> RunSettings:
        """Reads settings from a JSON object; missing ones get their defaults.

        Raises:
            SettingsError: a value is out of range, or its name is unknown.
        """
        known = [setting.name for setting in fields(cls)]
        if unknown := [name for name in sent if name not in known]:
            raise SettingsError(f"There is no setting {unknown[0]!r}; there are {', '.join(known)}.")
        values: dict[str, Any] = dict(sent)
        return cls(**values)
