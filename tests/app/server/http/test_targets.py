"""A request may name a whole URL, as those through proxies do: its host counts, and its path is asked for."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any

import pytest

from app.server.http.absolute_urls import in_origin_form
from app.studio.model.api import Api, Offer
from tests.app.server.raw import connect
from tests.app.server.served import Served

SAID = [{"role": "user", "content": "Hello"}]


def ask(
    server: Served, target: str, *, host: str = "localhost", body: Any = None
) -> tuple[int, str | None, Any]:
    """Sends a request with a target as it is; returns status, id and body of its answer."""
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{'GET' if body is None else 'POST'} {target} HTTP/1.1\r\nHost: {host}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    with connect(server.url) as line:
        line.sendall(head.encode() + data)
        answer = http.client.HTTPResponse(line)
        answer.begin()
        return answer.status, answer.headers["request-id"], json.loads(answer.read())


def test_a_url_is_asked_for_as_its_path(server: Served) -> None:
    body = {"model": server.model, "messages": SAID}
    path = "/v1/messages/count_tokens"
    plain = ask(server, path, body=body)
    for url in (server.url, server.url.upper(), "http://localhost", "https://127.0.0.1:1"):
        status, request_id, told = ask(server, url + path, body=body)
        assert (status, told) == (200, plain[2])
        assert (request_id or "").startswith("req_")
    assert (
        ask(server, f"{server.url}/v1/prompt_cache/schemas?page_size=x")[2]["error"]["param"] == "page_size"
    )
    assert ask(server, f"{server.url}/health")[2] == {"status": "ok"}


def test_the_host_of_the_url_counts_and_not_the_header(server: Served) -> None:
    for url in ("http://evil.example", "http://user@localhost", "http://"):
        status, request_id, told = ask(server, f"{url}/v1/models")
        assert (status, told["error"]["code"]) == (403, "forbidden")
        assert (request_id or "").startswith("req_")
    assert ask(server, f"{server.url}/v1/models", host="evil.example")[0] == 200
    assert ask(server, "/v1/models", host="evil.example")[0] == 403


def test_where_a_url_leads_nowhere_is_told_with_an_id(server: Served) -> None:
    status, request_id, told = ask(server, f"{server.url}/v1/nothing%20here")
    assert status == 404
    assert told["error"]["message"].startswith("There is no endpoint /v1/nothing here. ")
    assert (request_id or "").startswith("req_")


@pytest.mark.parametrize("target", [b"/v1/http://x", b"*", b"", b"/", b"ftp://x/y"])
def test_what_is_no_url_stays_as_it_is(target: bytes) -> None:
    scope = {"type": "http", "path": target.decode(), "raw_path": target, "headers": [(b"host", b"a")]}
    assert in_origin_form(scope) is scope
    assert in_origin_form({"type": "lifespan"}) == {"type": "lifespan"}


def test_beside_the_page_a_url_is_told_apart_by_its_path() -> None:
    asked: list[Any] = []
    answered: list[Any] = []

    async def page(scope: Any, *_: Any) -> None:
        asked.append((scope["path"], dict(scope["headers"])[b"host"]))

    async def send(message: Any) -> None:
        answered.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    api = Api(Offer())
    api.build()
    for path in ("/a", "/health", "/chat/completions", "//v1/chat/completions", "/V1/messages"):
        scope = {
            "type": "http",
            "method": "GET",
            "query_string": b"",
            "path": f"http://localhost{path}",
            "raw_path": f"http://localhost{path}".encode(),
            "headers": [(b"host", b"elsewhere")],
        }
        asyncio.run(_through(api.beside(page), scope, receive, send))
    assert asked == [("/a", b"localhost")]
    told = [json.loads(one["body"]) for one in answered if one["type"] == "http.response.body"]
    assert told[0] == {"status": "loading"}
    meant = ["/v1/chat/completions", "/v1/chat/completions", "/v1/messages"]
    for one, path in zip(told[1:], meant, strict=True):
        assert f"Use POST {path}." in one["error"]["message"]


async def _through(app: Any, *given: Any) -> None:
    await app(*given)
