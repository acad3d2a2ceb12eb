"""A request in vendor-neutral form; every API is converted to it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import Field

from app.server.http.errors import INVALID, ApiError, Dialect
from app.server.http.truncate import cut, shown
from engine.base.choices import Scope
from engine.base.token_bias import of_biases
from engine.inference.run_settings import RunSettings
from engine.inference.setting import Setting, settings_of
from engine.pml.xml.names import NAME, NAME_RULE
from engine.prompt.conversation.messages import Message
from engine.prompt.conversation.named_blocks import LONGEST_NAME, Block, Named
from engine.prompt.conversation.tools import NO_TOOLS, Tools
from engine.prompt.template.thinking import Thinking

__all__ = [
    "Asked",
    "Block",
    "Caller",
    "Defaults",
    "Mark",
    "Message",
    "Named",
    "Over",
    "draws_of",
    "named",
    "sampling_of",
    "scoped",
    "seed_of",
    "setting",
    "settings_from",
    "settings_in",
]

LONGEST_ANSWER = 1024
HOTTEST: Mapping[Dialect, int] = {"openai": 2, "anthropic": 1, "ollama": 10}
"""The maximum temperature, the same as the vendors' own."""
USUAL: Mapping[Dialect, Mapping[str, Any]] = {"ollama": {"temperature": 0.8, "top_p": 0.9, "top_k": 40}}
"""The vendors' defaults, if they differ from temperature 1."""
SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
"""Numbers of a request that have the same name in the engine."""
SEEDS = 2**63
MOST_DRAWS = 16
_USUAL = "Default: the model's generation_config.json, else the API's default."


@dataclass(frozen=True)
class Mark:
    """A prefix to store, up to the end of a block."""

    block: int  # the index of the block, from 0, counted through all messages
    seconds: float
    param: str  # the request field with the mark


@dataclass(frozen=True)
class Over:
    """The schema part of a request, before its messages."""

    schema: str  # the name of a stored schema, or PML
    prompt: str | None = None  # the prompt in PML; None for the fixed text of the schema only
    scope: Scope = "anchored"  # what modules see while they are encoded
    owner: str = ""  # the client that owns the schema; "" for shared schemas


@dataclass(frozen=True)
class Caller:
    """The client of a request."""

    salt: str = ""  # requests share segments only within the same salt; "" for all without one
    owner: str = ""  # the owner of the client's schemas; "" for shared schemas
    report: bool = False  # whether a header requests the cache report


@dataclass(frozen=True)
class Asked:
    """A request."""

    model: str  # the requested model name
    settings: RunSettings
    messages: tuple[Message, ...] = ()  # the conversation
    text: str | None = None  # a raw prompt without a chat template, instead of messages
    tools: Tools = NO_TOOLS  # tools that the assistant may call
    deferred: Tools = NO_TOOLS  # more such tools, which the prompt does not define at its start
    forced: tuple[str, ...] = ()  # tools of which the answer must call one; empty for a free choice
    strict: tuple[str, ...] = ()  # tools whose calls keep to their parameters
    marks: tuple[Mark, ...] = ()  # prefixes to store, in order
    warm: bool = False  # whether to compute and store the prompt only, without an answer
    draws: int = 1  # answers to draw for the prompt
    logprobs: int | None = None  # alternatives in the log-probabilities of the answer's tokens; None for none
    salt: str = ""  # requests share segments only within the same salt; "" for all without one
    report: bool = False  # whether to return the cache report
    over: Over | None = None  # the schema part, before the messages or the text; None without a schema
    field: str = "messages"  # the request field with the messages or the text
    previous: str | None = None  # the id of the answer to compare with, if cache misses are to be explained


@dataclass(frozen=True)
class Defaults:
    """Defaults for request fields."""

    longest: int = LONGEST_ANSWER  # maximum answer length in tokens
    sampling: Mapping[str, Any] = field(default_factory=dict)  # the model's generation_config
    rules: Mapping[str, Any] = field(default_factory=dict)  # its rules for all requests
    thinking: Thinking = field(default_factory=Thinking)  # what its chat template says of reasoning


def named(module: object, role: str, where: str) -> Named | None:
    """Reads the name of a block: a string, or an object with `name` and `sees`.

    Raises:
        ApiError: the value is invalid, or the block belongs to the assistant.
    """
    if module is None:
        return None
    if role not in ("system", "user"):
        raise ApiError(INVALID, "Only system and user blocks can be modules.", where)
    name: Any = module
    sees: Any = []
    if isinstance(module, Mapping) and set(module) <= {"name", "sees"}:
        name, sees = module.get("name"), module.get("sees", [])
    if isinstance(name, str) and isinstance(sees, list) and all(isinstance(path, str) for path in sees):
        if len(name) > LONGEST_NAME:
            words = f"The name {shown(name)} has {len(name):,} characters; the maximum is {LONGEST_NAME}."
            raise ApiError(INVALID, words, where)
        if not NAME.fullmatch(name):
            raise ApiError(INVALID, f"{shown(name)} cannot be the name of a block: names {NAME_RULE}.", where)
        return Named(name, tuple(sees))
    words = 'It must be a name, or {"name": "…", "sees": ["…"]} with the names of other blocks.'
    raise ApiError(INVALID, words, where)


def seed_of(seed: int | None) -> int | None:
    """Converts a request's seed to the engine's; raises ApiError if it has more than 64 bits."""
    if seed is None or -SEEDS <= seed < SEEDS:
        return None if seed is None else seed % SEEDS
    raise ApiError(
        INVALID, f"seed is {shown(seed)}; it must be a whole number from -2^63 to 2^63 - 1.", "seed"
    )


def sampling_of(body: Any) -> dict[str, tuple[str, Any]]:
    """Returns the sampling settings of a body, as for `settings_from`; raises ApiError for a wrong seed."""
    biases = None if body.logit_bias is None else of_biases(body.logit_bias)
    return {
        **{name: (name, getattr(body, name)) for name in SAMPLING},
        "seed": ("seed", seed_of(body.seed)),
        "logit_bias": ("logit_bias", biases),
    }


def draws_of(body: Any, most: int = MOST_DRAWS) -> int:
    """Returns the number of answers to draw, `n`; raises ApiError if it is out of range."""
    draws: int = 1 if body.n is None else body.n
    if not 1 <= draws <= most:
        raise ApiError(INVALID, f"n is {shown(draws)}; it must be 1 to {most}.", "n")
    return draws


def scoped(settings: RunSettings, over: Over | None) -> RunSettings:
    """Returns settings with the scope of the request's schema part."""
    if over is None or over.scope == settings.scope:
        return settings
    return replace(settings, scope=over.scope, reuse="off")  # the client chooses


def settings_in(dialect: Dialect) -> Mapping[str, Setting]:
    """Returns the settings by name, each with the range of an API."""
    known = settings_of(RunSettings)
    return {**known, "temperature": replace(known["temperature"], most=HOTTEST[dialect])}


def setting(name: str, dialect: Dialect = "openai") -> Any:
    """Returns an optional request field for a setting, with the words and the range of an API."""
    known = settings_in(dialect)[name]
    bounds = {"exclusiveMinimum" if known.above else "minimum": known.least, "maximum": known.most}

    def ranged(schema: dict[str, Any]) -> None:
        schema["anyOf"][0] |= {bound: value for bound, value in bounds.items() if value is not None}

    words = f"{known.sentence} It must be {known.range}. {_USUAL}"
    return Field(default=None, description=words, json_schema_extra=ranged)


def settings_from(given: Mapping[str, tuple[str, Any]], defaults: Defaults, dialect: Dialect) -> RunSettings:
    """Makes the settings of a run.

    Earlier turns do not become segments of their own, because the prefix tree finds them.

    Args:
        given: by setting name, the request field and its value; None for an absent value.
        defaults: defaults for absent values.
        dialect: the API of the request.

    Raises:
        ApiError: a value is out of range.
    """
    known = settings_in(dialect)
    usual = {"temperature": 1.0, "max_new_tokens": defaults.longest, **USUAL.get(dialect, {})}
    values: dict[str, Any] = {**usual, **defaults.sampling}
    for name, (param, value) in given.items():
        if value is None:
            continue
        if not known[name].takes(value):
            spelled = cut(repr(value)) if isinstance(value, list) else shown(value)
            raise ApiError(INVALID, f"{param} is {spelled}; it must be {known[name].range}.", param)
        values[name] = known[name].checked(value)
    values.setdefault("seed", secrets.randbelow(SEEDS))
    return RunSettings(hold_conversation=False, **values)
