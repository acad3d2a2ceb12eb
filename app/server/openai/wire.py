"""What OpenAI's endpoints have in common: texts of messages, sampling, what is refused, usage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from app.server.core.request import Block, Defaults, Mark, Message, named, seed_of, settings_from
from app.server.core.usage import Usage
from app.server.http.errors import INVALID, ApiError, unsupported
from app.server.http.truncate import shown
from app.server.openai.unsupported_fields import OTHERS, misnamed
from engine.base.events import Answer
from engine.inference.run_settings import RunSettings
from engine.pml.tree.tree import TurnName
from engine.prompt.conversation.tools import ToolCall

MOST_STOPS = 4
MOST_WRITES = 4
TTL_SECONDS = {"30m": 1800.0, "12h": 43200.0}
USUAL_TTL = "30m"
FINISHED = {"eos": "stop", "stop": "stop", "length": "length"}


class Wire(BaseModel):
    """A body of a request, or a part of one.

    Unknown fields are let pass, as clients send new ones each month; true is not 1, and "1" is no number.
    """

    model_config = ConfigDict(extra="allow", strict=True)


def require_no_module(message: Wire, where: str) -> None:
    """Refuses the name of a module where it would name nothing.

    Raises:
        ApiError: a message has it, and not a block of it.
    """
    if (message.model_extra or {}).get("module") is not None:
        words = 'A block of the content has it: {"type": "text", "text": …, "module": …}.'
        raise ApiError(INVALID, words, f"{where}.module")


class Breakpoint(Wire):
    """Marks the end of what is to be kept."""

    mode: Literal["explicit"] = "explicit"
    ttl: Literal["30m", "12h"] | None = None


class CacheOptions(Wire):
    """How the cache is to be used."""

    mode: Literal["implicit", "explicit"] = "implicit"
    ttl: Literal["30m", "12h"] = "30m"
    prewarm: bool = False
    comparison_response_id: str | None = None


class Part(Wire):
    """A part of a message's content."""

    type: str
    text: str | None = None
    refusal: str | None = None
    prompt_cache_breakpoint: Breakpoint | None = None
    module: str | dict[str, Any] | None = None


TEXTS = frozenset({"text", "input_text", "output_text", "refusal"})
ROLES: Mapping[str, TurnName] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}

# What would change the answer, with the values that ask for nothing.
REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "n": ((1,), "one answer is made; send the request again for another."),
    "best_of": ((1,), "one answer is made."),
    "frequency_penalty": ((0,), "use repetition_penalty."),
    "presence_penalty": ((0,), "use repetition_penalty."),
    "logit_bias": (({},), "tokens are chosen by the model alone."),
    "logprobs": ((False,), "probabilities are not told."),
    "top_logprobs": ((0,), "probabilities are not told."),
    "response_format": (({"type": "text"},), "the form of an answer cannot be forced; ask for it in words."),
    "modalities": ((["text"],), "the model reads and writes text."),
    "audio": ((), "the model reads and writes text."),
    "function_call": (("none",), "use tools."),
    "functions": (([],), "use tools."),
    "reasoning_effort": (("none",), "the model's own template decides whether it thinks."),
    "web_search_options": ((), "the server asks nobody else."),
    "suffix": (("",), "text is only continued at its end."),
    "echo": ((False,), "the answer alone is sent."),
    **dict.fromkeys(("min_p", "min_tokens"), ((0,), "it is not built.")),
    **dict.fromkeys(("typical_p", "length_penalty"), ((1,), "it is not built.")),
    **dict.fromkeys(("stop_token_ids", "bad_words", "logits_processors"), (([],), "it is not built.")),
    **dict.fromkeys(
        ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar", "structured_outputs"),
        ((), "the form of an answer cannot be forced."),
    ),
    **dict.fromkeys(
        ("ignore_eos", "use_beam_search", "continue_final_message"), ((False,), "it is not built.")
    ),
    **dict.fromkeys(("chat_template", "prompt_logprobs"), ((), "it is not built.")),
}


OWN_RULES = {"min_p": "min_p", "typical_p": "typical_p", "min_tokens": "min_new_tokens"}
"""Fields of requests that are not honoured, by the rules that a model may have of its own for them."""


def refuse_what_is_not_built(
    body: Wire, defaults: Defaults, more: Mapping[str, tuple[tuple[Any, ...], str]] | None = None
) -> None:
    """Refuses fields that would change the answer and are not honoured.

    Args:
        body: of a request.
        defaults: with the model's own rules, which a field may repeat and not change.
        more: fields of this kind of body, as those of `REFUSED`.

    Raises:
        ApiError: there is one; it is named.
    """
    refused = {**OTHERS, **REFUSED, **(more or {})}
    for name, given in (body.model_extra or {}).items():
        if given is None:
            continue
        rule = defaults.rules.get(OWN_RULES.get(name, ""))
        if name in refused:
            harmless, why = refused[name]
            if rule is not None:
                harmless, why = (rule,), f"the model's generation_config.json sets it to {rule}."
            if not any(_same(given, one) for one in harmless):
                raise unsupported(name, why)
        elif advice := misnamed(name, given, type(body)):
            raise unsupported(name, advice)


def _same(one: object, other: object) -> bool:
    """Whether two values are equal in JSON, where true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def require_stream(body: Any) -> None:
    """Refuses options of a stream where there is none.

    Raises:
        ApiError: there are some.
    """
    if body.stream_options is not None and not body.stream:
        raise ApiError(
            INVALID, "It says how an answer is streamed, and stream is not true.", "stream_options"
        )


def blocks_of(content: str | list[Part] | None, role: str, where: str) -> list[tuple[Block, Part | None]]:
    """Returns the blocks of a message's content, each with the part that it was.

    Args:
        content: of the message.
        role: of the message, as the engine calls it.
        where: the field.

    Raises:
        ApiError: a part is no text, or has a name that cannot be.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [(Block(content), None)]
    found: list[tuple[Block, Part | None]] = []
    for number, part in enumerate(content):
        at = f"{where}[{number}]"
        if part.type not in TEXTS:
            raise unsupported(f"{at}.type", f"the model reads text, and this is {shown(part.type)}.")
        text = part.refusal if part.type == "refusal" else part.text
        if text is None:
            raise ApiError(INVALID, "There is no text in this part.", f"{at}.text")
        found.append((Block(text, named(part.module, role, f"{at}.module")), part))
    return found


def require_role(role: str, roles: Iterable[str], where: str) -> None:
    """Refuses a role that there is not.

    Raises:
        ApiError: there is none of this name.
    """
    if role not in roles:
        known = ", ".join(roles)
        raise ApiError(INVALID, f"The role is {shown(role)}; there are {known}.", f"{where}.role")


class Conversation:
    """Reads messages and the breakpoints on their parts.

    Args:
        roles: the roles that there are, each with its name in the engine.

    Attributes:
        messages: those that were read.
    """

    def __init__(self, roles: Mapping[str, TurnName] = ROLES) -> None:
        self.messages: list[Message] = []
        self._roles = roles
        self._blocks = 0
        self._breakpoints: list[tuple[int, Breakpoint, str]] = []

    def read(
        self,
        role: str,
        content: str | list[Part] | None,
        where: str,
        *,
        calls: tuple[ToolCall, ...] = (),
        answers: str = "",
        field: str = "content",
    ) -> None:
        """Reads a message.

        Args:
            role: who speaks.
            content: what is said.
            where: the field that holds the message.
            calls: of tools, by the assistant.
            answers: the id of the call whose result this is.
            field: of the message, which holds what is said.

        Raises:
            ApiError: there is no such role, or a part is no text.
        """
        require_role(role, self._roles, where)
        speaker = self._roles[role]
        found = blocks_of(content, speaker, f"{where}.{field}")
        for place, (_, part) in enumerate(found):
            if part is not None and part.prompt_cache_breakpoint is not None:
                at = f"{where}.{field}[{place}].prompt_cache_breakpoint"
                self._breakpoints.append((self._blocks + place, part.prompt_cache_breakpoint, at))
        self._blocks += len(found) + bool(calls)
        self.messages.append(Message(speaker, tuple(block for block, _ in found), calls, answers))

    def marks(self, options: CacheOptions | None, retention: str | None) -> tuple[Mark, ...]:
        """Returns which prefixes are to be kept.

        Args:
            options: how the cache is to be used, where the request says it.
            retention: the older field for it.
        """
        if not self._blocks:
            return ()
        return marks_of(self._breakpoints, options, retention, self._blocks - 1)


def marks_of(
    breakpoints: list[tuple[int, Breakpoint, str]],
    options: CacheOptions | None,
    retention: str | None,
    last: int,
) -> tuple[Mark, ...]:
    """Returns which prefixes are to be kept: of the breakpoints the latest, as OpenAI writes four at most.

    Args:
        breakpoints: those in the request: the number of the block, what it says, and where it stands.
        options: how the cache is to be used, where the request says it.
        retention: the older field for it.
        last: the number of the last block of the prompt, which what is implicit keeps.
    """
    usual = TTL_SECONDS[options.ttl if options is not None else USUAL_TTL]
    automatic = [Mark(last, usual, "prompt_cache_options")] if options and options.mode == "implicit" else []
    if not automatic and retention == "24h":
        automatic = [Mark(last, 86400.0, "prompt_cache_retention")]
    told = [Mark(block, TTL_SECONDS.get(one.ttl or "", usual), where) for block, one, where in breakpoints]
    kept = (
        told[len(told) - (MOST_WRITES - len(automatic)) :]
        if len(told) > MOST_WRITES - len(automatic)
        else told
    )
    return (*kept, *automatic)


def settings_of_body(body: Any, longest: tuple[str, int | None], defaults: Defaults) -> RunSettings:
    """Reads how tokens are to be chosen.

    Args:
        body: with temperature, top_p, seed, stop, top_k and repetition_penalty.
        longest: the field with the most tokens, and its value.
        defaults: for what is not given.

    Raises:
        ApiError: a value is out of its range.
    """
    stop = [body.stop] if isinstance(body.stop, str) else body.stop
    if stop is not None and len(stop) > MOST_STOPS:
        raise ApiError(INVALID, f"There are {len(stop)} texts; {MOST_STOPS} are the most.", "stop")
    given = {
        "max_new_tokens": longest,
        **{
            name: (name, getattr(body, name))
            for name in ("temperature", "top_p", "top_k", "repetition_penalty")
        },
        "seed": ("seed", seed_of(body.seed)),
        "stop": ("stop", stop or None),
    }
    return settings_from(given, defaults, "openai")


def usage_json(usage: Usage) -> dict[str, Any]:
    """Returns the usage of chat and text completions."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.generated,
        "total_tokens": usage.prompt + usage.generated,
        "prompt_tokens_details": {"cached_tokens": usage.read, "cache_write_tokens": usage.written},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def finish_reason(answer: Answer) -> str:
    """Why an answer ends, in OpenAI's words."""
    return FINISHED[answer.stopped]
