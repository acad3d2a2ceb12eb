"""Splits an answer into text and tool calls, according to the tokenizer's response template.

Independent of chat templates.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from engine.prompt.conversation.tools import ToolCall, Tools, ToolsError, call_fields
from engine.prompt.template.tokenizer import Tokenizer

_THOUGHTS = ("reasoning_content", "thinking", "reasoning")


@dataclass(frozen=True)
class ParsedAnswer:
    """An answer in parts.

    Attributes:
        content: the text.
        calls: the tool calls, in order.
        thought: the assistant's thoughts, if the tokenizer separates them.
        fault: why the answer cannot be parsed, so `content` is all of it; otherwise "".
    """

    content: str
    calls: tuple[ToolCall, ...] = ()
    thought: str = ""
    fault: str = ""


class AnswerReader:
    """Parses answers according to the tokenizer's `response_template`; `tokens` holds its private copies."""

    def __init__(self, tokenizer: Any, tokens: Tokenizer) -> None:
        self._tokenizer, self._tokens = tokenizer, tokens
        template: Any = getattr(tokenizer, "response_template", None)
        self._missing = "has no response template"
        if template is not None:
            self._missing = _unusable(tokenizer, template)
        self._template = {} if self._missing else _gathering(template)
        self._marks = () if self._missing else tuple(_marks_round_json(template))

    @property
    def finds_calls(self) -> bool:
        """Whether tool calls can be parsed from an answer."""
        return not self._missing

    def require(self) -> None:
        """Raises a ToolsError if the tokenizer does not define how calls are written."""
        if self._missing:
            raise ToolsError(
                f"The model's tokenizer {self._missing}, so tool calls cannot be parsed from the answer. "
                "Remove the tools, or use a model with a response_template for tool_calls in its "
                "tokenizer_config.json."
            )

    def read(self, answer: Sequence[int] | str, prompt: Sequence[int], tools: Tools) -> ParsedAnswer:
        """Parses the tool calls of an answer; `tools` gives the types of their arguments.

        Raises:
            ToolsError: the tokenizer does not define how calls are written.
        """
        self.require()
        assert self._template is not None
        text = answer if isinstance(answer, str) else self._decoded(answer)
        before = self._decoded(prompt)
        try:
            message = self._tokenizer.parse_response(
                _escaped(text, self._marks), self._template, prefix=before, tools=tools.definitions()
            )
            calls = tuple(map(_call, message.get("tool_calls") or ()))
            call_fields(calls)  # as the next request repeats them
        except Exception as error:  # from an untrusted template over text of the model
            return ParsedAnswer(self._plain(answer), fault=" ".join(str(error).split())[:300])
        thought = next((words for name in _THOUGHTS if (words := _said(message, name))), "")
        if not calls and not thought:
            return ParsedAnswer(self._plain(answer))
        return ParsedAnswer(self._plain(_said(message, "content")), calls, thought)

    def _decoded(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(token_ids))) if token_ids else ""

    def _plain(self, answer: Sequence[int] | str) -> str:
        """The text without special tokens."""
        if not isinstance(answer, str):
            return str(self._tokenizer.decode(list(answer), skip_special_tokens=True)) if answer else ""
        for start, end in reversed(self._tokens.specials(answer)):
            answer = answer[:start] + answer[end:]
        return answer


def _unusable(tokenizer: Any, template: Any) -> str:
    """Why a response template finds no calls; "" if it does."""
    try:
        tokenizer.get_response_parser(prefix="")
    except Exception as error:  # any error in a file of the model
        return f"has a response template that cannot be read ({' '.join(str(error).split())[:300]})"
    if "tool_calls" not in template["fields"]:
        return "has a response template without tool_calls"
    return ""


def _gathering(template: Mapping[str, Any]) -> dict[str, Any]:
    """A response template that collects every match of a field, not only the last."""
    fields, defaults = dict(template["fields"]), dict(template.get("defaults") or {})
    for name, field in fields.items():
        if field.get("content", "text") == "text" and not field.get("repeats") and not field.get("transform"):
            optional = field.get("optional", True) or name in defaults
            fields[name] = {**field, "repeats": True, "optional": optional}
            defaults.pop(name, None)
    return {**template, "fields": fields, "defaults": defaults}


def _marks_round_json(template: Mapping[str, Any]) -> Iterator[tuple[Any, list[str]]]:
    """For each JSON field, the pattern before it and the texts that end it."""
    for field in template["fields"].values():
        opens, closes = field.get("open"), field.get("close")
        if field.get("content") == "json" and closes and (opens or "open_pattern" in field):
            literals = sorted([opens] if isinstance(opens, str) else opens or (), key=len, reverse=True)
            pattern = "|".join(map(regex.escape, literals)) or field["open_pattern"]
            yield regex.compile(pattern, regex.DOTALL), [closes] if isinstance(closes, str) else closes


def _said(message: Mapping[str, Any], name: str) -> str:
    """The text of a field, which may have several matches."""
    value = message.get(name) or ""
    return "\n".join(filter(None, map(str, value))) if isinstance(value, list) else str(value)


def _escaped(text: str, marks: Iterable[tuple[Any, list[str]]]) -> str:
    """Escapes text inside JSON that looks like the mark after the JSON."""
    for opens, closes in marks:
        place = 0
        while place <= len(text) and (opened := opens.search(text, place)):
            place = max(opened.end(), opened.start() + 1)
            begin = len(text) - len(text[opened.end() :].lstrip())
            with contextlib.suppress(ValueError, RecursionError):
                value, end = json.JSONDecoder().raw_decode(text, begin)
                spelled = text[begin:end]
                for mark in closes:
                    spelled = spelled.replace(mark, f"\\u{ord(mark[0]):04x}{mark[1:]}")
                if json.loads(spelled) == value:
                    text, place = text[:begin] + spelled + text[end:], begin + len(spelled)
    return text


def _call(found: Any) -> ToolCall:
    """One call of the response template in the chat template's own form."""
    if not isinstance(found, Mapping) or not isinstance(function := found.get("function", found), Mapping):
        raise ValueError("a call is not an object")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("a call names no function")
    arguments = function.get("arguments", function.get("parameters")) or {}
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(arguments, Mapping):
        raise ValueError(f"the arguments of {name!r} are not an object")
    identity = found.get("id")
    return ToolCall(name, dict(arguments), identity if isinstance(identity, str) else "")
