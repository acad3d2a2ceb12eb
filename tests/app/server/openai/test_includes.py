"""What `include` asks for: the report, what the vendor's clients ask for in vain, and what nobody knows."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from openai.types.responses import ResponseIncludable

from app.server.openai.includes import HARMLESS, LOGPROBS
from tests.app.server.served import Served

SAID: list[Any] = [{"role": "user", "content": "Hello"}]
REQUESTS: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": SAID, "max_tokens": 1},
    "completions": {"prompt": "Hello", "max_tokens": 1},
    "responses": {"input": "Hello", "max_output_tokens": 1},
    "messages": {"messages": SAID, "max_tokens": 1},
}


def ask(server: Served, path: str, include: Any) -> Any:
    return server.http.post(f"/v1/{path}", json={"model": server.model, **REQUESTS[path], "include": include})


def test_the_values_are_those_of_the_vendors_client() -> None:
    assert {*HARMLESS, LOGPROBS} == {*get_args(ResponseIncludable)}


@pytest.mark.parametrize("path", REQUESTS)
def test_what_is_known_is_let_pass_and_what_is_not_is_told(server: Served, path: str) -> None:
    for include, reported in (
        ([], False),
        ([*HARMLESS], False),
        ([*HARMLESS, "prompt_cache"], True),
        (None, False),
    ):
        answer = ask(server, path, include)
        assert answer.status_code == 200, answer.text
        assert ("prompt_cache" in answer.json()) == reported
    for wrong in ("promptcache", "", "reasoning"):
        error = ask(server, path, ["prompt_cache", wrong])
        assert error.status_code == 400
        told = error.json()["error"]["message"]
        assert repr(wrong) in told
        assert all(name in told for name in ("prompt_cache", *HARMLESS))
        assert told.count("include") == 1
    refused = ask(server, path, [LOGPROBS])
    assert (refused.status_code, "not supported" in refused.text) == (400, True)
