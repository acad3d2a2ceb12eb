"""The syntax in which a chat template writes a tool call, learned from a call that it renders.

With it, a grammar can force a call, and the call can be read from the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from engine.base.errors import PromptCacheError
from engine.grammars.grammar import FREE, json_rule, quoted
from engine.prompt.conversation.messages import Message
from engine.prompt.conversation.named_blocks import Block
from engine.prompt.conversation.tools import Header, ToolCall, Tools, ToolsError, call_fields, result_fields
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.template.tokenizer import Tokenizer

_NAME: Final = "sample_function"
_ID: Final = "a1B2c3D4e"  # some templates require nine letters and digits
_SAMPLE: Final = ToolCall(_NAME, {"sample_name": "sample value"}, _ID)
_PARTS: Final = re.compile(rf"({_NAME})|({_ID})|(\{{\s*\"sample_name\":\s*\"sample value\"\s*\}})")
_NO_PARAMETERS: Final = {"type": "object", "properties": {}, "additionalProperties": False}
_ANY_PARAMETERS: Final = {"type": "object"}
_MARK: Final = re.compile(r"\s*[^\s{\[]+")  # what begins a call and no other text
_ID_PATTERN: Final = "[a-zA-Z0-9]{9}"


@dataclass(frozen=True)
class CallSyntax:
    """A tool call as text.

    Attributes:
        before: the text before the name.
        between: the text between name and arguments.
        after: the text after the arguments, up to the end of the turn; may contain a place for an id.
        native: whether the chat template defines it; else it is plain JSON.
    """

    before: str
    between: str
    after: str
    native: bool = True

    def spelled(self, call: ToolCall) -> str:
        """Returns a call without a place for an id as text."""
        arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
        return f"{self.before}{_in_json(call.name)}{self.between}{arguments}{self.after}"

    def grammar(self, tools: Tools, names: Sequence[str], tokens: Tokenizer, answer: Any = None) -> str:
        """Returns the grammar of one call.

        Args:
            tools: all tools.
            names: the tools of which one is called.
            tokens: the tokenizer, for special tokens in the syntax.
            answer: the JSON Schema of an answer that may come instead; None for none.
        """
        given = {one["function"]["name"]: one["function"].get("parameters") for one in tools.definitions()}
        calls, rules = self._calls(
            self.before, {name: given[name] for name in given if name in names}, tokens
        )
        if answer is not None:
            calls.insert(0, "answer")
            rules.append(f"answer: {json_rule(answer)}")
        return "\n".join([f"lark:start: {' | '.join(calls)}", *rules])

    def grammar_of_text(self, tools: Tools, strict: Sequence[str], tokens: Tokenizer) -> str:
        """Returns the grammar of free text with calls: a call that has begun keeps to its schema.

        The grammar is "text" if nothing but a special token after the name shows that a call has begun.

        Args:
            tools: all tools.
            strict: the tools whose arguments keep to their parameters; those of others are any JSON object.
            tokens: the tokenizer, for special tokens in the syntax.
        """
        given = {
            one["function"]["name"]: one["function"].get("parameters")
            if one["function"]["name"] in strict
            else _ANY_PARAMETERS
            for one in tools.definitions()
        }
        text = ["lark:start: call* TEXT", r"TEXT: /(.|\n)*/"]
        if not self.before.strip():  # the name is the first sign of a call
            if tokens.specials(self.between):
                return FREE
            calls, rules = self._calls("", given, tokens, begins=True)
            return "\n".join([*text, f"call: {' | '.join(calls)}", *rules])
        if specials := tokens.specials(self.before):
            start, end = specials[0]
            begin = f"begin: TEXT {' '.join(_literal(self.before[start:end], tokens))}"
        else:
            mark = _MARK.match(self.before)
            end = mark.end() if mark else len(self.before)
            begin = f"begin[lazy]: TEXT {quoted(self.before[:end].strip())}"
        calls, rules = self._calls(self.before[end:], given, tokens)
        return "\n".join([*text, begin, f"call: begin ({' | '.join(calls)})", *rules])

    def _calls(
        self, before: str, given: Mapping[str, Any], tokens: Tokenizer, *, begins: bool = False
    ) -> tuple[list[str], list[str]]:
        """The names of rules that match a call, one for each tool, and all rules.

        Args:
            before: the text of the call before the name, as far as no other rule matches it.
            given: the schema of the parameters by the name of the tool.
            tokens: the tokenizer.
            begins: whether free text precedes a call.
        """
        names, rules = list[str](), list[str]()
        tail = " ".join(_literal(self.after, tokens))
        for number, (name, parameters) in enumerate(given.items()):
            head = " ".join(_literal("".join((before, _in_json(name), self.between)), tokens))
            schema = {"type": "object", **(parameters or _NO_PARAMETERS)}
            names.append(f"call{number}")
            if begins:
                rules.append(f"begin{number}[lazy]: TEXT {head}")
                head = f"begin{number}"
            rules.append(f"call{number}: {head} arguments{number} {tail}")
            rules.append(f"arguments{number}: {json_rule(schema)}")
        return names, rules

    def read(self, text: str) -> ToolCall | None:
        """Reads a complete call from the text of an answer, special tokens included; None if it has none."""
        start = text.find(self.before)
        if start < 0:
            return None
        name, found, rest = text[start + len(self.before) :].partition(self.between)
        try:
            arguments, _ = json.JSONDecoder().raw_decode(rest)
            spelled = json.loads(f'"{name}"')
        except ValueError:
            return None
        return ToolCall(spelled, arguments) if found and isinstance(arguments, dict) else None


PLAIN: Final = CallSyntax('{"name": "', '", "arguments": ', "}", native=False)
"""The syntax for chat templates without tools."""


def definitions_as_text(tools: Tools) -> str:
    """Returns the definitions of tools for a chat template without tools."""
    listed = "\n".join(json.dumps(one["function"], ensure_ascii=False) for one in tools.definitions())
    form = f"{PLAIN.before}NAME{PLAIN.between}{{…}}{PLAIN.after}"
    return f"Functions, as JSON:\n{listed}\n\nCall one of them as {form}."


def writes_calls(chat: ChatFormat, tools: Tools) -> bool:
    """Whether a chat template writes tool calls and their results."""
    called = Header("assistant", call_fields([_SAMPLE]), blank=True)
    try:
        chat.turns([Header("user"), called, Header("tool", result_fields(_ID, _NAME))], tools=tools)
    except PromptCacheError:
        return False
    return True


def as_text(messages: Sequence[Message]) -> list[Message]:
    """Returns a conversation for a chat template without tools: calls are text, and results the user's."""
    found = list[Message]()
    for message in messages:
        calls = [PLAIN.spelled(call) for call in message.calls]
        blocks = (*message.blocks, Block("\n".join(calls))) if calls else message.blocks
        role = "user" if message.role == "tool" else message.role
        if role == "user" and found and found[-1].role == "user":
            found[-1] = replace(found[-1], blocks=(*found[-1].blocks, *blocks))
        else:
            found.append(Message(role, blocks))
    return found


def call_syntax(chat: ChatFormat, tools: Tools) -> CallSyntax:
    """Returns the syntax of calls; `PLAIN` if the template has no tools.

    Raises:
        ToolsError: the template writes calls in a form that cannot be forced.
    """
    asks, calls = Header("user"), Header("assistant", call_fields([_SAMPLE]), blank=True)
    try:
        invited = chat.turns([asks], tools=tools)
        called = chat.turns([asks, calls, asks], tools=tools)
    except PromptCacheError:
        return PLAIN
    invitation = invited.closes[0] + invited.generation
    text = called.closes[0] + called.opens[1] + called.closes[1]
    shared = next((i for i, pair in enumerate(zip(invitation, text, strict=False)) if len({*pair}) > 1), None)
    text = text[len(invitation) if shared is None else shared :]
    parts = [match for match in _PARTS.finditer(text) if not match[2]]
    differs = shared is not None and invitation[shared:].strip()
    if differs or [bool(match[1]) for match in parts] != [True, False]:
        raise ToolsError(
            "The chat template of this model does not write the arguments of a call as JSON after its name, "
            "so a call cannot be forced. Let the model decide (auto)."
        )
    name, arguments = parts
    between, after = text[name.end() : arguments.start()], _before_end(text[arguments.end() :], chat)
    return CallSyntax(text[: name.start()], between, after)


def _before_end(text: str, chat: ChatFormat) -> str:
    """The text of a call up to the special token that ends the turn."""
    places = chat.tokens.specials(text)
    ends = [start for start, _ in places[-1:]]
    return text[: ends[0]] if ends else text.rstrip()


def _in_json(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)[1:-1]


def _literal(text: str, tokens: Tokenizer) -> Iterator[str]:
    """The parts of a Lark rule that match a text: special tokens by their ids, an id by its pattern."""
    done = 0
    for start, end in [*tokens.specials(text), (len(text), len(text))]:
        for number, part in enumerate(text[done:start].split(_ID)):
            if number:
                yield f"/{_ID_PATTERN}/"
            if part:
                yield quoted(part)
        if end > start:
            (token,) = tokens.marked(text[start:end])
            yield f"<[{token}]>"
        done = end
