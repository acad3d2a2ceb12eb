"""Calls of tools are told from what an answer says, as the tokenizer's response template has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from engine.inference.text_stream import TextStream
from engine.prompt.conversation.tools import ToolCall, Tools, ToolsError
from engine.prompt.template.chat_template import ChatFormat
from engine.prompt.template.tool_calls import ParsedAnswer
from tests.engine.prompt.chat_templates import Family, tokenizer
from tests.engine.prompt.tool_templates import HERMES_ANSWERS, WITH_TOOLS

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
ROME = ToolCall("weather", {"city": "Rome"})
PROMPT = "<|im_start|>user\nHow is it?<|im_end|>\n<|im_start|>assistant\n"


def made(answers: Any = HERMES_ANSWERS, *specials: str) -> Any:
    family = WITH_TOOLS["hermes"]
    one = tokenizer(Family(family.template, (*family.specials, *specials)))
    one.response_template = answers
    return one


def read(text: str, *specials: str, prompt: str = PROMPT, tools: Tools | None = None) -> ParsedAnswer:
    one = made(HERMES_ANSWERS, *specials)
    answer, before = (one(part, add_special_tokens=False)["input_ids"] for part in (text, prompt))
    return ChatFormat(one).calls_in(answer, before, tools or Tools())


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Blue.<|im_end|>", ParsedAnswer("Blue.")),
        (" Blue.\n", ParsedAnswer(" Blue.\n")),
        ("", ParsedAnswer("")),
        (f"{CALL}<|im_end|>", ParsedAnswer("", (ROME,))),
        (f"Let me look.\n{CALL}\n{CALL}", ParsedAnswer("Let me look.", (ROME, ROME))),
        (f"<think>hm</think>{CALL}", ParsedAnswer("", (ROME,), "hm")),
        ("<think>hm</think>Blue.<|im_end|>", ParsedAnswer("Blue.", (), "hm")),
        ('<tool_call>{"name": "clock"}</tool_call>', ParsedAnswer("", (ToolCall("clock", {}),))),
        (
            '<tool_call>{"name": "clock", "arguments": "{\\"at\\": 1}"}</tool_call>',
            ParsedAnswer("", (ToolCall("clock", {"at": 1}),)),
        ),
    ],
)
def test_calls_are_told_from_what_is_said(text: str, want: ParsedAnswer) -> None:
    assert read(text) == want


LITERAL = {**HERMES_ANSWERS["fields"]["tool_calls"], "open": "<tool_call>"}
LITERAL.pop("open_pattern")
LITERALS = {**HERMES_ANSWERS, "fields": {**HERMES_ANSWERS["fields"], "tool_calls": LITERAL}}
DEFAULTS = {**LITERALS, "defaults": {"role": "assistant", "content": "", "thinking": ""}}


@pytest.mark.parametrize("answers", [HERMES_ANSWERS, LITERALS, DEFAULTS])
@pytest.mark.parametrize(
    ("text", "content", "thought"),
    [
        (f"Let me look.\n{CALL}\nDone.", "Let me look.\nDone.", ""),
        (f"Let me look.\n{CALL}\n", "Let me look.", ""),
        (f"One {CALL} two {CALL}<|im_end|>", "One\ntwo", ""),
        (f"{CALL}\n\n{CALL}three", "three", ""),
        (f"<think>hm</think>One<think>well</think>two{CALL}", "One\ntwo", "hm\nwell"),
    ],
)
def test_what_is_said_before_between_and_behind_calls_is_all_there(
    answers: Any, text: str, content: str, thought: str
) -> None:
    found = ChatFormat(made(answers)).calls_in(text)
    assert (found.content, found.thought, found.fault) == (content, thought, "")
    assert found.calls == (ROME,) * text.count(CALL)


@pytest.mark.parametrize(
    "said", ["</tool_call>", "a </tool_call>\n</tool_call>", '\\"</tool_call>"', "<tool_call>{}"]
)
def test_an_argument_may_have_the_mark_behind_a_call(said: str) -> None:
    call = f"<tool_call>{json.dumps({'name': 'note', 'arguments': {'text': said}})}</tool_call>"
    note = ToolCall("note", {"text": said})
    assert read(f"Look.{call}\n{CALL}").calls == (note, ROME)
    assert read(f"Look.{call}<|im_end|>") == ParsedAnswer("Look.", (note,))


@pytest.mark.parametrize("opened", ["(?=\\{)", "\\s*"])
def test_calls_without_a_mark_before_them_are_looked_for_once(opened: str) -> None:
    field = {
        "open_pattern": opened,
        "close": "}\n",
        "content": "json",
        "content_args": {"allow_non_json": True},
    }
    answers = {"start_anchor": "x", "fields": {"tool_calls": field, "content": {"content": "text"}}}
    ChatFormat(made(answers)).calls_in('{"name": "weather", "arguments": {"a": 1}}')  # and it ends


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ('{"name": "weather", "arguments": {', "could not parse"),
        ('{"arguments": {}}', "names no function"),
        ('{"name": "weather", "arguments": [1]}', "arguments of 'weather' are not an object"),
        ('{"name": "weather", "arguments": "Rome"}', "Expecting value"),
        ("[1]", "a call is not an object"),
        ('{"name": "weather", "arguments": {"city": "\\ud800"}}', "cannot be written as JSON"),
        ('{"name": "weather", "arguments": {"city": NaN}}', "cannot be written as JSON"),
        ('{"name": "weather", "arguments": {"city": [-Infinity]}}', "cannot be written as JSON"),
        ('{"name": "weather", "arguments": {"a": ' + "[" * 40 + "]" * 40 + "}}", "nests more than 32 deep"),
    ],
)
def test_what_is_no_call_is_content_and_says_why(call: str, words: str) -> None:
    text = f"Well. <tool_call>{call}</tool_call>"
    found = read(f"{text}<|im_end|>")
    assert (found.content, found.calls) == (text, ())
    assert words in found.fault


def test_special_tokens_that_mark_calls_are_found_though_the_text_has_none() -> None:
    specials = ("<tool_call>", "</tool_call>")
    one = made(HERMES_ANSWERS, *specials)
    answer = one(f"{CALL}<|im_end|>", add_special_tokens=False)["input_ids"]
    stream = TextStream(one)
    text = "".join(map(stream.add, answer)) + stream.rest()
    assert "tool_call" not in text
    assert read(f"Look.{CALL}<|im_end|>", *specials) == ParsedAnswer("Look.", (ROME,))
    assert ChatFormat(one).calls_in(f"{CALL}<|im_end|>") == ParsedAnswer("", (ROME,))


def test_what_the_prompt_has_begun_belongs_to_the_answer() -> None:
    found = read(f"hm</think>{CALL}", prompt=f"{PROMPT}<think>")
    assert found == ParsedAnswer("", (ROME,), "hm")
    assert read(CALL, prompt=f"<|im_start|>user\n{CALL}<|im_end|>\n<|im_start|>assistant\n").calls == (ROME,)


def test_arguments_without_types_are_read_by_the_definitions() -> None:
    answers = {
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {
            "tool_calls": {
                "open_pattern": r"<function=(?P<name>\w+)>",
                "close": "</function>",
                "repeats": True,
                "content": "xml-inline",
                "content_args": {"tag_pattern": r"<(?P<key>\w+)>(?P<value>.*?)</\w+>"},
                "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
            },
            "content": {"content": "text"},
        },
    }
    parameters = {"type": "object", "properties": {"days": {"type": "integer"}, "city": {"type": "string"}}}
    tools = Tools.of([{"type": "function", "function": {"name": "weather", "parameters": parameters}}])
    text = "<function=weather><days>7</days><city>7</city></function>"
    chat = ChatFormat(made(answers))
    assert chat.calls_in(text, (), tools).calls == (ToolCall("weather", {"days": 7, "city": "7"}),)
    assert chat.calls_in(text).calls == (ToolCall("weather", {"days": "7", "city": "7"}),)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (None, "has no response template"),
        ({"start_anchor": "x", "fields": {"content": {"content": "text"}}}, "without tool_calls"),
        ({"fields": {}}, "cannot be read"),
        (["x"], "cannot be read"),
    ],
)
def test_a_tokenizer_that_tells_no_calls_is_refused_in_words(answers: Any, words: str) -> None:
    chat = ChatFormat(made(answers))
    assert not chat.parses_calls
    with pytest.raises(ToolsError, match=words):
        chat.calls_in("Blue.")


def test_a_response_template_is_kept_with_its_tokenizer(tmp_path: Path) -> None:
    made().save_pretrained(tmp_path)
    chat = ChatFormat(AutoTokenizer.from_pretrained(tmp_path, local_files_only=True))
    assert chat.parses_calls
    assert chat.calls_in(CALL).calls == (ROME,)
