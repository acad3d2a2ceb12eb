"""The table of Anthropic's fields in docs/server.md: complete, and true of each that is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import anthropic
import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_params

from tests.app.server.served import Served

DOCUMENT = (Path(__file__).parents[4] / "docs" / "server.md").read_text(encoding="utf-8")
SAID: list[Any] = [{"role": "user", "content": "Hello"}]
TOOL: dict[str, Any] = {"name": "weather", "input_schema": {"type": "object", "properties": {}}}
USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "24"}


def with_block(block: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [block]}]}


def with_tool(**more: Any) -> dict[str, Any]:
    return {"tools": [{**TOOL, **more}]}


def between(call: Any, result: Any) -> dict[str, Any]:
    turns = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return {**with_tool(), "messages": [*SAID, *turns]}


REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "thinking": [({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking")],
    "output_config.effort": [({"output_config": {"effort": "low"}}, "output_config.effort")],
    "context_management": [
        (
            {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}},
            "context_management.edits",
        )
    ],
    "compaction": [({"compaction": {"trigger": {}}}, "compaction")],
    "container": [({"container": "container_1"}, "container")],
    "mcp_servers": [({"mcp_servers": [{"type": "url", "name": "x", "url": "http://x"}]}, "mcp_servers")],
    "thread": [({"thread": {"type": "create"}}, "thread")],
    "tool_choice.disable_parallel_tool_use": [
        (
            {**with_tool(), "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            "tool_choice.disable_parallel_tool_use",
        )
    ],
    "tools": [({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools.0.type")],
    "input_examples": [(with_tool(input_examples=[{}]), "tools.0.input_examples")],
    "allowed_callers": [(with_tool(allowed_callers=["code_execution"]), "tools.0.allowed_callers")],
    **{
        kind: [(with_block({"type": kind, "source": {}}), "messages.0.content.0.type")]
        for kind in ("image", "server_tool_use")
    },
}
HARMLESS: list[dict[str, Any]] = [
    {"thinking": {"type": "disabled"}},
    {"thinking": {"type": "adaptive"}},
    {"output_config": {"effort": "high"}},
    {"output_config": {"format": {"type": "json_schema", "schema": {"const": 1}}}},
    {"context_management": {"edits": [{"type": "clear_thinking_20251015"}]}},
    {"mcp_servers": []},
    {**with_tool(), "tool_choice": {"type": "auto", "disable_parallel_tool_use": False}},
    {**with_tool(), "tool_choice": {"type": "none"}},
    with_tool(type="custom", strict=True, eager_input_streaming=True, allowed_callers=["direct"]),
    with_tool(input_examples=[], cache_control={"type": "ephemeral"}),
    with_block({"type": "text", "text": "x", "citations": []}),
    {"messages": [*SAID, {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm."}]}, *SAID]},
    between({**USE, "caller": {"type": "direct"}}, {**RESULT, "is_error": True, "toolset_name": "x"}),
    {"metadata": {"user_id": "x"}, "service_tier": "auto", "inference_geo": "eu", "speed": "fast"},
    {"fallbacks": [{"model": "x"}], "fallback_credit_token": "x", "billing_policy": {}, "betas": ["x"]},
    {"user_profile_id": "x", "workspace_id": "x"},
]


def rows() -> Iterator[tuple[list[str], str]]:
    """The fields of each row of the table, and what is done."""
    part = re.split(r"\n##+ ", DOCUMENT.split("### Anthropic's fields\n")[1])[0]
    for line in part.splitlines():
        if line.startswith("| ") and not line.startswith("| Field"):
            fields, here = (cell.strip() for cell in line.strip("|").split(" | "))
            yield re.findall(r"`([a-z_.]+)", re.sub(r"\([^)]*\)", "", fields)), here


TABLE = [*rows()]


def test_the_table_has_every_field_of_the_client() -> None:
    known = {name for fields, _ in TABLE for name in fields}
    for kind in (
        message_create_params.MessageCreateParamsBase,
        beta_params.MessageCreateParamsBase,
        message_count_tokens_params.MessageCountTokensParams,
    ):
        assert set(get_type_hints(kind)) - known == set()


def test_every_field_that_is_refused_has_a_request() -> None:
    refused = {name for fields, here in TABLE if here.startswith("refused") for name in fields}
    assert refused <= set(REFUSED)
    some = {"tools", "thinking", "output_config.effort"}
    assert set(REFUSED) - refused == some, "of which some values are refused"


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused_by_its_name(agent: Served, name: str) -> None:
    client = agent.anthropic()
    for changes, param in REFUSED[name]:
        asked = {"model": "agent", "messages": SAID, **changes}
        for call, more in ((client.messages.create, {"max_tokens": 1}), (client.messages.count_tokens, {})):
            given = {"messages": asked["messages"], "model": "agent", **more}
            with pytest.raises(anthropic.BadRequestError) as error:
                call(**given, extra_body=changes)
            message = error.value.api_message or ""
            assert message.startswith(f"{param}: It is not supported here: "), message


@pytest.mark.parametrize("changes", HARMLESS, ids=lambda changes: "-".join(changes))
def test_what_asks_for_nothing_is_let_pass(agent: Served, changes: dict[str, Any]) -> None:
    asked = {"model": "agent", "max_tokens": 1, "messages": SAID, **changes}
    answer = agent.http.post("/v1/messages", json=asked)
    assert answer.status_code == 200, answer.text
