"""Tools over both dialects: definitions and results go in by the chat template, calls come out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from openai.types.responses import Response, ResponseOutputItem, ResponseStreamEvent
from pydantic import TypeAdapter

from app.server.core.tool_use import Said
from app.server.openai.response_items import output_of
from engine.checkpoint.synthetic import byte_tokenizer
from engine.inference.sampler import Sampler
from engine.model.model import Model
from engine.prompt.conversation.tools import ToolCall
from tests.app.server.served import LONG, Served, served
from tests.drawing import EVERY
from tests.engine.prompt.tool_templates import WITH_TOOLS
from tests.engine.tiny import tiny_network

WEATHER = {
    "name": "weather",
    "description": "How the weather is.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
TOOLS: list[Any] = [{"type": "function", "function": WEATHER}]
CLAUDES: list[Any] = [
    {"name": "weather", "description": WEATHER["description"], "input_schema": WEATHER["parameters"]}
]
FUNCTIONS: list[Any] = [{"type": "function", "strict": False, **WEATHER}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
QUESTION: list[Any] = [{"role": "user", "content": "How is it in Rome?"}]


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


def test_a_stop_text_never_shows_behind_a_call(agent: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = agent.openai().chat.completions
    for text in (f"Well. {CALL}\nThat is END", f"{CALL}END"):
        says(monkeypatch, agent, text)
        made = chat.create(model="agent", messages=QUESTION, tools=TOOLS, stop="END").choices[0]
        assert made.message.content in ("Well.\nThat is ", None)
        assert [call.function.name for call in made.message.tool_calls] == ["weather"]


def test_a_stop_text_never_shows_in_what_the_model_thinks(
    agent: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"model": "agent", "max_tokens": 100, "messages": QUESTION}
    for more in ({}, {"stream": True}):
        says(monkeypatch, agent, "<think>Is it the ENDE?</think>Yes.")
        body = {**asked, **more, "stop": "END", "tools": TOOLS}
        told = agent.http.post("/v1/chat/completions", json=body).text
        assert '"reasoning_content":"Is it the "' in told
    says(monkeypatch, agent, "<think>Is it the ENDE?</think>Yes.")
    body = {**asked, "stop_sequences": ["END"], "tools": CLAUDES}
    (block,) = agent.http.post("/v1/messages", json=body).json()["content"]
    assert block["thinking"] == "Is it the "
    says(monkeypatch, agent, "<think>So.</think>It is the END.")
    whole = {**asked, "stop": "END", "tools": TOOLS}
    said = agent.http.post("/v1/chat/completions", json=whole).json()["choices"][0]["message"]
    assert (said["reasoning_content"], said["content"]) == ("So.", "It is the ")


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


def test_a_call_in_an_answer_that_was_cut_says_so(agent: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    length = len(agent.engine.model.tokenize(CALL))
    chat, messages = agent.openai().chat.completions, agent.anthropic().messages
    asked: dict[str, Any] = {"model": "agent", "messages": QUESTION, "max_tokens": length}
    says(monkeypatch, agent, CALL)
    choice = chat.create(tools=TOOLS, **asked).choices[0]
    assert choice.message.tool_calls
    assert choice.finish_reason == "length"
    if EVERY:
        says(monkeypatch, agent, CALL)
        chunks = list(chat.create(tools=TOOLS, stream=True, **asked))
        assert chunks[-1].choices[0].finish_reason == "length"
    if EVERY:
        says(monkeypatch, agent, CALL)
        assert messages.create(tools=CLAUDES, **asked).stop_reason == "max_tokens"
    says(monkeypatch, agent, CALL)
    with messages.stream(tools=CLAUDES, **asked) as stream:
        assert stream.get_final_message().stop_reason == "max_tokens"


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


def test_responses_call_and_read_results(agent: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    responses = agent.openai().responses
    says(monkeypatch, agent, f"Let me look.\n{CALL}\n{CALL}", "It is warm.")
    said: list[Any] = list(QUESTION)
    made = responses.create(model="agent", input=said, tools=FUNCTIONS)
    message, call, other = made.output
    assert (made.output_text, message.status, made.status) == ("Let me look.", "completed", "completed")
    assert (call.type, call.name, json.loads(call.arguments)) == (
        "function_call",
        "weather",
        {"city": "Rome"},
    )
    assert (call.status, call.call_id == other.call_id) == ("completed", False)
    assert [tool.name for tool in made.tools] == ["weather"]
    Response.model_validate_json(made.model_dump_json(exclude_unset=True))
    said += [*made.output]
    said += [
        {"type": "function_call_output", "call_id": one.call_id, "output": output}
        for one, output in ((call, "24 degrees"), (other, [{"type": "input_text", "text": "25 degrees"}]))
    ]
    answer = responses.create(model="agent", input=said, tools=FUNCTIONS)
    assert (answer.output_text, [item.type for item in answer.output]) == ("It is warm.", ["message"])
    assert answer.usage.input_tokens_details.cached_tokens >= made.usage.input_tokens - 64
    turns = [*QUESTION, {"role": "assistant", "content": "Let me look.", "tool_calls": []}]
    turns[-1]["tool_calls"] = [
        {"id": one.call_id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
        for one in (call, other)
    ]
    turns += [
        {"role": "tool", "tool_call_id": one.call_id, "content": output}
        for one, output in ((call, "24 degrees"), (other, "25 degrees"))
    ]
    monkeypatch.undo()
    chat = agent.openai().chat.completions.create(model="agent", messages=turns, tools=TOOLS, max_tokens=1)
    assert chat.usage.prompt_tokens == answer.usage.input_tokens, "both endpoints read the same prompt"


def test_streamed_responses_tell_calls_in_typed_events(
    agent: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    responses = agent.openai().responses
    says(monkeypatch, agent, *[f"Let me look.\n{CALL}", CALL] * 2)
    asked: dict[str, Any] = {"model": "agent", "input": QUESTION, "tools": FUNCTIONS}
    for kinds in (["message", "function_call"], ["function_call"]):
        events = [*responses.create(stream=True, **asked)]
        assert [event.sequence_number for event in events] == [*range(len(events))]
        for event in events:
            TypeAdapter(ResponseStreamEvent).validate_json(event.model_dump_json(exclude_unset=True))
        final = events[-1].response
        assert [item.type for item in final.output] == kinds
        done = [event for event in events if event.type == "response.output_item.done"]
        assert [event.output_index for event in done] == [*range(len(kinds))]
        assert [event.item for event in done] == final.output
        (told,) = [event for event in events if event.type == "response.function_call_arguments.done"]
        assert told.arguments == final.output[-1].arguments
        assert told.item_id == final.output[-1].id
    for kinds in (["message", "function_call"], *([["function_call"]] if EVERY else [])):
        with responses.stream(**asked) as stream:
            snapshot = stream.until_done().get_final_response()
        assert [item.type for item in snapshot.output] == kinds
        assert json.loads(snapshot.output[-1].arguments) == {"city": "Rome"}


def test_what_a_model_thought_is_an_item_of_its_own() -> None:
    said, reader = Said("Yes.", "Hm.", (ToolCall("f", {"é": 1}),)), TypeAdapter[Any](ResponseOutputItem)
    given = output_of(said, "completed", "msg_1", "rs_1")
    items = [reader.validate_python(one.model_dump()) for one in given]
    assert [item.type for item in items] == ["reasoning", "message", "function_call"]
    assert [one.type for one in output_of(Said(""), "completed", "msg_1", "rs_1")] == ["message"]


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"tool_choice": {"type": "function", "name": "clock"}}, "tool_choice"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"tools": [*FUNCTIONS, {"type": "web_search"}]}, "tools[1].type"),
        ({"tools": [{"type": "function"}]}, "tools"),
    ],
)
def test_what_responses_cannot_do_is_refused(agent: Served, changes: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        agent.openai().responses.create(
            **{"model": "agent", "input": QUESTION, "tools": FUNCTIONS, **changes}
        )
    assert error.value.param == param


def test_responses_leave_out_tools_that_are_not_to_be_called_and_earlier_thoughts(agent: Served) -> None:
    def read(said: Any, **more: Any) -> int:
        made = agent.openai().responses.create(model="agent", input=said, max_output_tokens=1, **more)
        return int(made.usage.input_tokens)

    assert read(QUESTION, tools=FUNCTIONS, tool_choice="none") == read(QUESTION)
    assert read(QUESTION, tools=FUNCTIONS, tool_choice="auto") > read(QUESTION)
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    assert read([*QUESTION, thought]) == read(QUESTION)


def test_a_mark_within_a_result_keeps_what_stands_up_to_it(agent: Served) -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}}

    def asked(control: Any) -> Any:
        texts = ["Within: sunny.", "24 degrees. " * 20, "Dry. " * 40]
        parts: list[Any] = [{"type": "text", "text": text} for text in texts]
        parts[1].update(control)
        result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": parts}
        turns: list[Any] = [
            {"role": "user", "content": "Within: how is it in Rome?"},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ]
        return agent.anthropic().messages.create(model="agent", messages=turns, tools=CLAUDES, max_tokens=1)

    usage = asked({"cache_control": {"type": "ephemeral"}}).usage
    assert usage.cache_creation_input_tokens > 64
    assert usage.input_tokens >= len("Dry. " * 40) - 40, "what stands behind it is not kept"
    assert usage.input_tokens < len("24 degrees. " * 20) + len("Dry. " * 40), "and what stands before it is"
    place = r"messages\.2\.content\.0\.content\.1\.cache_control"
    with pytest.raises(anthropic.BadRequestError, match=place):
        asked({"cache_control": {"type": "lasting"}})


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": []}, {"content": ""}])
def test_a_mark_behind_a_result_without_content_holds(agent: Served, content: Any) -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", **content}
    turns = [
        {"role": "user", "content": f"Nothing, as {content}. {LONG}"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{**result, "cache_control": {"type": "ephemeral"}}]},
    ]
    asked = {
        "model": "agent",
        "max_tokens": 1,
        "messages": turns,
        "tools": CLAUDES,
        "include": ["prompt_cache"],
    }
    (mark,) = agent.http.post("/v1/messages", json=asked).json()["prompt_cache"]["marks"]
    assert mark["param"] == "messages.2.content.0.cache_control"
    assert mark["tokens"] > len(LONG)
    assert not mark["reason"]


def test_results_in_any_order_are_the_same_prompt(agent: Served) -> None:
    def asked(order: str) -> list[tuple[str, dict[str, Any]]]:
        function = {"name": "weather", "arguments": "{}"}
        calls = [{"id": one, "type": "function", "function": function} for one in "ab"]
        uses = [{"id": one, "type": "tool_use", "name": "weather", "input": {}} for one in "ab"]
        made = [{"type": "function_call", "call_id": one, **function} for one in "ab"]
        answers = [{"role": "tool", "tool_call_id": one, "content": f"{one} is warm"} for one in order]
        found = [{"type": "tool_result", "tool_use_id": one, "content": f"{one} is warm"} for one in order]
        put = [{"type": "function_call_output", "call_id": one, "output": f"{one} is warm"} for one in order]
        chat = [*QUESTION, {"role": "assistant", "tool_calls": calls}, *answers]
        claude = [*QUESTION, {"role": "assistant", "content": uses}, {"role": "user", "content": found}]
        return [
            ("/v1/chat/completions", {"messages": chat, "tools": TOOLS, "max_tokens": 1}),
            ("/v1/messages", {"messages": claude, "tools": CLAUDES, "max_tokens": 1}),
            (
                "/v1/responses",
                {"input": [*QUESTION, *made, *put], "tools": FUNCTIONS, "max_output_tokens": 1},
            ),
        ]

    def read(path: str, body: dict[str, Any]) -> int:
        usage = agent.http.post(path, json={"model": "agent", **body}).json()["usage"]
        return int(usage.get("cache_read_input_tokens", 0)) or next(
            usage[key]["cached_tokens"]
            for key in ("prompt_tokens_details", "input_tokens_details")
            if key in usage
        )

    for first, second in zip(asked("ab"), asked("ba"), strict=True):
        read(*first)
        assert read(*second) == read(*first)
    for path, body in asked("bc"):
        refused = agent.http.post(path, json={"model": "agent", **body})
        assert refused.status_code == 400, path
        assert "'c' is not a call of the turn" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"tool_choice": "any"}, "tool_choice"),
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


@pytest.mark.parametrize("none", ["", "null", None])
def test_a_call_without_arguments_may_say_so_in_any_way(
    agent: Served, monkeypatch: pytest.MonkeyPatch, none: Any
) -> None:
    function = {"name": "weather", "arguments": none}
    result = {"role": "tool", "tool_call_id": "c", "content": "Warm."}
    called = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    block = {"type": "tool_use", "id": "c", "name": "weather", "input": none or None}
    said = {"type": "tool_result", "tool_use_id": "c", "content": "Warm."}
    blocks = [{"role": "assistant", "content": [block]}, {"role": "user", "content": [said]}]
    says(monkeypatch, agent, "Yes.", "Yes.")
    turns = [*QUESTION, called, result]
    ours = agent.http.post("/v1/chat/completions", json={"model": "agent", "messages": turns, "tools": TOOLS})
    counted = agent.anthropic().messages.count_tokens(
        model="agent", messages=[*QUESTION, *blocks], tools=CLAUDES
    )
    assert ours.json()["usage"]["prompt_tokens"] == counted.input_tokens


@pytest.mark.parametrize(
    ("field", "changed", "words"),
    [
        (
            "tools",
            TOOLS,
            'tools.0: This is OpenAI\'s form. Send {"name": …, "description": …, "input_schema": …}.',
        ),
        ("tools", [{"name": "f", "type": "bash_20250124"}], "is a tool of Anthropic's servers"),
        (
            "messages",
            [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "tool_result"}]}],
            "messages.0.content.1: Tool results must come before all other blocks",
        ),
        (
            "messages",
            [{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": []}]}],
            "The arguments of a call must be an object",
        ),
        (
            "messages",
            [{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "input": {}}]}],
            "The call names no function",
        ),
    ],
)
def test_what_is_wrong_with_tools_is_said(agent: Served, field: str, changed: Any, words: str) -> None:
    asked = {"model": "agent", "max_tokens": 1, "messages": QUESTION, field: changed}
    refused = agent.http.post("/v1/messages", json=asked)
    assert refused.status_code == 400
    assert words in refused.json()["error"]["message"]
