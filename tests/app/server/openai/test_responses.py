"""OpenAI's responses by its own clients, unchanged: plain, streamed, refused, and broken off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from app.server.core.service import Running
from engine import Block, Message
from engine.base.events import Delta, Event
from engine.inference.run_settings import RunSettings
from tests.app.server.served import LONG, Served
from tests.drawing import EVERY

INPUT: list[Any] = [
    {"role": "developer", "content": "Say it in words."},
    {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "One day"}, {"type": "input_text", "text": "in April?"}],
    },
    {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Cold.", "annotations": [], "logprobs": []}],
    },
    {"role": "user", "content": "And the clocks?"},
]
TURNS = [
    Message("system", (Block("Be short."),)),
    Message("system", (Block("Say it in words."),)),
    Message("user", (Block("One day"), Block("in April?"))),
    Message("assistant", (Block("Cold."),)),
    Message("user", (Block("And the clocks?"),)),
]
ASKED: dict[str, Any] = {
    "instructions": "Be short.",
    "input": INPUT,
    "max_output_tokens": 12,
    "temperature": 0,
    "extra_body": {"repetition_penalty": 1.5},
}
BOOK = f"A book begins: {LONG}"
LIFE = ["response.created", "response.in_progress"]
OPENED = ["response.output_item.added", "response.content_part.added"]
CLOSED = ["response.output_text.done", "response.content_part.done", "response.output_item.done"]
DELTA = "response.output_text.delta"


def plain(server: Served, messages: list[Message] = TURNS, **changes: Any) -> Any:
    """The engine's own answer, computed without a cache."""
    settings = RunSettings(**{"max_new_tokens": 12, "temperature": 0, "repetition_penalty": 1.5, **changes})
    return server.engine.conversation(messages).answer(settings, mode="uncached")


def create(server: Served, **changes: Any) -> Any:
    extra = {**ASKED["extra_body"], **changes.pop("extra_body", {})}
    return server.openai().responses.create(
        **{"model": server.model, **ASKED, **changes, "extra_body": extra}
    )


def ended(server: Served) -> dict[str, Any]:
    """A request whose answer ends before its most tokens, so that it is complete."""
    return {**ASKED, "extra_body": {**ASKED["extra_body"], "stop": plain(server).text[4:6]}}


def strictly(response: Any) -> Response:
    """The answer as its type has it, each field of which must have its form."""
    return Response.model_validate_json(response.model_dump_json(exclude_unset=True))


def test_a_response_is_the_engines_answer(server: Served) -> None:
    made, expected = create(server), plain(server)
    assert made.output_text == expected.text
    assert made.usage.input_tokens == expected.tokens["prompt"]
    assert made.usage.output_tokens == expected.tokens["generated"]
    assert made.usage.total_tokens == expected.tokens["prompt"] + expected.tokens["generated"]
    assert made.usage.output_tokens_details.reasoning_tokens == 0
    assert (made.id[:5], made.output[0].id[:4]) == ("resp_", "msg_")
    assert (made.object, made.model, made.store, made.temperature) == ("response", server.model, False, 0)
    assert (made.instructions, made.max_output_tokens, made.tools) == ("Be short.", 12, [])
    assert made._request_id is not None
    strictly(made)


def test_a_response_that_is_cut_is_incomplete_and_one_that_ends_is_complete(server: Served) -> None:
    cut = create(server, max_output_tokens=3)
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (cut.output[0].status, cut.usage.output_tokens) == ("incomplete", 3)
    assert cut.completed_at is None
    whole = create(server, **ended(server))
    assert (whole.status, whole.incomplete_details) == ("completed", None)
    assert whole.output[0].status == "completed"
    assert whole.completed_at >= whole.created_at
    assert whole.output_text == plain(server).text[:4]


def test_what_was_answered_goes_on_as_input(server: Served) -> None:
    client, asked = server.openai(), {"model": server.model, "max_output_tokens": 4, "temperature": 0}
    said: list[Any] = [{"role": "user", "content": BOOK}]
    first = client.responses.create(input=said, **asked)
    said += [*first.output, {"role": "user", "content": "And then?"}]
    second = client.responses.create(input=said, **asked)
    turns = [
        Message("user", (Block(BOOK),)),
        Message("assistant", (Block(first.output_text),)),
        Message("user", (Block("And then?"),)),
    ]
    assert second.output_text == plain(server, turns, max_new_tokens=4, repetition_penalty=1).text
    details = second.usage.input_tokens_details
    assert details.cached_tokens >= first.usage.input_tokens - 64
    assert details.cached_tokens + details.cache_write_tokens <= second.usage.input_tokens


def test_a_stream_tells_the_same_response_in_typed_events(server: Served) -> None:
    asked, create_ = ended(server), server.openai().responses.create
    create_(model=server.model, **asked)
    whole = create_(model=server.model, **asked)
    events = [*create_(model=server.model, stream=True, **asked)]
    kinds = [event.type for event in events]
    assert [one for one in kinds if one != DELTA] == [*LIFE, *OPENED, *CLOSED, "response.completed"]
    assert set(kinds[4:-4]) == {DELTA}, "deltas stand between a part's beginning and its end"
    assert [event.sequence_number for event in events] == [*range(len(events))]
    text = "".join(event.delta for event in events if event.type == DELTA)
    assert text == whole.output_text == events[-4].text == events[-1].response.output_text
    assert events[-1].response.usage == whole.usage
    assert events[0].response.status == "in_progress"
    assert len({event.response.id for event in events if hasattr(event, "response")}) == 1
    for event in events:
        TypeAdapter(ResponseStreamEvent).validate_json(event.model_dump_json(exclude_unset=True))


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"background": True}, "background"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
        ({"include": ["prompt_cache", "message.output_text.logprobs"]}, "include[1]"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"truncation": "auto"}, "truncation"),
        ({"context_management": [{"type": "compaction"}]}, "context_management"),
        ({"moderation": {"model": "omni-moderation-latest"}}, "moderation"),
        ({"extra_body": {"min_tokens": 1}}, "min_tokens"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [*INPUT, {"type": "computer_call", "call_id": "1"}]}, "input[4].type"),
        (
            {"input": [*INPUT[:2], {"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[2].content[0].type",
        ),
        (
            {"input": [{"role": "user", "content": [INPUT[1]["content"][0], {"type": "input_file"}]}]},
            "input[0].content[1].type",
        ),
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(server: Served, changes: Any, param: str) -> None:
    for stream in (False, True) if EVERY else (False,):
        with pytest.raises(openai.BadRequestError) as error:
            create(server, stream=stream, **changes)
        assert (error.value.code, error.value.param) == ("unsupported_parameter", param)
        assert error.value.request_id


def test_what_asks_for_nothing_is_let_pass(server: Served) -> None:
    made = create(
        server,
        background=False,
        include=["reasoning.encrypted_content", "file_search_call.results"],
        max_tool_calls=3,
        metadata={"a": "b"},
        parallel_tool_calls=False,
        prompt_cache_key="key",
        reasoning={"effort": "none"},
        safety_identifier="me",
        service_tier="auto",
        store=True,
        text={"format": {"type": "text"}, "verbosity": "low"},
        tool_choice="auto",
        tools=[],
        top_logprobs=0,
        truncation="disabled",
        user="me",
        extra_body={"n": 1, "some_new_field": {"a": 1}},
    )
    assert made.output_text == plain(server).text
    assert (made.metadata, made.user, made.prompt_cache_key) == ({"a": "b"}, "me", "key")
    assert made.parallel_tool_calls is False
    strictly(made)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"temperature": 11}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"extra_body": {"stop": ["a", "b", "c", "d", "e"]}}, "stop"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"role": "oracle", "content": "x"}]}, "input[0].role"),
        ({"input": [{"content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({"input": [{"role": "user", "content": [{"text": "x"}]}]}, "input[0].content[0].type"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "1"}]}, "input[0].output"),
        ({"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{"}]}, "input[0]"),
        ({"input": [*INPUT, {"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[4].call_id"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"prompt_cache_options": {"ttl": "1h"}}, "prompt_cache_options.ttl"),
        ({"input": [*INPUT, {"role": "user", "content": LONG * 20}]}, "input"),
    ],
)
def test_what_is_out_of_range_is_named(server: Served, changes: Any, param: str) -> None:
    if changes.get("input") == []:
        changes = {"instructions": None, **changes}
    with pytest.raises(openai.BadRequestError) as error:
        create(server, **changes)
    assert error.value.param == param


def test_options_of_the_cache_are_read_and_told(server: Served) -> None:
    part = {"type": "input_text", "text": BOOK, "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
    options = {"mode": "explicit", "ttl": "30m", "comparison_response_id": "resp_1"}
    made = create(server, input=[{"role": "user", "content": [part]}], prompt_cache_options=options)
    assert made.prompt_cache_options.to_dict() == options
    assert made.prompt_cache_diagnostics.type == "comparison_response_not_found", "nothing is stored"
    strictly(made)
    assert create(server).prompt_cache_options is None


def test_breakpoints_are_written_and_read_to_the_token(server: Served) -> None:
    def usage(question: str) -> Any:
        parts = [
            {
                "type": "input_text",
                "text": f"Kept {ttl}. {LONG}",
                "prompt_cache_breakpoint": {"mode": "explicit", "ttl": ttl},
            }
            for ttl in ("12h", "30m")
        ]
        said = [{"role": "user", "content": [*parts, {"type": "input_text", "text": question}]}]
        return create(server, input=said, max_output_tokens=2).usage.input_tokens_details

    first, second = usage("Once?"), usage("Twice, or how often?")
    by_ttl = first.cache_write_tokens_details
    assert by_ttl.ttl_12h_tokens > 64
    assert by_ttl.ttl_30m_tokens > 64
    assert by_ttl.ttl_12h_tokens + by_ttl.ttl_30m_tokens == first.cache_write_tokens
    written = first.cached_tokens + first.cache_write_tokens
    assert (second.cached_tokens, second.cache_write_tokens) == (written, 0)
    assert create(server).usage.input_tokens_details.cache_write_tokens_details is None


def test_a_warm_up_answers_nothing_and_the_next_response_reads(server: Served) -> None:
    warm = {"mode": "implicit", "prewarm": True}
    for stream in (False, True):
        asked = {"input": f"Warm, streamed: {stream}. {LONG}", "max_output_tokens": 2}
        made = create(server, **asked, prompt_cache_options=warm, stream=stream)
        if stream:
            events = [*made]
            assert [event.type for event in events] == [*LIFE, "response.completed"]
            made = events[-1].response
        assert (made.status, made.output, made.output_text) == ("completed", [], "")
        assert (made.usage.output_tokens, made.usage.total_tokens) == (0, made.usage.input_tokens)
        strictly(made)
        assert create(server, **asked).usage.input_tokens_details.cached_tokens >= 128


def test_messages_without_a_block_have_nothing_to_mark(server: Served) -> None:
    said: list[Any] = [{"role": "user", "content": []}]
    options = {"mode": "implicit"}
    assert create(server, input=said, instructions=None, prompt_cache_options=options).output_text
    chat = server.openai().chat.completions
    made = chat.create(
        model=server.model, messages=said, max_tokens=1, extra_body={"prompt_cache_options": options}
    )
    assert made.choices


def test_the_report_of_the_cache_is_told_where_it_is_wanted(server: Served) -> None:
    assert not hasattr(create(server), "prompt_cache")
    asked = (
        {"include": ["prompt_cache"]},
        {"extra_headers": {"x-prompt-cache": "report"}},
        {"include": ["prompt_cache"], "stream": True},
    )
    for changes in asked:
        made = create(server, **changes)
        found = [*made][-1].response if "stream" in changes else made
        assert found.prompt_cache["read"] + found.prompt_cache["computed"] == found.usage.input_tokens


def test_nothing_is_stored_that_could_be_fetched(server: Served) -> None:
    client = server.openai()
    made = create(server)
    calls = (
        client.responses.retrieve,
        client.responses.delete,
        client.responses.cancel,
        client.responses.input_items.list,
    )
    for call in calls:
        with pytest.raises(openai.NotFoundError, match="stores no responses without") as error:
            call(made.id)
        assert (error.value.code, error.value.param) == ("not_found", "response_id")


def test_a_fault_in_the_midst_of_a_stream_is_an_event_and_an_exception(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    events_of = Running.events

    async def broken(running: Running) -> AsyncIterator[Event]:
        async for event in events_of(running):
            yield event
            if isinstance(event, Delta):
                raise ValueError("a fault of ours")

    monkeypatch.setattr(Running, "events", broken)
    found, stream = list[Any](), create(server, stream=True, temperature=0)
    with pytest.raises(openai.APIError, match="The server failed on this request") as error:
        found.extend(event for event in stream)
    assert "fault of ours" not in str(error.value)
    assert error.value.type == "server_error"
    failed = found[-1]
    assert (failed.type, failed.response.status) == ("response.failed", "failed")
    assert failed.response.error.code == "server_error"
    assert failed.response.output[0].status == "incomplete"
    assert failed.response.output_text == "".join(event.delta for event in found if event.type == DELTA)
    raw = httpx.post(
        f"{server.url}/v1/responses",
        json={"model": server.model, "stream": True, "input": "Hello", "temperature": 0},
    ).text.strip()
    last = raw.split("\n\n")[-1]
    assert last.startswith("event: error\n")
    assert '"type":"error"' in last
    assert "[DONE]" not in raw


@pytest.mark.parametrize(
    "asked",
    [
        {"input": "Hello"},
        {"input": INPUT, "instructions": "Be short."},
        {"input": [{"role": "user", "content": LONG * 2}], "extra_body": {"prompt_cache_options": {}}},
        {
            "input": "Where?",
            "extra_body": {
                "prompt_cache": {"schema": '<schema name="a"><module name="b">Text.</module></schema>'}
            },
        },
    ],
)
def test_the_tokens_of_an_input_are_those_that_a_response_reports(server: Served, asked: Any) -> None:
    client = server.openai()
    made = client.responses.create(model=server.model, max_output_tokens=1, **asked)
    for model in ({"model": server.model}, {"model": "alias"}, {}, {"model": None}):
        counted = client.responses.input_tokens.count(**model, **asked)
        assert counted.object == "response.input_tokens"
        assert counted.input_tokens == made.usage.input_tokens


def test_the_tokens_of_an_input_are_counted_beyond_the_window_and_refused_as_a_response_is(
    server: Served,
) -> None:
    count = server.openai().responses.input_tokens.count
    one, two = (count(input=LONG * times).input_tokens for times in (30, 60))
    assert two > one > 300
    assert count(input="word " * 5000).input_tokens > server.engine.model.context_length
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-9'"):
        count(model="gpt-9", input="Hello")
    with pytest.raises(openai.BadRequestError, match="The input is missing"):
        count()
    with pytest.raises(openai.BadRequestError, match="previous_response_id is not supported here"):
        count(input="Hello", previous_response_id="resp_1")
