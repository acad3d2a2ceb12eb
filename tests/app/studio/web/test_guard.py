"""Requests of other web pages are refused; the studio's own and those from outside a browser pass."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.studio.web.guard import CONTENT_POLICY, LARGEST_BODY, Guard
from tests.app.studio.studio_server import Served

HOSTS = frozenset({"127.0.0.1", "localhost"})


async def answering(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"fine"})


def ask(headers: dict[str, str], kind: str = "http", method: str = "GET", path: str = "/") -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": kind, "method": method, "path": path, "headers": raw}
    asyncio.run(Guard(answering, HOSTS, "/own")(scope, receive, send))
    return sent


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:7860"},
        {"host": "localhost:7860"},
        {"host": "127.0.0.1:7860", "origin": "http://127.0.0.1:7860", "sec-fetch-site": "same-origin"},
        {"host": "127.0.0.1:7860", "sec-fetch-site": "none"},
    ],
)
def test_own_requests_pass(headers: dict[str, str]) -> None:
    start = ask(headers)[0]
    assert start["status"] == 200
    assert (b"content-security-policy", CONTENT_POLICY.encode()) in start["headers"]
    assert (b"x-frame-options", b"DENY") in start["headers"]


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:7860", "origin": "http://evil.example:7860"},
        {"host": "127.0.0.1.evil.example:7860"},
        {"host": "127.0.0.1:7860@evil.example"},
        {"host": "127.0.0.1:evil.example"},
        {"host": "127.0.0.1:7860:7860"},
        {"host": "127.0.0.1:٧٨٦٠"},
        {"host": "127.0.0.1:7860\n"},
        {"host": "evil.example@127.0.0.1:7860"},
        {"host": "[127.0.0.1]:7860"},
        {"host": ""},
        {"host": "127.0.0.1:7860", "origin": "http://127.0.0.1:9999"},
        {"host": "127.0.0.1:7860", "origin": "https://127.0.0.1:7860"},
        {"host": "127.0.0.1:7860", "origin": "http://localhost:7860"},
        {"host": "127.0.0.1:7860", "origin": "null"},
        {"host": "127.0.0.1:7860", "sec-fetch-site": "same-site"},
        {"host": "127.0.0.1:7860", "sec-fetch-site": "cross-site"},
        {},
    ],
)
def test_foreign_requests_are_refused(headers: dict[str, str]) -> None:
    start, body = ask(headers)
    assert start["status"] == 403
    assert b"Refused" in body["body"]


def test_foreign_websockets_are_closed() -> None:
    assert ask({"host": "127.0.0.1:7860", "origin": "http://evil.example"}, "websocket") == [
        {"type": "websocket.close", "code": 1008}
    ]


LINK = {
    "host": "127.0.0.1:7860",
    "sec-fetch-site": "cross-site",
    "sec-fetch-mode": "navigate",
    "sec-fetch-dest": "document",
}


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_elsewhere_opens_the_page_and_only_there(site: str) -> None:
    link = {**LINK, "sec-fetch-site": site}
    start = ask(link)[0]
    assert start["status"] == 200
    assert (b"x-frame-options", b"DENY") in start["headers"]
    assert (b"cross-origin-opener-policy", b"same-origin") in start["headers"]
    assert ask(link, path="/theme.css")[0]["status"] == 403
    assert ask(link, path="/work")[0]["status"] == 403
    for method in ("POST", "HEAD", "PUT"):
        assert ask(link, method=method)[0]["status"] == 403
    for changed in (
        {"sec-fetch-dest": "iframe"},
        {"sec-fetch-dest": "script"},
        {"sec-fetch-mode": "no-cors"},
        {"sec-fetch-mode": "cors"},
        {"origin": "http://evil.example"},
        {"host": "evil.example"},
    ):
        assert ask({**link, **changed})[0]["status"] == 403, changed


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        *(
            ("GET", "/", 200),
            ("HEAD", "/", 200),
            ("GET", "/own/studio.js", 200),
            ("GET", "/assets/a.js", 200),
        ),
        *(("GET", "/alive", 200), ("GET", "/gradio_api/upload", 404), ("POST", "/", 404)),
        *(("GET", "/work", 200), ("POST", "/work", 404), ("GET", "/gradio_api/queue/data", 404)),
        *(("GET", "/own/../../secret", 404), ("GET", "/own", 404), ("GET", "/ownother/a", 404)),
        *(("PUT", "/", 404), ("OPTIONS", "/", 404), ("GET", "//alive", 404)),
    ],
)
def test_only_what_the_page_needs_is_served(method: str, path: str, status: int) -> None:
    assert ask({"host": "localhost"}, method=method, path=path)[0]["status"] == status


def test_websockets_are_not_served() -> None:
    assert ask({"host": "127.0.0.1:7860"}, "websocket")[0]["type"] == "websocket.close"


def test_every_route_of_gradio_is_closed_but_those_of_the_list(served: Served) -> None:
    import gradio.routes

    source = Path(gradio.routes.__file__).read_text(encoding="utf-8")
    found = re.findall(r'@(app|router)\.(get|post|put|delete|head)\(\s*f?"([^"{]*)', source)
    asked = {(verb.upper(), ("/gradio_api" if host == "router" else "") + path) for host, verb, path in found}
    asked |= {
        ("GET", path) for path in ("/docs", "/redoc", "/openapi.json", "/config", "/gradio_api/openapi.json")
    }
    assert ("POST", "/gradio_api/upload") in asked
    assert len(asked) > 50
    open_paths = {
        (method, path)
        for method, path in asked
        if served.send(method, path, headers={"content-type": "application/json"}).status != 404
    }
    assert open_paths <= {
        *(("GET", "/"), ("HEAD", "/"), ("GET", "/theme.css"), ("GET", "/static/"), ("GET", "/assets/")),
        *(("GET", "/gradio_api/startup-events"), ("GET", "/favicon.ico")),
        *(("POST", "/gradio_api/component_server"), ("POST", "/gradio_api/component_server/")),
    }


def test_an_upload_is_refused_unread(served: Served) -> None:
    form = {"content-type": "multipart/form-data; boundary=x"}
    assert served.send("POST", "/gradio_api/upload", b"--x--", form).status == 404
    assert served.send("POST", "/gradio_api/component_server/", b"--x--", form).status == 415


class Endless:
    """A body that never ends, and counts how much of it was taken."""

    taken = 0

    def __iter__(self) -> Iterator[bytes]:
        while self.taken < 4 * LARGEST_BODY:
            self.taken += 1 << 20
            yield b" " * (1 << 20)


def test_a_body_is_bounded_before_it_is_read() -> None:
    json_type = {"host": "localhost", "content-type": "application/json"}
    path = "/gradio_api/component_server/"
    announced = {**json_type, "content-length": str(LARGEST_BODY + 1)}
    assert ask(announced, method="POST", path=path)[0]["status"] == 413
    for odd in ("-1", "x", "9" * 5000):
        assert ask({**json_type, "content-length": odd}, method="POST", path=path)[0]["status"] == 413


def test_a_body_of_unknown_length_is_bounded_while_it_is_read() -> None:
    sent: list[Any] = []
    body = iter(Endless())
    taken = 0

    async def reading(_scope: Any, receive: Any, send: Any) -> None:
        try:
            while (await receive()).get("more_body"):
                pass
        except Exception:  # as web frameworks do
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b"broken"})

    async def receive() -> Any:
        nonlocal taken
        piece = next(body)
        taken += len(piece)
        return {"type": "http.request", "body": piece, "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/gradio_api/component_server", "headers": headers}
    asyncio.run(Guard(reading, HOSTS, "/own")(scope, receive, send))
    assert [message.get("status") for message in sent] == [413, None]
    assert taken <= LARGEST_BODY + (1 << 20)


def test_a_large_body_over_the_network_is_refused(served: Served) -> None:
    headers = {"content-type": "application/json", "content-length": str(LARGEST_BODY + 1)}
    assert served.send("POST", "/gradio_api/component_server/", b"{", headers).status == 413


def test_the_policy_names_no_other_host() -> None:
    assert "http" not in CONTENT_POLICY
    assert "*" not in CONTENT_POLICY


def test_a_person_at_a_wrong_address_gets_a_link_home() -> None:
    own = {"host": "127.0.0.1:7860", "sec-fetch-site": "none"}
    start, body = ask({**own, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, path="/nothing")
    assert start["status"] == 404
    assert (b"content-type", b"text/html; charset=utf-8") in start["headers"]
    assert b'The studio has no page of this name. Its page is at /. <a href="/">' in body["body"]
    start, body = ask(own, path="/nothing")
    assert (start["status"], body["body"]) == (
        404,
        b"The studio has no page of this name. Its page is at /.\n",
    )
