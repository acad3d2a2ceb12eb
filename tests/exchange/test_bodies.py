"""Conversations as services and data sets write them: what is text is kept, what is not is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.exchange import ExchangeError, Imported, import_from
from engine.exchange.from_messages import from_messages
from engine.pml import Module, Role
from engine.pml.tree.tree import AnswerFormat
from tests.exchange.test_import import documents, turns

CACHED = {"type": "ephemeral"}


def of(body: Any, row: int = 1) -> Imported:
    return from_messages(json.dumps(body), "s", row)


def modules(found: Imported) -> list[str]:
    return [module.path for module in found.schema.modules()]


def told(found: Imported, *words: str) -> bool:
    return any(all(word in note for word in words) for note in found.notes)


# Nothing goes without a word


def test_what_a_request_to_openai_holds_besides_text_is_said() -> None:
    found = of(
        {
            "model": "m",
            "temperature": 0.5,
            "response_format": {"type": "json_schema"},
            "tools": [{"type": "function", "function": {"name": "get_weather"}}, {"type": "web_search"}],
            "messages": [
                {"role": "user", "content": "Hi", "name": "ann"},
                {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
                {"role": "tool", "tool_call_id": "1", "content": "21 degrees"},
                {"role": "user", "content": [{"type": "input_audio"}, {"type": "text", "text": "Thanks"}]},
            ],
        }
    )
    assert turns(found) == [("user", "Hi\n\n21 degrees"), ("user", "Thanks")]
    assert told(found, "2 tools left out", "get_weather, web_search")
    assert told(found, "response_format is left out")
    assert told(found, "2 fields of the request left out", "model, temperature")
    assert told(found, "without name", "ann")
    assert told(found, "without tool_calls", "message 2")
    assert told(found, "1 result of tools became", "message 3")
    assert told(found, "'input_audio'", "message 4")


def test_a_kind_of_loss_is_one_note() -> None:
    found = of([{"role": "user", "content": [{"type": "image"}] * 50 + [{"type": "text", "text": "Hi"}]}])
    (note,) = found.notes
    assert note.startswith("50 blocks of type 'image' left out")


def test_cache_marks_become_borders_of_modules() -> None:
    found = of(
        {
            "system": [{"type": "text", "text": "Be kind.", "cache_control": CACHED}],
            "messages": [{"role": "user", "content": "Hi"}],
        }
    )
    assert modules(found) == ["be-kind"]
    assert told(found, "1 cache mark became a module boundary")
    assert turns(found) == [("system", "Be kind."), ("user", "Hi")]


def test_text_documents_are_modules() -> None:
    document = {
        "type": "document",
        "title": "Ships of the line",
        "context": "From the museum.",
        "source": {"type": "text", "media_type": "text/plain", "data": "The red ship is old."},
        "citations": {"enabled": True},
        "cache_control": CACHED,
    }
    held = {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "More."}]}}
    scanned = {"type": "document", "source": {"type": "base64", "data": "AAAA"}}
    words = {"type": "text", "text": "Which is old?"}
    found = of({"messages": [{"role": "user", "content": [document, held, scanned, words]}]})
    assert modules(found) == ["Ships-of-the-line", "more"]
    text = "Document: Ships of the line\n\nFrom the museum.\n\nThe red ship is old.\n\nMore.\n\nWhich is old?"
    assert turns(found) == [("user", text)]
    assert told(found, "1 document left out", "'base64'")
    assert told(found, "without citations")


def test_what_tools_have_answered_is_modules() -> None:
    found = of(
        {
            "messages": [
                {"role": "user", "content": "Read both."},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "read"}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "1", "content": "First file."},
                        {
                            "type": "tool_result",
                            "tool_use_id": "2",
                            "content": [{"type": "text", "text": "Second file."}, {"type": "image"}],
                        },
                        {"type": "text", "text": "Compare them."},
                    ],
                },
            ]
        }
    )
    assert modules(found) == ["read-both", "result", "result-2"]
    assert turns(found) == [("user", "Read both.\n\nFirst file.\n\nSecond file.\n\nCompare them.")]
    assert told(found, "'tool_use'")
    assert told(found, "'image'")


def test_a_last_turn_that_ends_with_a_document_adds_no_new_text() -> None:
    document = {"type": "document", "source": {"type": "text", "data": "All of it."}}
    found = of([{"role": "user", "content": [{"type": "text", "text": "Sum up:"}, document]}])
    assert modules(found) == ["sum-up", "all-of-it"]
    assert told(found, "ends with a module")
    assert turns(found) == [("user", "Sum up:\n\nAll of it.")]


# Other bodies


def test_a_request_to_the_responses_api() -> None:
    found = of(
        {
            "instructions": "Be brief.",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "How far?"}]},
                {"type": "reasoning", "summary": []},
                {"type": "function_call", "name": "measure", "call_id": "1", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "1", "output": "3 km"},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "3 km."}],
                },
                {"role": "user", "content": "And back?"},
            ],
            "text": {"format": {"type": "json_object"}},
            "tools": [{"type": "function", "name": "measure"}],
        }
    )
    assert turns(found) == [
        ("system", "Be brief."),
        ("user", "How far?\n\n3 km"),
        ("assistant", "3 km."),
        ("user", "And back?"),
    ]
    assert found.prompt is not None
    assert found.prompt.format == AnswerFormat("json")
    assert told(found, "'reasoning'")
    assert told(found, "'function_call'")
    assert told(found, "1 tool left out", "measure")
    assert turns(of({"input": "Hello"})) == [("user", "Hello")]


def test_a_request_to_gemini() -> None:
    found = of(
        {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [
                {"role": "user", "parts": [{"text": "Look: "}, {"inlineData": {"data": "AAAA"}}]},
                {"role": "model", "parts": [{"text": "Hm.", "thought": True}, {"text": "A cat."}]},
                {
                    "role": "function",
                    "parts": [{"functionResponse": {"name": "age", "response": {"years": 3}}}],
                },
                {"role": "user", "parts": [{"text": "Sure?"}]},
            ],
            "tools": [{"functionDeclarations": [{"name": "age"}, {"name": "name"}]}],
            "generationConfig": {"temperature": 0},
        }
    )
    assert [role for role, _ in turns(found)] == ["system", "user", "assistant", "user", "user"]
    assert '"years": 3' in turns(found)[3][1]
    assert modules(found) == ["age"]
    assert told(found, "2 tools left out", "age, name")
    assert told(found, "'inlineData'")
    assert told(found, "'thought'")
    assert told(found, "generationConfig")


def test_a_row_of_sharegpt() -> None:
    row = {
        "id": "x",
        "system": "Be kind.",
        "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}],
        "tools": '[{"name": "find"}]',
    }
    found = of(row)
    assert turns(found) == [("system", "Be kind."), ("user", "Hi"), ("assistant", "Hello")]
    assert told(found, "1 tool left out", "find")
    assert told(found, "the last turn is not a user turn")
    assert told(found, "1 id of the row left out", ": x")


def test_messages_of_langchain() -> None:
    dumped = [
        {"type": "system", "data": {"content": "Be kind.", "additional_kwargs": {}}},
        {"type": "human", "data": {"content": "Hi", "name": None}},
    ]
    constructed = [
        {"lc": 1, "type": "constructor", "id": ["langchain", "schema", name], "kwargs": {"content": text}}
        for name, text in (("SystemMessage", "Be kind."), ("HumanMessage", "Hi"))
    ]
    for messages in (dumped, constructed):
        assert turns(of(messages)) == [("system", "Be kind."), ("user", "Hi")]


def test_one_of_several_conversations(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": f"Question {n}"}]} for n in (1, 2, 3)]
    lines = "\n".join(json.dumps(row) for row in rows) + "\n\n"
    for name, text in (("a.jsonl", lines), ("b.json", lines), ("c.json", json.dumps(rows))):
        (tmp_path / name).write_text(text, encoding="utf-8")
        found = import_from(tmp_path / name, row=2)
        assert turns(found) == [("user", "Question 2")], name
        assert told(found, "3 conversations", "number 2")
        with pytest.raises(ExchangeError, match="no conversation 4: it has 3"):
            import_from(tmp_path / name, row=4)


def test_a_conversation_is_recognised_whatever_its_file_is_called(tmp_path: Path) -> None:
    (tmp_path / "chat.log").write_text(' [{"role": "user", "content": "Hi"}]', encoding="utf-8")
    (tmp_path / "chat.yaml").write_text("messages:\n- role: user\n  content: Hi\n", encoding="utf-8")
    for name in ("chat.log", "chat.yaml"):
        assert turns(import_from(tmp_path / name)) == [("user", "Hi")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1}\n{', "line 2 is not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"contents": [3]}', "is not valid content"),
        ('{"input": 3}', "there are no messages"),
    ],
)
def test_bodies_that_are_none(text: str, says: str) -> None:
    with pytest.raises(ExchangeError, match=says):
        from_messages(text, "s")


def test_what_is_imported_is_a_document() -> None:
    found = of([{"role": "system", "content": "A"}, {"role": "user", "content": "B"}])
    schema, _ = documents(found)
    assert [type(child) for child in schema.children] == [Role]
    assert not [child for child in schema.children if isinstance(child, Module)]
