"""Messages without text: PML has no such turn, so an import names each one that it leaves out."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.exchange import ExchangeError, Imported
from engine.exchange.from_libraries import from_langchain, from_langfuse, from_promptfoo
from engine.exchange.from_messages import from_messages
from engine.exchange.templates.from_jinja import from_jinja
from engine.exchange.templates.from_prompty import from_prompty
from engine.exchange.to_messages import to_anthropic, to_openai_marked
from engine.pml import bind, parse_prompt, parse_schema
from tests.drawing import draws
from tests.exchange.test_import import turns

EMPTY: tuple[Any, ...] = (
    "",
    None,
    [],
    {},
    [""],
    [{"type": "text", "text": ""}],
    ["", {"type": "text", "text": ""}],
)
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
CONTENTS = st.sampled_from(EMPTY) | st.sampled_from(
    (" ", "\n\n", [{"type": "text", "text": " "}], "A", " B ", ["C"])
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(list(ROLES)), "content": CONTENTS}), min_size=1, max_size=9
)


def of(body: Any) -> Imported:
    return from_messages(json.dumps(body), "s")


def left_out(notes: tuple[str, ...]) -> set[int]:
    """The numbers of the messages that a note says are left out."""
    return {
        int(number) for note in notes if "left out" in note for number in re.findall(r"message (\d+)", note)
    }


def text_of(content: Any) -> str:
    blocks = content if isinstance(content, list) else [content or ""]
    return "".join(block if isinstance(block, str) else block.get("text", "") for block in blocks)


@settings(max_examples=draws(200))
@given(MESSAGES)
def test_each_message_is_a_turn_or_is_named(messages: list[dict[str, Any]]) -> None:
    said = [(ROLES[one["role"]], text_of(one["content"])) for one in messages]
    kept = [turn for turn in said if turn[1]]
    if not kept:
        with pytest.raises(ExchangeError, match=r"have no text.*message 1 "):
            of(messages)
        return
    found = of(messages)
    assert turns(found) == kept
    assert left_out(found.notes) == {place for place, (_, text) in enumerate(said, 1) if not text}


HI = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("body", "spelled", "says"),
    [
        ({"system": [], "messages": [HI]}, ["Hi"], "the system text"),
        ({"system": [{"type": "text", "text": ""}], "messages": [HI]}, ["Hi"], "the system text"),
        ({"instructions": "", "input": "Hi"}, ["Hi"], "the system text"),
        ({"input": [HI, {"role": "assistant", "content": []}, HI]}, ["Hi", "Hi"], "message 2 (assistant)"),
        (
            {"input": [HI, {"type": "function_call_output", "call_id": "1", "output": ""}, HI]},
            ["Hi", "Hi"],
            "message 2 (user)",
        ),
        (
            {"systemInstruction": {"parts": []}, "contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
            ["Hi"],
            "the system text",
        ),
        (
            {
                "contents": [
                    {"role": role, "parts": [{"text": text}]}
                    for role, text in (("user", "Hi"), ("model", ""), ("user", "So?"))
                ]
            },
            ["Hi", "So?"],
            "message 2 (assistant)",
        ),
        (
            {
                "conversations": [
                    {"from": "human", "value": "Hi"},
                    {"from": "gpt", "value": None},
                    {"from": "human", "value": "So?"},
                ]
            },
            ["Hi", "So?"],
            "message 2 (assistant)",
        ),
        (
            [
                {"type": kind, "data": {"content": text}}
                for kind, text in (("system", ""), ("human", "Hi"), ("ai", ""), ("human", "So?"))
            ],
            ["Hi", "So?"],
            "message 1 (system), message 3 (assistant)",
        ),
        ([HI, {"role": "assistant", "content": None, "tool_calls": [{}]}, HI], ["Hi", "Hi"], "message 2"),
        ([HI, {"role": "tool", "content": ""}, HI], ["Hi", "Hi"], "message 2"),
        ([HI, {"role": "tool", "content": None}, HI], ["Hi", "Hi"], "message 2"),
        (
            [HI, {"role": "assistant", "content": [{"type": "image"}]}, HI],
            ["Hi", "Hi"],
            "message 2 (assistant)",
        ),
        (
            [
                HI,
                {
                    "role": "assistant",
                    "content": [{"type": "document", "source": {"type": "text", "data": ""}}],
                },
                HI,
            ],
            ["Hi", "Hi"],
            "message 2 (assistant)",
        ),
    ],
)
def test_bodies_of_services(body: Any, spelled: list[str], says: str) -> None:
    found = of(body)
    assert [text for _, text in turns(found)] == spelled
    assert any("without text left out" in note and says in note for note in found.notes), found.notes
    assert not any("became modules" in note for note in found.notes)


def test_an_empty_system_text_warns_of_the_one_of_the_chat_template() -> None:
    found = of([{"role": "system", "content": ""}, HI])
    assert any("chat template" in note and "system text" in note for note in found.notes)
    assert not any(
        "chat template" in note for note in of([HI, {"role": "assistant", "content": ""}, HI]).notes
    )


def test_every_message_is_named_also_where_there_are_many() -> None:
    found = of([HI if place % 2 else {"role": "assistant", "content": ""} for place in range(20)])
    assert left_out(found.notes) == set(range(1, 21, 2))


def chain(*messages: tuple[str, str]) -> dict[str, Any]:
    held = [
        {"id": [kind], "kwargs": {"prompt": {"id": ["PromptTemplate"], "kwargs": {"template": text}}}}
        for kind, text in messages
    ]
    return {"lc": 1, "id": ["ChatPromptTemplate"], "kwargs": {"messages": held}}


CHAT = [{"role": "system", "content": ""}, {"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (from_langfuse({"type": "chat", "prompt": CHAT}, "s", 8), "message 1 (system)"),
        (from_promptfoo({"prompts": [CHAT]}, "s", 8), "message 1 (system)"),
        (
            from_langchain(
                chain(("SystemMessagePromptTemplate", ""), ("HumanMessagePromptTemplate", "Hi")), "s", 8
            ),
            "turn 1 (system)",
        ),
        (from_prompty("---\nname: x\n---\nsystem:\n\nuser:\nHi\n", "s", 8), "the turn of line 4 (system)"),
        (from_jinja("system:\n{# none #}\nuser:\nHi\n", "s"), "the turn of line 1 (system)"),
    ],
)
def test_templates_with_turns(found: Imported, says: str) -> None:
    assert [child.role for child in found.schema.children if hasattr(child, "role")] == ["user"]
    assert any("without text left out" in note and says in note for note in found.notes), found.notes


def test_exports_name_turns_of_white_space_that_a_service_refuses() -> None:
    schema = parse_schema(
        '<schema name="s"><user>Hi</user><assistant xml:space="preserve"> </assistant></schema>'
    )
    prompt = parse_prompt("<prompt>So?</prompt>")
    assert schema.tree is not None
    assert prompt.tree is not None
    parts = bind(schema.tree, prompt.tree).parts
    for export in (to_anthropic, to_openai_marked):
        body, notes = export(parts)
        assert [one["role"] for one in body["messages"]] == ["user", "user"]
        assert any("1 turn with only white space is left out" in note for note in notes)
