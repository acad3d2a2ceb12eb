"""Every row of the table of errors, as the vendors' own classes; places, keys, and sizes."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from app.server.core.service import Limits
from app.server.http.access import Access
from engine.batch.loop import BatchLoop
from tests.app.server.served import Served, served
from tests.drawing import EVERY

HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"extra_body": {"typical_p": 0.5}}, "typical_p"),
        ({"extra_body": {"echo": True}}, "echo"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"extra_body": {"min_tokens": 1}}, "min_tokens"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0].type",
        ),
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(server: Served, changes: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        server.openai().chat.completions.create(**{"model": server.model, "messages": HELLO, **changes})
    assert (error.value.code, error.value.param) == ("unsupported_parameter", param)
    assert error.value.request_id


@pytest.mark.parametrize(
    ("path", "changes", "words"),
    [
        ("chat/completions", {"system": "Be brief."}, "system is not supported here: send it as a message"),
        ("chat/completions", {"instructions": "Be brief."}, "a message of the role system"),
        ("chat/completions", {"stop_sequences": ["x"]}, "it is called stop here"),
        ("chat/completions", {"max_output_tokens": 2}, "called max_tokens or max_completion_tokens here"),
        ("chat/completions", {"input": "Hello"}, "it is called messages here"),
        ("chat/completions", {"thinking": {"type": "enabled", "budget_tokens": 1024}}, "template decides"),
        ("completions", {"max_completion_tokens": 2}, "it is called max_tokens here"),
        ("completions", {"messages": HELLO}, "it is called prompt here"),
        ("completions", {"top_logprobs": 2}, "top_logprobs is not supported here"),
        ("responses", {"max_tokens": 2}, "it is called max_output_tokens here"),
        ("responses", {"messages": HELLO}, "it is called input here"),
        ("responses", {"system": "Be brief."}, "it is called instructions here"),
        ("messages", {"stop": ["x"]}, "it is called stop_sequences here"),
        ("messages", {"n_predict": 2}, "it is called max_tokens here"),
        ("messages", {"instructions": "Be brief."}, "it is called system here"),
        ("messages/count_tokens", {"instructions": "Be brief."}, "it is called system here"),
        ("chat/completions", {"repeat_penalty": 1.1}, "use repetition_penalty"),
        ("messages", {"repeat_penalty": 1.1}, "use repetition_penalty"),
        ("completions", {"include_stop_str_in_output": True}, "include_stop_str_in_output is not"),
        ("chat/completions", {"options": {"num_ctx": 4096}}, "fields of the request itself"),
    ],
)
def test_a_field_of_another_endpoint_or_server_is_refused_with_its_name_here(
    server: Served, path: str, changes: Any, words: str
) -> None:
    text = {"completions": {"prompt": "Hello"}, "responses": {"input": "Hello"}}
    own = text.get(path, {"messages": HELLO})
    least = {"max_tokens": 2} if path == "messages" else {}
    made = httpx.post(f"{server.url}/v1/{path}", json={"model": server.model, **own, **least, **changes})
    assert made.status_code == 400
    assert words in made.json()["error"]["message"]
    if EVERY or path == "messages":
        asked = {"model": server.model, **own, **least, **dict.fromkeys(changes)}
        assert httpx.post(f"{server.url}/v1/{path}", json=asked).status_code == 200


def test_what_asks_for_nothing_is_let_pass(server: Served) -> None:
    made = server.openai().chat.completions.create(
        model=server.model,
        messages=HELLO,
        max_tokens=1,
        n=1,
        logprobs=False,
        frequency_penalty=0,
        presence_penalty=0.0,
        user="me",
        response_format={"type": "text"},
        metadata={"a": "b"},
        store=True,
        service_tier="auto",
        stream_options=None,
        parallel_tool_calls=True,
        tools=[],
        extra_body={
            **dict.fromkeys(("min_p", "min_tokens", "mirostat"), 0),
            **dict.fromkeys(("typical_p", "length_penalty", "repeat_penalty", "tfs_z"), 1.0),
            "options": {},
            "json_schema": {},
            **dict.fromkeys(("skip_special_tokens", "cache_prompt"), True),
            "instructions": "",
            "stop_sequences": [],
        },
    )
    assert made.choices


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"temperature": 11}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "oracle", "content": "x"}]}, "messages[0].role"),
        ({"messages": "x"}, "messages"),
    ],
)
def test_what_is_out_of_range_is_named(server: Served, changes: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        server.openai().chat.completions.create(**{"model": server.model, "messages": HELLO, **changes})
    assert error.value.param == param


def test_keys_are_needed_everywhere_but_for_health(tmp_path: Path) -> None:
    with served(tmp_path, access=Access(keys=("right", "other"))) as server:
        assert httpx.get(f"{server.url}/health").status_code == 200
        for path in ("/metrics", "/v1/models"):
            assert httpx.get(server.url + path).status_code == 401
            assert httpx.get(server.url + path, headers={"x-api-key": "other"}).status_code == 200
        with pytest.raises(openai.AuthenticationError) as error:
            server.openai(api_key="wrong").chat.completions.create(model=server.model, messages=HELLO)
        assert error.value.code == "invalid_api_key"
        with pytest.raises(anthropic.AuthenticationError):
            server.anthropic(api_key="wrong").messages.create(
                model=server.model, messages=HELLO, max_tokens=1
            )
        made = server.openai(api_key="right").chat.completions.create(
            model=server.model, messages=HELLO, max_tokens=1
        )
        assert made.choices


def test_a_key_may_be_of_any_letters(tmp_path: Path) -> None:
    keys = ("schlüssel", "ключ", "鍵🔑", "à", "plain")
    with served(tmp_path, access=Access(keys=keys)) as server:
        url = f"{server.url}/v1/models"
        for header, before in ((b"x-api-key", b""), (b"authorization", b"Bearer ")):
            for key in keys:
                assert httpx.get(url, headers=[(header, before + key.encode())]).status_code == 200
                assert httpx.get(url, headers=[(header, before + key.encode() + b"\xe9")]).status_code == 401
            latin = before + "schlüssel".encode("latin-1")  # as some clients write it
            assert httpx.get(url, headers=[(header, latin)]).status_code == 200


def test_foreign_hosts_and_pages_are_refused(tmp_path: Path) -> None:
    ours = "http://localhost:3000"
    with served(tmp_path, access=Access(origins=frozenset({ours}))) as server:
        url = f"{server.url}/v1/models"
        assert httpx.get(url, headers={"host": "evil.example"}).status_code == 403
        assert httpx.get(url, headers={"origin": "https://evil.example"}).status_code == 403
        assert httpx.get(url, headers={"sec-fetch-site": "cross-site"}).status_code == 403
        allowed = httpx.get(url, headers={"origin": ours})
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, ours)
        asked = {
            "origin": ours,
            "access-control-request-method": "POST",
            "access-control-request-headers": "x-api-key",
        }
        asked["access-control-request-private-network"] = "true"
        allowed = httpx.options(f"{server.url}/v1/messages", headers=asked)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-private-network"] == "true"


def test_a_page_that_is_allowed_can_read_every_refusal(tmp_path: Path) -> None:
    ours = "http://localhost:3000"
    access = Access(("right",), origins=frozenset({ours}), largest=1000)
    with served(tmp_path, access=access) as server:
        head = {"origin": ours, "x-api-key": "right"}
        refused = [
            httpx.get(f"{server.url}/v1/models", headers={"origin": ours}),
            httpx.get(f"{server.url}/v1/models", headers={**head, "host": "evil.example"}),
            httpx.post(f"{server.url}/v1/messages", headers=head, json={"model": "x" * 2000}),
            httpx.post(f"{server.url}/v1/messages", headers=head, json={}),
            httpx.get(f"{server.url}/nothing/there", headers=head),
        ]
        assert [one.status_code for one in refused] == [401, 403, 413, 400, 404]
        assert [one.headers.get("access-control-allow-origin") for one in refused] == [ours] * 5


def test_without_an_origin_that_is_allowed_there_is_no_cors(server: Served) -> None:
    answer = httpx.get(f"{server.url}/v1/models", headers={"origin": server.url})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers
    asked = {"origin": "http://localhost:3000", "access-control-request-method": "POST"}
    assert httpx.options(f"{server.url}/v1/messages", headers=asked).status_code == 403


def test_a_body_that_is_too_large_is_refused_unread(server: Served) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        head = "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        line.sendall(f"{head}Content-Length: 33000000\r\n\r\n".encode())
        told = http.client.HTTPResponse(line)
        told.begin()  # without a byte of the body
        assert (told.status, json.loads(told.read())["error"]["type"]) == (413, "request_too_large")

    def endless() -> Any:
        for _ in range(40):
            yield b" " * 1_000_000

    try:
        found = httpx.post(
            f"{server.url}/v1/chat/completions",
            content=endless(),
            headers={"content-type": "application/json"},
        )
    except httpx.WriteError:  # the server has hung up in the midst of it
        return
    assert found.status_code == 413


def test_requests_beyond_the_queue_are_refused_and_the_others_answered(tmp_path: Path) -> None:
    may_end = threading.Event()

    def held(_: Any) -> None:
        may_end.wait(60)

    async def ask(server: Served) -> list[httpx.Response]:
        async with httpx.AsyncClient(timeout=120) as client:
            body = {"model": server.model, "messages": HELLO, "max_tokens": 3}
            path = f"{server.url}/v1/chat/completions"
            made = [asyncio.ensure_future(client.post(path, json=body)) for _ in range(40)]
            while sum(one.done() for one in made) < 28:
                await asyncio.sleep(0.01)
            may_end.set()
            return await asyncio.gather(*made)

    with served(tmp_path, limits=Limits(parallel=2, waiting=10)) as server:
        answerer = server.engine.answerer
        assert isinstance(answerer, BatchLoop)
        answerer.watcher = held
        found = asyncio.run(ask(server))
        assert sorted(one.status_code for one in found) == [200] * 12 + [429] * 28
        assert {one.headers.get("retry-after") for one in found if one.status_code == 429} == {"1"}
        assert server.service.inside == 0
        text = httpx.get(f"{server.url}/metrics").text
        assert "pml_requests_refused_total 28.0" in text
        assert "pml_requests_inside 0.0" in text
