"""Tools over both dialects: definitions and results go in by the chat template, calls come out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from engine.inference.sampler import Sampler
from engine.model.model import Model
from engine.model.synthetic import byte_tokenizer
from tests.engine.prompt.tool_templates import HERMES_ANSWERS, WITH_TOOLS
from tests.engine.tiny import tiny_network
from tests.server.served import Served, served

WEATHER = {
    "name": "weather",
    "description": "How the weather is.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
TOOLS: list[Any] = [{"type": "function", "function": WEATHER}]
CLAUDES: list[Any] = [
    {"name": "weather", "description": WEATHER["description"], "input_schema": WEATHER["parameters"]}
]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
QUESTION: list[Any] = [{"role": "user", "content": "How is it in Rome?"}]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose model has a chat template with tools, and says how calls are written."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = WITH_TOOLS["hermes"].template
    tokenizer.response_template = HERMES_ANSWERS
    model = Model("agent", tiny_network(), tokenizer, "agent")
    with served(tmp_path_factory.mktemp("agent"), model=model, longest=200) as running:
        yield running


def says(monkeypatch: pytest.MonkeyPatch, server: Served, *texts: str) -> None:
    """Has the model say these texts, one after the other: random weights call no tools."""
    script = [token for text in texts for token in (*server.engine.model.tokenize(text), 1)]
    monkeypatch.setattr(Sampler, "choose", lambda self, logits: script.pop(0))


def test_a_call_comes_out_and_its_result_goes_in(agent: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = agent.openai().chat.completions
    says(monkeypatch, agent, f"Let me look.\n{CALL}", "It is warm.")
    made = chat.create(model="agent", messages=QUESTION, tools=TOOLS)
    choice = made.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me look."
    (call,) = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Rome"})
    turns = [*QUESTION, choice.message.to_dict()]
    turns.append({"role": "tool", "tool_call_id": call.id, "content": "24 degrees"})
    answer = chat.create(model="agent", messages=turns, tools=TOOLS)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("It is warm.", "stop")
    read = answer.usage.prompt_tokens_details.cached_tokens
    assert read >= made.usage.prompt_tokens - 64, "the second turn reads the first one"


def test_a_streamed_call_is_whole(agent: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, agent, f"Let me look.\n{CALL}\n{CALL}")
    with agent.openai().chat.completions.stream(model="agent", messages=QUESTION, tools=TOOLS) as stream:
        found = stream.get_final_completion().choices[0]
    assert found.finish_reason == "tool_calls"
    assert found.message.content == "Let me look."
    assert [call.function.name for call in found.message.tool_calls] == ["weather", "weather"]


def test_anthropics_blocks_of_tools(agent: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = agent.anthropic().messages
    says(monkeypatch, agent, CALL, "It is warm.", f"Again.\n{CALL}")
    asked: dict[str, Any] = {"model": "agent", "tools": CLAUDES, "max_tokens": 200}
    made = messages.create(messages=QUESTION, **asked)
    (block,) = made.content
    assert (made.stop_reason, block.type, block.name, block.input) == (
        "tool_use",
        "tool_use",
        "weather",
        {"city": "Rome"},
    )
    turns = [*QUESTION, {"role": "assistant", "content": [block.to_dict()]}]
    result = {
        "type": "tool_result",
        "tool_use_id": block.id,
        "content": [{"type": "text", "text": "24 degrees"}],
    }
    turns.append({"role": "user", "content": [result]})
    counted = messages.count_tokens(model="agent", tools=CLAUDES, messages=turns).input_tokens
    answer = messages.create(messages=turns, **asked)
    assert answer.content[0].text == "It is warm."
    usage = answer.usage
    assert usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens == counted
    with messages.stream(messages=QUESTION, **asked) as stream:
        final = stream.get_final_message()
    assert [one.type for one in final.content] == ["text", "tool_use"]
    assert final.content[1].input == {"city": "Rome"}


def test_a_deferred_tool_is_told_where_a_result_refers_to_it(
    agent: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = {"name": "find", "description": "Finds tools.", "input_schema": {"type": "object"}}
    asked: dict[str, Any] = {"model": "agent", "tools": [search], "max_tokens": 200}
    later = {**CLAUDES[0], "defer_loading": True}
    messages = agent.anthropic().messages
    says(monkeypatch, agent, '<tool_call>\n{"name": "find", "arguments": {}}\n</tool_call>', CALL)
    made = messages.create(messages=QUESTION, **asked)
    (block,) = made.content
    found = {"type": "tool_reference", "tool_name": "weather"}
    result = {"type": "tool_result", "tool_use_id": block.id, "content": [found]}
    turns = [*QUESTION, {"role": "assistant", "content": [block.to_dict()]}]
    turns.append({"role": "user", "content": [result]})
    asked["tools"] = [later, search]
    assert messages.count_tokens(model="agent", tools=asked["tools"], messages=QUESTION).input_tokens == (
        made.usage.input_tokens + made.usage.cache_read_input_tokens
    )
    answer = messages.create(messages=turns, **asked)
    assert [(one.name, one.input) for one in answer.content] == [("weather", {"city": "Rome"})]
    first = made.usage.input_tokens + made.usage.cache_read_input_tokens
    assert answer.usage.cache_read_input_tokens >= first - 64, "what stood before is read"
    told = json.dumps({"type": "function", "function": WEATHER})
    spelled = {**result, "content": told}
    told_turns = [*turns[:-1], {"role": "user", "content": [spelled]}]
    counted = [
        messages.count_tokens(model="agent", tools=asked["tools"], messages=one).input_tokens
        for one in (turns, told_turns)
    ]
    assert counted[0] == counted[1]


def test_deferred_tools_that_nobody_could_find_are_refused(agent: Served) -> None:
    messages, later = agent.anthropic().messages, {**CLAUDES[0], "defer_loading": True}
    with pytest.raises(anthropic.BadRequestError, match="defer_loading"):
        messages.create(model="agent", messages=QUESTION, tools=[later], max_tokens=9)
    found = {"type": "tool_reference", "tool_name": "tide"}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [found]}
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
    turns: list[Any] = [
        *QUESTION,
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    with pytest.raises(anthropic.BadRequestError, match=r"content\.0\.tool_name: There is no tool 'tide'"):
        messages.create(model="agent", messages=turns, tools=CLAUDES, max_tokens=9)


def test_both_dialects_read_the_same_prompt(agent: Served) -> None:
    ours = agent.openai().chat.completions.create(model="agent", messages=QUESTION, tools=TOOLS, max_tokens=1)
    theirs = agent.anthropic().messages.count_tokens(model="agent", messages=QUESTION, tools=CLAUDES)
    assert ours.usage.prompt_tokens == theirs.input_tokens


def test_marks_stand_behind_results_and_calls(agent: Served) -> None:
    control = {"cache_control": {"type": "ephemeral"}}
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "24 degrees", **control}
    turns: list[Any] = [
        {"role": "user", "content": "Marks: how is it in Rome?"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    messages = agent.anthropic().messages
    first, second = (
        messages.create(model="agent", messages=turns, tools=CLAUDES, max_tokens=1).usage for _ in range(2)
    )
    assert first.cache_creation_input_tokens > 0
    assert second.cache_creation_input_tokens == 0
    assert second.cache_read_input_tokens >= first.cache_creation_input_tokens


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools"),
    ],
)
def test_what_cannot_be_done_is_refused(agent: Served, changes: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        agent.openai().chat.completions.create(
            **{"model": "agent", "messages": QUESTION, "tools": TOOLS, **changes}
        )
    assert error.value.param == param


def test_a_model_without_tools_says_so(server: Served) -> None:
    with pytest.raises(openai.BadRequestError, match="response template"):
        server.openai().chat.completions.create(model=server.model, messages=QUESTION, tools=TOOLS)
    with pytest.raises(anthropic.BadRequestError, match="response template"):
        server.anthropic().messages.create(model=server.model, messages=QUESTION, tools=CLAUDES, max_tokens=1)


def test_a_model_whose_calls_cannot_be_told_says_so(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = WITH_TOOLS["hermes"].template
    model = Model("mute", tiny_network(), tokenizer, "mute")
    with served(tmp_path, model=model) as server:
        with pytest.raises(openai.BadRequestError, match="response template"):
            server.openai().chat.completions.create(model="mute", messages=QUESTION, tools=TOOLS)
        chosen = server.openai().chat.completions.create(
            model="mute", messages=QUESTION, tools=TOOLS, tool_choice="none", max_tokens=1
        )
        assert chosen.choices
