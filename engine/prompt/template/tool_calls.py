"""An answer → what it says, and the calls of tools in it, as the tokenizer's response template tells them.

Knows no chat template.
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
        content: what it says.
        calls: of tools, in order.
        thought: what the assistant thought before, where the tokenizer tells that apart.
        fault: why the answer cannot be told apart: all of it is content then. "" where it can.
    """

    content: str
    calls: tuple[ToolCall, ...] = ()
    thought: str = ""
    fault: str = ""


class AnswerReader:
    """Reads answers as the tokenizer's `response_template` says.

    Args:
        tokenizer: a tokenizer of transformers.
        tokens: its copies.
    """

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
        """Whether calls of tools can be told from the rest of an answer."""
        return not self._missing

    def require(self) -> None:
        """Refuses a tokenizer that finds no calls.

        Raises:
            ToolsError: it does not say how calls are written.
        """
        if self._missing:
            raise ToolsError(
                f"The model's tokenizer {self._missing}, so calls of tools cannot be told from the answer. "
                "Leave the tools out, or use a model with a response_template for tool_calls in its "
                "tokenizer_config.json."
            )

    def read(self, answer: Sequence[int] | str, prompt: Sequence[int], tools: Tools) -> ParsedAnswer:
        """Tells the calls in an answer from what it says.

        Args:
            answer: its tokens, or its text with special tokens in it.
            prompt: the tokens of what was answered.
            tools: by whose parameters arguments are read.

        Raises:
            ToolsError: the tokenizer does not say how calls are written.
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
            call_fields(calls)  # as the next request says them again
        except Exception as error:  # of a template that came with the model, over text by the model
            return ParsedAnswer(self._plain(answer), fault=" ".join(str(error).split())[:300])
        thought = next((said for name in _THOUGHTS if (said := _said(message, name))), "")
        if not calls and not thought:
            return ParsedAnswer(self._plain(answer))
        return ParsedAnswer(self._plain(_said(message, "content")), calls, thought)

    def _decoded(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(token_ids))) if token_ids else ""

    def _plain(self, answer: Sequence[int] | str) -> str:
        """The same without special tokens."""
        if not isinstance(answer, str):
            return str(self._tokenizer.decode(list(answer), skip_special_tokens=True)) if answer else ""
        for start, end in reversed(self._tokens.specials(answer)):
            answer = answer[:start] + answer[end:]
        return answer


def _unusable(tokenizer: Any, template: Any) -> str:
    """Why a response template finds no calls; "" where it does."""
    try:
        tokenizer.get_response_parser(prefix="")
    except Exception as error:  # whatever is wrong with what came with the model
        return f"has a response template that cannot be read ({' '.join(str(error).split())[:300]})"
    if "tool_calls" not in template["fields"]:
        return "has a response template without tool_calls"
    return ""


def _gathering(template: Mapping[str, Any]) -> dict[str, Any]:
    """A response template of which each stretch of a text counts, and not the last one only."""
    fields, defaults = dict(template["fields"]), dict(template.get("defaults") or {})
    for name, field in fields.items():
        if field.get("content", "text") == "text" and not field.get("repeats") and not field.get("transform"):
            optional = field.get("optional", True) or name in defaults
            fields[name] = {**field, "repeats": True, "optional": optional}
            defaults.pop(name, None)
    return {**template, "fields": fields, "defaults": defaults}


def _marks_round_json(template: Mapping[str, Any]) -> Iterator[tuple[Any, list[str]]]:
    """What stands before each field of JSON, as a pattern, and the texts that end it."""
    for field in template["fields"].values():
        opens, closes = field.get("open"), field.get("close")
        if field.get("content") == "json" and closes and (opens or "open_pattern" in field):
            literals = sorted([opens] if isinstance(opens, str) else opens or (), key=len, reverse=True)
            pattern = "|".join(map(regex.escape, literals)) or field["open_pattern"]
            yield regex.compile(pattern, regex.DOTALL), [closes] if isinstance(closes, str) else closes


def _said(message: Mapping[str, Any], name: str) -> str:
    """The text of a field, of which there may be several stretches."""
    found = message.get(name) or ""
    return "\n".join(filter(None, map(str, found))) if isinstance(found, list) else str(found)


def _escaped(text: str, marks: Iterable[tuple[Any, list[str]]]) -> str:
    """An answer in which no text inside JSON looks like a mark behind it, as an escape spells it."""
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
    """One call as the response template gives it, in the form of the chat template's own messages."""
    if not isinstance(found, Mapping) or not isinstance(function := found.get("function", found), Mapping):
        raise ValueError("a call is no object")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError("a call names no function")
    arguments = function.get("arguments", function.get("parameters")) or {}
    if isinstance(arguments, str):
        arguments = json.loads(arguments)
    if not isinstance(arguments, Mapping):
        raise ValueError(f"the arguments of {name!r} are no object")
    identity = found.get("id")
    return ToolCall(name, dict(arguments), identity if isinstance(identity, str) else "")
