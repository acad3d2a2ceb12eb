"""The description of the server: what it says of answers, errors and streams is what comes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.server.core.running import Running
from app.server.http.errors import NO_METHOD, Dialect
from app.server.http.openapi_responses import KINDS
from engine.base.events import Delta
from tests.app.server.described import check, operation
from tests.app.server.served import LONG, Served

SAID = [{"role": "user", "content": "Hello"}]
MARKED = [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}]
POINTED = [{"type": "text", "text": LONG, "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}]
PML = '<schema name="described"><module name="b">Some text.</module></schema>'
SCHEMA = "/v1/prompt_cache/schemas/described"
REPORT = {"include": ["prompt_cache"]}
CHAT = {"messages": SAID, "max_tokens": 3}
DECIDED = [
    {"type": "predicate", "instructions": "Is it so?"},
    {"type": "choice", "instructions": "Which?", "choices": [{"value": "a"}, {"value": False}]},
    {"type": "score", "instructions": "How much?", "levels": [{"label": "low"}, {"label": "high"}]},
]
NAMED = {
    "so": {"type": "noul", "instructions": "Is it so?"},
    "which": {"type": "choice", "criteria": {"a": None, "b": "the other"}},
    "much": {"type": "score", "criteria": ["low", {"level": "high"}]},
}
REQUESTS: list[tuple[str, str, Any]] = [
    ("post", "/v1/chat/completions", CHAT),
    ("post", "/v1/chat/completions", {**CHAT, **REPORT, "stream": True}),
    ("post", "/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}}),
    ("post", "/v1/chat/completions", {**CHAT, **REPORT, "messages": [{"role": "user", "content": POINTED}]}),
    ("post", "/v1/chat/completions", {**CHAT, "max_tokens": 0}),
    ("post", "/v1/completions", {"prompt": "Hello"}),
    ("post", "/v1/completions", {"prompt": "Hello", "stream": True, **REPORT}),
    ("post", "/v1/completions", {"prompt": 5}),
    ("post", "/v1/responses", {"input": "Hello", **REPORT, "metadata": {"a": "b"}}),
    ("post", "/v1/responses", {"input": [{"role": "user", "content": POINTED}], "stream": True}),
    ("post", "/v1/responses", {"input": "Hello", "max_output_tokens": 2, "stream": True}),
    ("post", "/v1/responses", {"input": []}),
    ("post", "/v1/responses/input_tokens", {"input": "Hello"}),
    ("get", "/v1/responses/x", None),
    ("delete", "/v1/responses/x", None),
    ("post", "/v1/responses/x/cancel", None),
    ("get", "/v1/responses/x/input_items", None),
    ("post", "/v1/messages", {**CHAT, "diagnostics": {"previous_message_id": "msg_1"}}),
    ("post", "/v1/messages", {**CHAT, **REPORT, "system": MARKED, "stream": True}),
    ("post", "/v1/messages", {**CHAT, "max_tokens": 0}),
    ("post", "/v1/messages", {**CHAT, "thinking": {"type": "enabled"}}),
    ("post", "/v1/messages/count_tokens", {"messages": SAID}),
    ("post", "/v1/messages/count_tokens", {"messages": LONG}),
    ("post", "/v1/embeddings", {"input": ["Hello", LONG]}),
    ("post", "/v1/embeddings", {"input": [72, 105], "encoding_format": "base64"}),
    ("post", "/v1/embeddings", {"input": ""}),
    ("post", "/v1/decisions", {"input": "Hello", "questions": DECIDED}),
    ("post", "/v1/decisions", {"input": "Hello", "questions": []}),
    ("post", "/v1/systemone", {"state": ["Hello"], "questions": NAMED}),
    ("post", "/v1/systemone", {"state": "", "questions": NAMED}),
    ("post", "/v1/rerank", {"query": "Cold?", "documents": ["It is cold.", {"text": "Warm."}], "top_n": 1}),
    ("post", "/v1/rerank", {"query": "Cold?", "documents": ["It is cold."], "return_documents": False}),
    ("post", "/v1/score", {"text_1": "Cold?", "text_2": ["It is cold.", "It is warm."]}),
    ("post", "/v1/score", {"text_1": ["a", "b"], "text_2": "It is cold."}),
    ("post", "/v1/generative_scoring", {"query": "Hi", "items": ["a", "b"], "label_token_ids": [65, 66]}),
    ("post", "/api/chat", {**CHAT, "logprobs": True}),
    ("post", "/api/chat", {**CHAT, "stream": False}),
    ("post", "/api/chat", {"options": {"mirostat": 1}}),
    ("post", "/api/generate", {"prompt": "Hello"}),
    ("post", "/api/generate", {"stream": False}),
    ("post", "/api/embed", {"input": ["Hello", LONG]}),
    ("post", "/api/embed", {"input": LONG * 30}),
    ("post", "/api/show", {}),
    ("get", "/api/tags", None),
    ("get", "/api/ps", None),
    ("get", "/api/version", None),
    ("get", "/v1/models", None),
    ("get", "/v1/models/alias", None),
    ("get", "/v1/models/other", None),
    ("put", SCHEMA, {"pml": PML, "ttl": "1h", "encode": True}),
    ("put", SCHEMA, {"pml": PML, "pinned": True}),
    ("put", SCHEMA, {"pml": "<schema"}),
    ("get", SCHEMA, None),
    ("patch", SCHEMA, {"ttl": None}),
    ("get", "/v1/prompt_cache/schemas", None),
    ("get", "/v1/prompt_cache/schemas?page_size=0", None),
    ("post", "/v1/chat/completions", {**CHAT, **REPORT, "prompt_cache": {"schema": "described"}}),
    ("post", "/v1/prompt_cache/plan", {"messages": SAID}),
    ("post", "/v1/prompt_cache/plan", {"messages": SAID, "dialect": "anthropic"}),
    ("get", "/v1/prompt_cache/residency", None),
    ("get", "/v1/prompt_cache/requests", None),
    ("get", "/v1/prompt_cache/requests?page_size=0", None),
    ("get", "/v1/prompt_cache/requests/none", None),
    ("delete", SCHEMA, None),
    ("delete", SCHEMA, None),
    ("get", "/health", None),
    ("get", "/metrics", None),
]


@pytest.fixture(scope="module")
def described(server: Served) -> Any:
    return server.http.get("/v1/openapi.json").json()


def test_what_comes_is_what_is_described(server: Served, described: Any) -> None:
    asked = set()
    for method, path, body in REQUESTS:
        for headers in ({}, {"anthropic-version": "2023-06-01"}):
            given = body if body is None or "v1/prompt_cache/s" in path else {"model": server.model, **body}
            answer = server.http.request(method, path, json=given, headers=headers)
            assert answer.status_code < 500, answer.text
            check(described, method, path, answer)
            asked.add((method, operation(described, method, path)["operationId"]))
    everything = {
        (method, one["operationId"]) for ways in described["paths"].values() for method, one in ways.items()
    }
    assert asked == everything


def test_an_error_in_a_stream_is_described(
    server: Served, described: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    events_of = Running.events

    async def broken(running: Running) -> Any:
        async for event in events_of(running):
            yield event
            if isinstance(event, Delta):
                raise ValueError("a fault")

    monkeypatch.setattr(Running, "events", broken)
    for path in ("/v1/messages", "/v1/responses"):
        said = CHAT if "mess" in path else {"input": "Hello"}
        body = {"model": server.model, "stream": True, "temperature": 0, **said}
        answer = server.http.post(path, json=body)
        assert "error" in answer.text
        check(described, "post", path, answer)


def test_what_a_server_says_that_is_switched_off_is_described(
    server: Served, described: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.service, "off", True)
    answer = server.http.get("/health")
    assert answer.json() == {"status": "off"}
    check(described, "get", "/health", answer)


def test_each_endpoint_and_field_has_words(described: Any) -> None:
    assert all(
        path in ("/health", "/metrics") or path.startswith(("/v1/", "/api/")) for path in described["paths"]
    )
    for path, ways in described["paths"].items():
        for method, one in ways.items():
            assert one["description"], (path, method)
            assert all(told["description"] for told in one["responses"].values())
    for name, shape in described["components"]["schemas"].items():
        assert shape.get("description"), name
    bodies = [name for name in described["components"]["schemas"] if name.endswith("Body")]
    assert len(bodies) == 20
    for name in bodies:
        for field, shape in described["components"]["schemas"][name].get("properties", {}).items():
            assert shape.get("description"), f"{name}.{field}"


def test_bounds_of_numbers_are_the_dialects_own(described: Any) -> None:
    shapes = described["components"]["schemas"]
    for name, most in (("ChatBody", 2), ("CompletionBody", 2), ("ResponsesBody", 2), ("MessagesBody", 1)):
        field = shapes[name]["properties"]["temperature"]
        assert [one["maximum"] for one in field["anyOf"] if "maximum" in one] == [most]
        assert f"at most {most}." in field["description"]


def test_each_kind_of_error_is_described(described: Any) -> None:
    paths: dict[Dialect, str] = {
        "openai": "/v1/chat/completions",
        "anthropic": "/v1/messages",
        "typesafe": "/v1/systemone",
        "ollama": "/api/chat",
    }
    for kind in {*KINDS} - {NO_METHOD}:
        for dialect, path in paths.items():
            responses = described["paths"][path]["post"]["responses"]
            name = kind.anthropic if dialect == "anthropic" else kind.code or kind.type
            assert f"`{name}`" in responses[str(kind.status_in(dialect))]["description"]


def test_every_reference_leads_somewhere(described: Any) -> None:
    text, found = json.dumps(described), 0
    for part in text.split('"$ref": "#/')[1:]:
        place: Any = described
        for step in part.partition('"')[0].split("/"):
            place = place[step]
        found += 1
    assert found > 100
    assert "ValidationError" not in text
