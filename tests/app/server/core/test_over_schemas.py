"""Requests over schemas: modules in any order, turns behind them, in both dialects; plans and residency."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from engine.inference.run_settings import RunSettings
from tests.app.server.served import LONG, Served, served

PATH = "/v1/prompt_cache/schemas"
SCHEMA = f"""<schema name="journey">
  <system>Plan short journeys.</system>
  <user>
    <module name="rome">{LONG}Rome is best on foot.</module>
    <module name="oslo">{LONG}Oslo has a fjord.</module>
    <module name="town">I like <param name="what" len="12" default="boats"/>.</module>
  </user>
  <assistant>I have read that.</assistant>
</schema>"""
PROMPT = '<prompt schema="journey"><oslo/><rome/></prompt>'


@pytest.fixture(autouse=True)
def put(server: Served) -> Iterator[None]:
    url = f"{server.url}{PATH}/journey"
    assert httpx.put(url, json={"pml": SCHEMA}).status_code in (200, 201)
    yield
    httpx.delete(url)


def of_pml(server: Served, prompt: str, schema: str = SCHEMA, **changes: Any) -> Any:
    """The engine's own answer to a prompt that is PML from beginning to end."""
    settings = RunSettings(**{"max_new_tokens": 12, **changes})
    return server.engine.schema(schema).prompt(prompt).answer(settings, mode="cached")


def asked(server: Served, over: dict[str, Any], question: str | None = "Where to?") -> dict[str, Any]:
    messages = [] if question is None else [{"role": "user", "content": question}]
    return {
        "model": server.model,
        "messages": messages,
        "max_tokens": 12,
        "extra_body": {"prompt_cache": over, "temperature": 0},
    }


def test_the_format_in_a_prompt_is_kept_to(server: Served) -> None:
    element = (
        '<answer-format type="choice"><option value="by train"/><option value="on foot"/></answer-format>'
    )
    prompt = PROMPT.replace("</prompt>", f"{element}</prompt>")
    made = server.openai().chat.completions.create(**asked(server, {"schema": "journey", "prompt": prompt}))
    assert made.choices[0].message.content in ("by train", "on foot")
    own = asked(server, {"schema": "journey", "prompt": prompt})
    own["extra_body"]["guided_regex"] = "[0-9]{3}"
    said = server.openai().chat.completions.create(**own).choices[0].message.content
    assert said is not None
    assert said.isdigit()
    file = PROMPT.replace("</prompt>", '<answer-format type="json" src="a.json"/></prompt>')
    with pytest.raises(openai.BadRequestError, match="the server reads no files") as refused:
        server.openai().chat.completions.create(**asked(server, {"schema": "journey", "prompt": file}))
    assert refused.value.param == "prompt_cache.prompt"


@pytest.mark.parametrize("schema", ["journey", SCHEMA])
def test_an_answer_is_the_engines_to_the_same_pml(server: Served, schema: str) -> None:
    whole = PROMPT.replace("</prompt>", "<user>Where to?</user></prompt>")
    expected = of_pml(server, whole)
    over = {"schema": schema, "prompt": PROMPT}
    made = server.openai().chat.completions.create(**asked(server, over))
    assert made.choices[0].message.content == expected.text
    assert made.usage.prompt_tokens == expected.tokens["prompt"]
    other = server.anthropic().messages.create(**asked(server, over))
    assert other.content[0].text == expected.text
    body = asked(server, over)
    response = server.openai().responses.create(
        model=server.model, input="Where to?", max_output_tokens=12, extra_body=body["extra_body"]
    )
    assert response.output_text == expected.text
    assert response.usage.input_tokens == expected.tokens["prompt"]
    usage = other.usage
    total = usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens
    assert total == expected.tokens["prompt"]


def test_modules_are_read_in_any_order_and_counted(server: Served) -> None:
    stamp = str(time.time())
    schema = f"""<schema name="fresh"><user>
    <module name="a">{stamp} {LONG}</module>
    <module name="b">Second {stamp} {LONG}</module>
    </user></schema>"""
    layout = server.engine.schema(schema).layout()
    tokens = {one.path: one.tokens for one in layout.modules}

    def usage(prompt: str) -> Any:
        body = asked(server, {"schema": schema, "prompt": f'<prompt schema="fresh">{prompt}</prompt>'})
        body["max_tokens"] = 1
        return server.anthropic().messages.create(**body).usage

    first, other = usage("<a/><b/>"), usage("<b/><a/>")
    assert first.cache_creation_input_tokens >= tokens["a"] + tokens["b"] - 4
    assert first.cache_read_input_tokens <= layout.anonymous_tokens
    assert other.cache_creation_input_tokens == 0
    assert other.cache_read_input_tokens >= tokens["a"] + tokens["b"] - 4
    body = asked(server, {"schema": schema, "prompt": '<prompt schema="fresh"><b/><a/></prompt>'})
    details = server.openai().chat.completions.create(**body).usage.prompt_tokens_details
    assert details.cached_tokens >= other.cache_read_input_tokens
    assert details.cache_write_tokens == 0


def plan(server: Served, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    found = httpx.post(f"{server.url}/v1/prompt_cache/plan", json=body, headers=headers, timeout=60)
    assert found.status_code == 200, found.text
    told: dict[str, Any] = found.json()
    return told


@pytest.mark.parametrize("dialect", ["openai", pytest.param("anthropic", marks=pytest.mark.long)])
def test_a_plan_says_what_the_request_then_reads(tmp_path: Path, dialect: str) -> None:
    with served(tmp_path) as server:
        body = {
            "model": server.model,
            "messages": [{"role": "user", "content": LONG * 3}, {"role": "user", "content": "Well?"}],
            "prompt_cache": {"schema": SCHEMA, "prompt": PROMPT},
        }
        before = plan(server, {**body, "dialect": dialect})
        assert before["read"] == 0
        assert before["computed"] == before["total"] == sum(one["tokens"] for one in before["parts"])
        modules = {one["path"]: one for one in before["parts"] if one["kind"] == "module"}
        assert {(one["tier"], one["outcome"], one["reason"]) for one in modules.values()} == {
            ("none", "miss", "new")
        }
        assert plan(server, body)["read"] == 0, "planning computes nothing"
        for _ in range(2):
            told = plan(server, body)
            url = f"{server.url}/v1/chat/completions"
            usage = httpx.post(url, json={**body, "max_tokens": 1}, timeout=60).json()["usage"]
            assert usage["prompt_tokens"] == told["total"]
            assert usage["prompt_tokens_details"]["cached_tokens"] == told["read"]
        told = plan(server, body)
        assert told["total"] - told["read"] < 64
        positions = [(one["start"], one["start"] + one["tokens"]) for one in told["parts"]]
        assert positions[0][0] == 0
        assert all(one[1] == other[0] for one, other in pairwise(positions))
        assert {one["tier"] for one in told["parts"] if one["outcome"] == "hit"} == {"memory"}
    with served(tmp_path) as server:
        again = plan(server, body)
        assert {one["tier"] for one in again["parts"] if one["kind"] == "module"} == {"disk"}


def test_a_plan_of_a_conversation_knows_the_prefix_tree(server: Served) -> None:
    body = {"model": server.model, "messages": [{"role": "user", "content": f"{time.time()} {LONG * 2}"}]}
    before = plan(server, body)
    assert {one["reason"] for one in before["parts"]} == {"new text"}
    httpx.post(f"{server.url}/v1/chat/completions", json={**body, "max_tokens": 1}, timeout=60)
    after = plan(server, body)
    usage = httpx.post(f"{server.url}/v1/chat/completions", json={**body, "max_tokens": 1}, timeout=60).json()
    assert after["read"] == usage["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert plan(server, body, **{"anthropic-version": "2023-06-01"})["total"] == after["total"]


def test_a_plan_refuses_what_the_request_would_be_refused_for(server: Served) -> None:
    url = f"{server.url}/v1/prompt_cache/plan"
    hello = [{"role": "user", "content": "Hello"}]
    for body, status in (
        ({"model": server.model, "messages": hello, "dialect": "klingon"}, 400),
        ({"model": server.model, "messages": hello, "dialect": ["openai"]}, 400),
        ({"model": server.model, "messages": "x"}, 400),
        ({"model": "gpt-9", "messages": hello}, 404),
        ({"messages": hello}, 400),
        ({"model": server.model, "messages": hello, "prompt_cache": {"schema": "nobody"}}, 404),
        ({"model": server.model, "messages": hello, "cache_salt": 3}, 400),
        ([], 400),
    ):
        assert httpx.post(url, json=body).status_code == status, body
    bad = httpx.post(url, json={"model": server.model, "messages": [{"role": "user", "content": 3}]})
    assert bad.json()["error"]["param"] == "messages[0].content"


def test_residents_are_the_segments_in_memory(server: Served) -> None:
    server.openai().chat.completions.create(**asked(server, {"schema": "journey", "prompt": PROMPT}))
    told = httpx.get(f"{server.url}/v1/prompt_cache/residency").json()
    found = {one["key"]: one["bytes"] for one in told["segments"]}
    assert set(found) == server.engine.memory_tier.keys()
    assert all(size > 0 for size in found.values())
    schema = httpx.get(f"{server.url}{PATH}/journey").json()
    for one in schema["modules"]:
        if one["tier"] == "memory":
            assert found[one["key"]] == one["tokens"] * server.engine.model.bytes_per_token
    assert told["budget"] == server.engine.memory_tier.budget


@pytest.mark.parametrize(
    ("block", "param"),
    [
        ({"cache_control": {"type": "ephemeral"}}, "messages.0.content.0.cache_control"),
        ({"module": "a"}, "messages"),
    ],
)
def test_marks_and_names_are_for_conversations_without_a_schema(
    server: Served, block: dict[str, Any], param: str
) -> None:
    body = asked(server, {"schema": "journey"}, None)
    body["messages"] = [{"role": "user", "content": [{"type": "text", "text": LONG, **block}]}]
    with pytest.raises(anthropic.BadRequestError, match=param):
        server.anthropic().messages.create(**body)


def test_the_report_says_what_the_modules_that_were_read_had_taken(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        body = asked(server, {"schema": SCHEMA, "prompt": PROMPT})
        body["extra_body"]["include"] = ["prompt_cache"]
        first = server.openai().chat.completions.create(**body).prompt_cache
        assert first["saved_ms"] == 0, "nothing was read"
        assert {one["saved_ms"] for one in first["modules"]} == {None}
        body["messages"] = [{"role": "user", "content": "Something else?"}]
        told = server.openai().chat.completions.create(**body).prompt_cache
        schema = server.engine.schema(SCHEMA)
        keys = [recipe.key for recipe in schema.tokenized.encodings("anchored")]
        took = server.engine.store.seconds(keys)
        hits = [one for one in told["modules"] if one["outcome"] == "hit"]
        assert {one["path"] for one in hits} >= {"oslo", "rome"}
        assert all(one["saved_ms"] in [seconds * 1000 for seconds in took.values()] for one in hits)
        assert told["saved_ms"] == pytest.approx(sum(one["saved_ms"] for one in hits))
        chunks = [*server.openai().chat.completions.create(**body, stream=True)]
        assert {one["path"] for one in chunks[-1].prompt_cache["modules"]} >= {"oslo", "rome"}
        plain: dict[str, Any] = {**asked(server, {}), "extra_body": {"include": ["prompt_cache"]}}
        plain["messages"] = [{"role": "user", "content": LONG * 3}]
        first, second = (server.openai().chat.completions.create(**plain).prompt_cache for _ in range(2))
        assert first["saved_ms"] == 0
        assert 0 < second["saved_ms"] <= first["ttft_ms"], (
            "the beginning of a prompt takes a share of its time"
        )
