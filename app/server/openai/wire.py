"""Common parts of OpenAI's endpoints: message texts, sampling, unsupported fields, usage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from app.server.core.answer_formats import NO_FORMAT, Placed, format_among
from app.server.core.request import Block, Defaults, Mark, Message, named, sampling_of, settings_from
from app.server.http.errors import INVALID, ApiError, unsupported
from app.server.http.shapes import Shape, optional
from app.server.http.truncate import shown
from app.server.openai.unsupported_fields import OTHERS, misnamed
from engine.base.events import Answer
from engine.inference.run_settings import RunSettings
from engine.pml.tree.tree import TurnName
from engine.prompt.conversation.tools import ToolCall

MOST_STOPS = 4
MOST_WRITES = 4
TTL_SECONDS = {"30m": 1800.0, "12h": 43200.0}
USUALTTL = "30m"
TTL = "Minimum time to live; each read restarts it."
CONTENT = "A text, or blocks of text."
MODULE = 'A name that makes this block a reusable module; or {"name", "sees"}.'
FINISHED: Mapping[str, Literal["stop", "length"]] = {"eos": "stop", "stop": "stop", "length": "length"}


class Wire(Shape):
    """A request body, or a part of one.

    Ignores unknown fields, because clients add new ones each month. Does not convert types such as true to 1
    or "1" to a number.
    """

    model_config = ConfigDict(extra="allow", strict=True)
    understood: ClassVar[tuple[str, ...]] = ()  # fields of other servers that it reads, too


def require_no_module(message: Wire, where: str) -> None:
    """Rejects `module` outside a block with an ApiError."""
    if (message.model_extra or {}).get("module") is not None:
        words = 'Put it in a content block: {"type": "text", "text": …, "module": …}.'
        raise ApiError(INVALID, words, f"{where}.module")


class Breakpoint(Wire):
    """Marks the end of a prefix to store."""

    mode: Literal["explicit"] = optional("The kind of mark.", "explicit")
    ttl: Literal["30m", "12h"] | None = optional(TTL)


class CacheOptions(Wire):
    """Options of the cache."""

    mode: Literal["implicit", "explicit"] = optional("`implicit` stores the whole prompt, too.", "implicit")
    ttl: Literal["30m", "12h"] = optional(TTL, "30m")
    prewarm: bool = optional("Whether to compute and store the prompt only, without an answer.", False)
    comparison_response_id: str | None = optional(
        "The id of an earlier answer; explains which of its tokens were computed again."
    )


class Part(Wire):
    """A content part of a message."""

    type: str = Field(description="The kind of part.")
    text: str | None = optional("The text.")
    refusal: str | None = optional("The assistant's refusal.")
    prompt_cache_breakpoint: Breakpoint | None = optional("Stores the prefix up to the end of this part.")
    module: str | dict[str, Any] | None = optional(MODULE)


TEXTS = frozenset({"text", "input_text", "output_text", "refusal"})
ROLES: Mapping[str, TurnName] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}

# Unsupported fields that would change the answer, with their neutral values.
REFUSED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "n": ((1,), "a request has one answer here; use /v1/chat/completions, or send it again."),
    "best_of": ((1,), "a request has one answer."),
    "logprobs": ((False,), "token probabilities are not returned."),
    "top_logprobs": ((0,), "token probabilities are not returned."),
    "response_format": (
        ({"type": "text"},),
        "use text.format or output_config.format.",
    ),
    "modalities": ((["text"],), "the model reads and writes text."),
    "audio": ((), "the model reads and writes text."),
    "function_call": (("none",), "use tools."),
    "functions": (([],), "use tools."),
    "reasoning_effort": (("none",), "use reasoning.effort, thinking or chat_template_kwargs."),
    "web_search_options": ((), "the server contacts no other service."),
    "suffix": (("",), "text is continued at its end only."),
    "echo": ((False,), "only the answer is returned."),
    "min_tokens": ((0,), "it is not implemented."),
    **dict.fromkeys(("typical_p", "length_penalty"), ((1,), "it is not implemented.")),
    **dict.fromkeys(("stop_token_ids", "bad_words", "logits_processors"), (([],), "it is not implemented.")),
    **dict.fromkeys(
        ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar", "structured_outputs"),
        ((), "use output_config.format."),
    ),
    **dict.fromkeys(
        ("ignore_eos", "use_beam_search", "continue_final_message"), ((False,), "it is not implemented.")
    ),
    **dict.fromkeys(("chat_template", "prompt_logprobs"), ((), "it is not implemented.")),
}


OWN_RULES = {"typical_p": "typical_p", "min_tokens": "min_new_tokens"}
"""Unsupported request fields, with the rule of a model's generation_config that each may repeat."""


def refuse_what_is_not_built(
    body: Wire,
    defaults: Defaults,
    more: Mapping[str, tuple[tuple[Any, ...], str]] | None = None,
    place: str = "",
) -> None:
    """Rejects unsupported fields that would change the answer.

    Args:
        body: the body of a request.
        defaults: has the model's rules; a field may repeat a rule, but not change it.
        more: further unsupported fields of this body, in the form of `REFUSED`.
        place: what stands before a field's name in an error.

    Raises:
        ApiError: there is such a field; the message names it.
    """
    refused = {**OTHERS, **REFUSED, **(more or {})}
    for name, value in (body.model_extra or {}).items():
        if value is None or name in body.understood:
            continue
        rule = defaults.rules.get(OWN_RULES.get(name, ""))
        if name in refused:
            harmless, why = refused[name]
            if rule is not None:
                harmless, why = (rule,), f"the model's generation_config.json sets it to {rule}."
            if not any(_same(value, neutral) for neutral in harmless):
                raise unsupported(f"{place}{name}", why)
        elif advice := misnamed(name, value, type(body)):
            raise unsupported(f"{place}{name}", advice)


def _same(one: object, other: object) -> bool:
    """Whether two values are equal in JSON, which distinguishes true from 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def require_stream(body: Any) -> None:
    """Rejects stream options without a stream with an ApiError."""
    if body.stream_options is not None and not body.stream:
        raise ApiError(INVALID, "It requires stream to be true.", "stream_options")


def blocks_of(content: str | list[Part] | None, role: str, where: str) -> list[tuple[Block, Part | None]]:
    """Converts a message's content to blocks, each with its part; raises ApiError if one is invalid."""
    if content is None:
        return []
    if isinstance(content, str):
        return [(Block(content), None)]
    blocks: list[tuple[Block, Part | None]] = []
    for number, part in enumerate(content):
        at = f"{where}[{number}]"
        if part.type not in TEXTS:
            raise unsupported(f"{at}.type", f"the model reads text, not {shown(part.type)}.")
        text = part.refusal if part.type == "refusal" else part.text
        if text is None:
            raise ApiError(INVALID, "This part has no text.", f"{at}.text")
        blocks.append((Block(text, named(part.module, role, f"{at}.module")), part))
    return blocks


def require_role(role: str, roles: Iterable[str], where: str) -> None:
    """Rejects an unknown role with an ApiError."""
    if role not in roles:
        names = ", ".join(roles)
        raise ApiError(INVALID, f"The role is {shown(role)}; the roles are {names}.", f"{where}.role")


class Conversation:
    """Reads messages and the breakpoints on their parts.

    Attributes:
        messages: the messages read so far.
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
            role: its role.
            content: its content.
            where: the field with the message.
            calls: tool calls of the assistant.
            answers: the id of the call that the message answers.
            field: the message field with the content.

        Raises:
            ApiError: the role is unknown, or a part is not text.
        """
        require_role(role, self._roles, where)
        speaker = self._roles[role]
        blocks = blocks_of(content, speaker, f"{where}.{field}")
        for place, (_, part) in enumerate(blocks):
            if part is not None and part.prompt_cache_breakpoint is not None:
                at = f"{where}.{field}[{place}].prompt_cache_breakpoint"
                self._breakpoints.append((self._blocks + place, part.prompt_cache_breakpoint, at))
        self._blocks += len(blocks) + bool(calls)
        self.messages.append(Message(speaker, tuple(block for block, _ in blocks), calls, answers))

    def marks(self, options: CacheOptions | None, retention: str | None) -> tuple[Mark, ...]:
        """Returns the prefixes to store."""
        if not self._blocks:
            return ()
        return marks_of(self._breakpoints, options, retention, self._blocks - 1)


def marks_of(
    breakpoints: list[tuple[int, Breakpoint, str]],
    options: CacheOptions | None,
    retention: str | None,
    last: int,
) -> tuple[Mark, ...]:
    """Returns the prefixes to store. Of many breakpoints the last four count, as in OpenAI's API.

    Args:
        breakpoints: block index, breakpoint and field of each.
        options: cache options of the request.
        retention: the older field for retention.
        last: index of the prompt's last block, the implicit breakpoint.
    """
    usual = TTL_SECONDS[options.ttl if options is not None else USUALTTL]
    automatic = [Mark(last, usual, "prompt_cache_options")] if options and options.mode == "implicit" else []
    if not automatic and retention == "24h":
        automatic = [Mark(last, 86400.0, "prompt_cache_retention")]
    marks = [Mark(block, TTL_SECONDS.get(mark.ttl or "", usual), where) for block, mark, where in breakpoints]
    latest = (
        marks[len(marks) - (MOST_WRITES - len(automatic)) :]
        if len(marks) > MOST_WRITES - len(automatic)
        else marks
    )
    return (*latest, *automatic)


def settings_of_body(
    body: Any, longest: tuple[str, int | None], defaults: Defaults, own: Placed = NO_FORMAT
) -> RunSettings:
    """Reads the sampling settings; raises ApiError if a value is out of range.

    Args:
        body: the body of a request.
        longest: the field with the maximum length, and its value.
        defaults: defaults for absent values.
        own: the format of the answer in the vendor's own field.
    """
    stop = [body.stop] if isinstance(body.stop, str) else body.stop
    if stop is not None and len(stop) > MOST_STOPS:
        raise ApiError(INVALID, f"There are {len(stop)} texts; the maximum is {MOST_STOPS}.", "stop")
    values = {
        "max_new_tokens": longest,
        **sampling_of(body),
        "stop": ("stop", stop or None),
        "grammar": format_among({name: getattr(body, name, None) for name in body.understood}, own),
    }
    return settings_from(values, defaults, "openai")


def finish_reason(answer: Answer) -> Literal["stop", "length"]:
    """Converts a stop reason to OpenAI's."""
    return FINISHED[answer.stopped]
