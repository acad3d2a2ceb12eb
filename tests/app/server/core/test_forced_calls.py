"""Forced tool calls come in the syntax of the chat template, with arguments as their schema demands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from torch import Tensor

from engine.checkpoint.synthetic import byte_tokenizer
from engine.inference.sampler import Sampler
from engine.model.model import Model
from engine.prompt.conversation.messages import Message
from engine.prompt.conversation.named_blocks import Block
from engine.prompt.conversation.tools import ToolCall
from engine.prompt.template.call_syntax import as_text
from tests.app.server.served import Served, served
from tests.engine.prompt.tool_templates import IGNORES, REFUSES, WITH_TOOLS
from tests.engine.tiny import tiny_network

CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Paris"]}}, "required": ["city"]}
CITY |= {"additionalProperties": False}
WEATHER = {"name": "weather", "description": "How the weather is.", "parameters": CITY}
TOOLS: list[Any] = [{"type": "function", "function": one} for one in (WEATHER, {"name": "now"})]
CLAUDES: list[Any] = [
    {"name": "weather", "input_schema": CITY},
    {"name": "now", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}},
]
FUNCTIONS: list[Any] = [{"type": "function", **WEATHER}, {"type": "function", "name": "now"}]
QUESTION: list[Any] = [{"role": "user", "content": "How is it in Rome?"}]
NAMED = {"type": "function", "function": {"name": "weather"}}
FAMILIES = {**WITH_TOOLS, "ignores": IGNORES, "refuses": REFUSES}


@pytest.fixture(scope="module", params=FAMILIES)
def caller(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server whose model has a chat template, but does not say how calls are read."""
    family, words = FAMILIES[request.param], byte_tokenizer()
    words.add_special_tokens({"additional_special_tokens": [*family.specials]})
    words.chat_template = family.template
    model = Model("caller", tiny_network(), words, "caller")
    with served(tmp_path_factory.mktemp("caller"), model=model, longest=200) as running:
        yield running


def require(name: str, arguments: Any) -> None:
    assert arguments in ([{"city": "Rome"}, {"city": "Paris"}] if name == "weather" else [{}])


def test_calls_and_results_are_read_in_later_turns(caller: Served) -> None:
    chat = caller.openai().chat.completions
    asked: dict[str, Any] = {"model": "caller", "tools": TOOLS, "include": ["prompt_cache"], "max_tokens": 90}
    include = asked.pop("include")
    messages, before = [*QUESTION], 0
    for choice in (NAMED, "required", "none"):
        told = chat.create(
            messages=messages, tool_choice=choice, extra_body={"include": include, "temperature": 0}, **asked
        )
        assert told.usage.prompt_tokens > before or choice == "none"
        before, message = told.usage.prompt_tokens, told.choices[0].message
        if choice == "none":
            assert message.tool_calls is None
            continue
        (call,) = message.tool_calls
        require(call.function.name, json.loads(call.function.arguments))
        result = {"role": "tool", "tool_call_id": call.id, "content": "It is warm."}
        messages += [message.model_dump(exclude_none=True), result]


def test_a_template_without_tools_writes_calls_as_text() -> None:
    call = Message("assistant", (Block("Let me see."),), (ToolCall("weather", {"city": "Rome"}),))
    results = [Message("tool", (Block("Warm."),)), Message("tool", (Block("Dry."),), name="x")]
    made = as_text(
        [Message("user", (Block("How is it?"),)), call, *results, Message("user", (Block("So?"),))]
    )
    assert [(one.role, [block.text for block in one.blocks]) for one in made] == [
        ("user", ["How is it?"]),
        ("assistant", ["Let me see.", '{"name": "weather", "arguments": {"city": "Rome"}}']),
        ("user", ["Warm.", "Dry.", "So?"]),
    ]


def test_a_forced_call_comes_in_every_dialect(caller: Served) -> None:
    chat = caller.openai().chat.completions
    for choice in ("required", NAMED):
        asked: dict[str, Any] = {
            "model": "caller",
            "messages": QUESTION,
            "tools": TOOLS,
            "tool_choice": choice,
        }
        made = chat.create(parallel_tool_calls=False, **asked).choices[0]
        assert made.finish_reason == "tool_calls"
        assert made.message.content is None
        (call,) = made.message.tool_calls
        require(call.function.name, json.loads(call.function.arguments))
        assert choice == "required" or call.function.name == "weather"
        with chat.stream(**asked) as stream:
            (call,) = stream.get_final_completion().choices[0].message.tool_calls
        require(call.function.name, json.loads(call.function.arguments))
    told = caller.openai().responses.create(
        model="caller", input=QUESTION, tools=FUNCTIONS, tool_choice={"type": "function", "name": "weather"}
    )
    (item,) = told.output
    assert (item.type, item.name) == ("function_call", "weather")
    require(item.name, json.loads(item.arguments))
    for pick in ({"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "now"}):
        said = caller.anthropic().messages.create(
            model="caller", messages=QUESTION, max_tokens=200, tools=CLAUDES, tool_choice=pick
        )
        (block,) = said.content
        assert (said.stop_reason, block.type) == ("tool_use", "tool_use")
        require(block.name, block.input)


def test_a_cut_call_is_text(agent: Served) -> None:
    asked: dict[str, Any] = {"model": "agent", "messages": QUESTION, "tools": TOOLS, "tool_choice": NAMED}
    made = agent.openai().chat.completions.create(max_tokens=30, **asked).choices[0]
    assert (made.finish_reason, made.message.tool_calls) == ("length", None)
    assert made.message.content.startswith("<tool_call>")


def test_with_tools_and_a_format_the_answer_is_a_call_or_json(agent: Served) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": [1]}}}
    asked: dict[str, Any] = {
        "model": "agent",
        "messages": QUESTION,
        "tools": TOOLS,
        "response_format": schema,
    }
    kinds = set()
    for seed in range(6):
        made = agent.openai().chat.completions.create(seed=seed, **asked).choices[0]
        for call in made.message.tool_calls or ():
            require(call.function.name, json.loads(call.function.arguments))
        assert made.message.tool_calls or made.message.content == "[1]"
        kinds.add(made.finish_reason)
    assert kinds == {"stop", "tool_calls"}
    with pytest.raises(openai.BadRequestError, match="must be JSON"):
        agent.openai().chat.completions.create(
            model="agent", messages=QUESTION, tools=TOOLS, extra_body={"guided_regex": "a"}
        )


def test_a_strict_call_keeps_to_its_parameters(agent: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model begins a call, and random weights go on."""
    chosen, script = Sampler.choose, list[int]()

    def choose(self: Sampler, logits: Tensor, allowed: Tensor | None = None) -> int:
        return script.pop(0) if script else chosen(self, logits, allowed)

    monkeypatch.setattr(Sampler, "choose", choose)
    chats: list[Any] = [
        {"type": "function", "function": {**one["function"], "strict": True}} for one in TOOLS
    ]
    others, claudes = ([{**one, "strict": True} for one in tools] for tools in (FUNCTIONS, CLAUDES))
    words, drawn = "Let me look.\n<tool_call>", {"temperature": 1, "model": "agent"}
    for seed in range(3):
        script[:] = agent.engine.model.tokenize(words)
        chat = agent.openai().chat.completions
        made = chat.create(messages=QUESTION, tools=chats, seed=seed, max_tokens=200, **drawn).choices[0]
        call = made.message.tool_calls[0].function
        require(call.name, json.loads(call.arguments))
        assert made.message.content.startswith("Let me look.")
    script[:] = agent.engine.model.tokenize(words)
    told = agent.openai().responses.create(input=QUESTION, tools=others, max_output_tokens=200, **drawn)
    (item,) = (one for one in told.output[:2] if one.type == "function_call")
    require(item.name, json.loads(item.arguments))
    script[:] = agent.engine.model.tokenize(words)
    said = agent.anthropic().messages.create(model="agent", messages=QUESTION, tools=claudes, max_tokens=200)
    (block,) = (one for one in said.content[:2] if one.type == "tool_use")
    require(block.name, block.input)


UNIQUE = {"name": "x", "parameters": {"type": "object", "properties": {"a": {"uniqueItems": True}}}}


@pytest.mark.parametrize(
    ("more", "param", "words"),
    [
        ({"tool_choice": "required"}, "tool_choice", "There are no tools"),
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice", "must be none, auto, required"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice",
            "There is no tool 'x'; the tools are weather and now",
        ),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice", "must be none"),
        ({"tools": TOOLS, "parallel_tool_calls": False}, "parallel_tool_calls", "unless a call is forced"),
        (
            {
                "tools": [{"type": "function", "function": {**UNIQUE, "strict": True}}],
                "tool_choice": "required",
            },
            "tools[0]",
            "`uniqueItems` is not supported",
        ),
        (
            {"tools": [{"type": "function", "function": {**UNIQUE, "strict": True}}]},
            "tools[0]",
            "Or remove strict",
        ),
    ],
)
def test_a_choice_that_cannot_be_kept_to_is_refused(
    agent: Served, more: dict[str, Any], param: str, words: str
) -> None:
    body = {"model": "agent", "messages": QUESTION, "max_tokens": 4, **more}
    error = agent.http.post("/v1/chat/completions", json=body).json()["error"]
    assert error["param"] == param
    assert words.replace("'", "") in error["message"].replace("'", "").replace('"', "")


def test_a_tool_that_is_not_strict_may_have_unsupported_keywords(agent: Served) -> None:
    tools = [{"type": "function", "function": UNIQUE}]
    asked: dict[str, Any] = {"model": "agent", "messages": QUESTION, "tools": tools, "temperature": 0}
    made = agent.openai().chat.completions.create(tool_choice="required", max_tokens=40, **asked)
    assert made.choices[0].message.content is None or "tool_call" in made.choices[0].message.content
