"""What a client has written is told again in part only, however long it is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.app.server.served import Served

LONG = "q" * 20_000
HUGE = 10**999
MARKED: dict[str, Any] = {"type": "text", "text": "x"}
TOOL = {"type": "function", "function": {"name": LONG}}
CHAT, TEXT, RESPONSES, MESSAGES = "chat/completions", "completions", "responses", "messages"


def said(role: str, content: Any = "Hello", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content, **more}]}


BODIES: list[tuple[str, dict[str, Any]]] = [
    *((path, {"model": LONG}) for path in (CHAT, TEXT, RESPONSES, MESSAGES, "messages/count_tokens")),
    *(
        (path, {name: HUGE})
        for path in (CHAT, TEXT, RESPONSES, MESSAGES)
        for name in ("max_tokens", "max_output_tokens", "temperature", "top_p", "top_k", "seed", "model")
        if (path, name) != (RESPONSES, "max_tokens") and (path == RESPONSES or name != "max_output_tokens")
    ),
    (CHAT, {"max_completion_tokens": -HUGE}),
    (MESSAGES, {"max_tokens": -HUGE}),
    (MESSAGES, {"max_tokens": HUGE}),
    (CHAT, {"stop": ["", LONG]}),
    (CHAT, {"temperature": LONG}),
    (CHAT, {"prompt_cache_retention": LONG}),
    (CHAT, {"tools": [TOOL, TOOL]}),
    (CHAT, {"tools": [{"type": "function", "function": {"name": LONG, "description": 5}}]}),
    (CHAT, said(LONG)),
    (CHAT, said("user", [{"type": LONG}])),
    (CHAT, said("user", [{**MARKED, "module": f"{LONG} {LONG}"}])),
    (CHAT, said("user", [{**MARKED, "module": {"name": "a", "sees": [LONG]}}])),
    (CHAT, {"prompt_cache": {"schema": LONG}}),
    (CHAT, {"prompt_cache": {"schema": "x", LONG: 1}}),
    (CHAT, {"prompt_cache": {"schema": f'<schema name="{LONG}"><{LONG}/></schema>'}}),
    (RESPONSES, {"input": [{"type": LONG}]}),
    (RESPONSES, {"tools": [{"type": LONG}]}),
    (RESPONSES, {"metadata": {LONG: 5}}),
    (MESSAGES, said(LONG)),
    (MESSAGES, said("user", [{"type": LONG}])),
    (MESSAGES, {"tools": [{"type": LONG, "name": "x"}]}),
    (MESSAGES, {"output_config": {LONG: 1}}),
    (MESSAGES, {"context_management": {LONG: 1}}),
    (
        MESSAGES,
        said(
            "user",
            [{"type": "tool_result", "content": [{"type": "tool_reference", "tool_name": LONG}]}],
        ),
    ),
    ("prompt_cache/plan", {"dialect": LONG}),
    ("nothing/" + LONG[:5000], {}),
]
USUAL: dict[str, dict[str, Any]] = {
    CHAT: said("user"),
    TEXT: {"prompt": "Hello"},
    RESPONSES: {"input": "Hello"},
    MESSAGES: {**said("user"), "max_tokens": 1},
    "messages/count_tokens": said("user"),
    "prompt_cache/plan": said("user"),
}


def check(answer: Any) -> None:
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["error"]["message"]
    assert not re.search("[q9]{81}|0{81}", answer.text)
    assert len(answer.text) < 1500


@pytest.mark.parametrize(("path", "changes"), BODIES)
def test_nothing_long_is_told_again(server: Served, path: str, changes: dict[str, Any]) -> None:
    check(server.http.post(f"/v1/{path}", json={"model": server.model, **USUAL.get(path, {}), **changes}))


@pytest.mark.parametrize(
    ("method", "name", "body"),
    [
        ("PUT", "a", {"pml": "x", "ttl": HUGE}),
        ("PUT", "a", {"pml": "x", "ttl": LONG}),
        ("PUT", "a", {"pml": "x", "expires_at": HUGE}),
        ("PUT", "a", {"pml": "x", "expires_at": LONG}),
        ("PUT", "a", {"pml": "x", LONG: 1}),
        ("PUT", "a", {"pml": f'<schema name="{LONG}">x</schema>'}),
        ("PUT", LONG[:5000], {"pml": '<schema name="a">x</schema>'}),
        ("GET", LONG[:5000], None),
        ("PATCH", LONG[:5000], {}),
        ("DELETE", LONG[:5000], None),
    ],
)
def test_nothing_long_is_told_again_of_a_schema(server: Served, method: str, name: str, body: Any) -> None:
    check(server.http.request(method, f"/v1/prompt_cache/schemas/{name}", json=body))


def test_nothing_long_of_a_head_is_told_again(server: Served) -> None:
    url = "/v1/chat/completions"
    for headers in ({"origin": LONG}, {"content-type": LONG}, {"content-encoding": LONG}):
        check(server.http.post(url, content=b"{}", headers={"content-type": "application/json", **headers}))
    check(server.http.get(f"/v1/responses/{LONG[:5000]}"))
    check(server.http.get(f"/v1/models/{LONG[:5000]}"))
    check(server.http.request(LONG[:5000].upper(), url))
