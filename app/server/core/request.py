"""What a client asks for, in neither vendor's terms: every dialect is read into this."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from app.server.http.errors import INVALID, ApiError, Dialect
from app.server.http.truncate import cut, shown
from engine.base.choices import Scope
from engine.inference.run_settings import RunSettings
from engine.inference.setting import Setting, settings_of
from engine.pml.xml.names import NAME, NAME_RULE
from engine.prompt.conversation.messages import Message
from engine.prompt.conversation.named_blocks import LONGEST_NAME, Block, Named
from engine.prompt.conversation.tools import NO_TOOLS, Tools

__all__ = [
    "Asked",
    "Block",
    "Caller",
    "Defaults",
    "Mark",
    "Message",
    "Named",
    "Over",
    "named",
    "scoped",
    "seed_of",
    "settings_from",
    "settings_in",
]

LONGEST_ANSWER = 1024
HOTTEST: Mapping[Dialect, int] = {"openai": 2, "anthropic": 1}
"""The highest temperature, which the vendors themselves take no higher."""
_SEEDS = 2**63


@dataclass(frozen=True)
class Mark:
    """A prefix that is to be kept: up to the end of a block.

    Attributes:
        block: the number of the block, counted through all messages from 0.
        seconds: its time to live.
        param: the field that asked for it.
    """

    block: int
    seconds: float
    param: str


@dataclass(frozen=True)
class Over:
    """What a request reads of a schema, before its messages.

    Attributes:
        schema: the name of a schema that was put, or PML.
        prompt: what is imported, in PML; None for the schema's own text only.
        scope: what modules see while they are encoded.
        owner: the client whose schemas are looked through; "" for those of all.
    """

    schema: str
    prompt: str | None = None
    scope: Scope = "anchored"
    owner: str = ""


@dataclass(frozen=True)
class Caller:
    """Who asks, as far as that decides what is shared and told.

    Attributes:
        salt: what the request shares segments with; "" for all without one.
        owner: whose schemas are looked through; "" for those of all.
        report: whether the report of the cache is wanted, whatever the body says.
    """

    salt: str = ""
    owner: str = ""
    report: bool = False


@dataclass(frozen=True)
class Asked:
    """A request.

    Attributes:
        model: the name that it calls the model by.
        messages: the conversation, or ...
        text: ... a raw prompt, without a chat template.
        settings: how it is to be answered.
        tools: what the assistant may call.
        deferred: what it may call too, and no definition at the beginning tells it.
        marks: prefixes to be kept, in order.
        warm: nothing is to be answered: only what the prompt needs is computed and kept.
        salt: what it shares segments with; "" for all without one.
        report: whether the report of the cache is wanted.
        over: what stands before the messages or the text; None for nothing.
        field: of the request, which holds the messages or the text.
    """

    model: str
    settings: RunSettings
    messages: tuple[Message, ...] = ()
    text: str | None = None
    tools: Tools = NO_TOOLS
    deferred: Tools = NO_TOOLS
    marks: tuple[Mark, ...] = ()
    warm: bool = False
    salt: str = ""
    report: bool = False
    over: Over | None = None
    field: str = "messages"


@dataclass(frozen=True)
class Defaults:
    """What holds where a request says nothing.

    Attributes:
        longest: tokens of an answer.
        sampling: settings by name, as the model's own generation_config has them.
        rules: what that has for every answer, by name; no request changes them.
    """

    longest: int = LONGEST_ANSWER
    sampling: Mapping[str, Any] = field(default_factory=dict)
    rules: Mapping[str, Any] = field(default_factory=dict)


def named(module: object, role: str, where: str) -> Named | None:
    """Reads the name of a block: a text, or an object with `name` and `sees`.

    Args:
        module: what the request says; None where the block has no name.
        role: of the message.
        where: the field.

    Raises:
        ApiError: it is neither, or the block is of the assistant.
    """
    if module is None:
        return None
    if role not in ("system", "user"):
        raise ApiError(INVALID, "Only blocks of the system and of the user can be modules.", where)
    name: Any = module
    sees: Any = []
    if isinstance(module, Mapping) and set(module) <= {"name", "sees"}:
        name, sees = module.get("name"), module.get("sees", [])
    if isinstance(name, str) and isinstance(sees, list) and all(isinstance(one, str) for one in sees):
        if len(name) > LONGEST_NAME:
            words = f"The name {shown(name)} has {len(name):,} characters, and {LONGEST_NAME} are the most."
            raise ApiError(INVALID, words, where)
        if not NAME.fullmatch(name):
            raise ApiError(INVALID, f"{shown(name)} cannot be the name of a block: names {NAME_RULE}.", where)
        return Named(name, tuple(sees))
    words = 'It must be a name, or {"name": "…", "sees": ["…"]} with the names of other blocks.'
    raise ApiError(INVALID, words, where)


def seed_of(seed: int | None) -> int | None:
    """Returns the engine's seed of a request's, which is a whole number of 64 bits.

    Raises:
        ApiError: it is none.
    """
    if seed is None or -_SEEDS <= seed < _SEEDS:
        return None if seed is None else seed % _SEEDS
    raise ApiError(
        INVALID, f"seed is {shown(seed)}; it must be a whole number from -2^63 to 2^63 - 1.", "seed"
    )


def scoped(settings: RunSettings, over: Over | None) -> RunSettings:
    """Returns settings with the scope that a request over a schema asks for."""
    if over is None or over.scope == settings.scope:
        return settings
    return replace(settings, scope=over.scope, reuse="off")  # the client chooses


def settings_in(dialect: Dialect) -> Mapping[str, Setting]:
    """Returns the settings by name, each with the range that a request of a dialect may say it in."""
    known = settings_of(RunSettings)
    return {**known, "temperature": replace(known["temperature"], most=HOTTEST[dialect])}


def settings_from(given: Mapping[str, tuple[str, Any]], defaults: Defaults, dialect: Dialect) -> RunSettings:
    """Makes the settings of a run.

    Earlier turns are not made segments of their own: the prefix tree finds them.

    Args:
        given: by the name of a setting the field of the request that has it, and its value; None where there
            is none.
        defaults: for what is not given.
        dialect: of the request.

    Raises:
        ApiError: a value is out of its range.
    """
    known = settings_in(dialect)
    found: dict[str, Any] = {"temperature": 1.0, "max_new_tokens": defaults.longest, **defaults.sampling}
    for name, (param, value) in given.items():
        if value is None:
            continue
        if not known[name].takes(value):
            spelled = cut(repr(value)) if isinstance(value, list) else shown(value)
            raise ApiError(INVALID, f"{param} is {spelled}; it must be {known[name].range}.", param)
        found[name] = known[name].checked(value)
    found.setdefault("seed", secrets.randbelow(_SEEDS))
    return RunSettings(hold_conversation=False, **found)
