"""Requests that no endpoint answers: each is told which one is meant, or what is not offered and what is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from app.server.http.access import Access
from tests.app.server.served import Served, served
from tests.drawing import EVERY

CHAT = "POST /v1/chat/completions"
ANTHROPIC = {"anthropic-version": "2023-06-01"}
CALL = re.compile(
    r"self\._(get|post|put|patch|delete|get_api_list)\(\s*(?:path_template\(\s*)?\"(/[^\"?]*)", re.DOTALL
)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/chat/completions", CHAT),
        ("/v1/v1/chat/completions", CHAT),
        ("//v1/chat/completions", CHAT),
        ("/v1//chat/completions", CHAT),
        ("/v1/chat/completions//", CHAT),
        ("/V1/Chat/Completions", CHAT),
        ("/v1/chat/completion", CHAT),
        ("/v1/chat/", CHAT),
        ("/v1/chat-completions", CHAT),
        ("/api/v1/chat/completions", CHAT),
        ("/openai/deployments/demo/chat/completions", CHAT),
        ("/completions", "POST /v1/completions"),
        ("/v1/completion", "POST /v1/completions"),
        ("/v1/v1/messages", "POST /v1/messages"),
        ("/messages", "POST /v1/messages"),
        ("/v1/message", "POST /v1/messages"),
        ("/v1/messages/count_token", "POST /v1/messages/count_tokens"),
        ("/v1/count_tokens", "POST /v1/messages/count_tokens"),
        ("/v1/response", "POST /v1/responses"),
        ("/responses/input_tokens", "POST /v1/responses/input_tokens"),
        ("/models", "GET /v1/models"),
        ("/v1/v1/models/Demo", "GET /v1/models/Demo"),
        ("/MODELS/Demo", "GET /v1/models/Demo"),
        ("/v1/prompt-cache/plan", "POST /v1/prompt_cache/plan"),
        ("/v1/prompt_cache/Schemas/A", "/v1/prompt_cache/schemas/A"),
        ("/v1/health", "GET /health"),
        ("/Metrics", "GET /metrics"),
    ],
)
@pytest.mark.parametrize("method", ["POST", *(["GET", "PUT"] if EVERY else [])])
def test_a_wrong_path_is_told_the_one_that_is_meant(
    server: Served, path: str, meant: str, method: str
) -> None:
    found = server.http.request(method, server.url + path, json={})
    assert found.status_code == 404, found.text
    assert found.headers["x-request-id"].startswith("req_")
    message = found.json()["error"]["message"]
    assert path.rstrip("/") in message
    assert re.search(rf"{re.escape(meant)}[.?]( |$)", message), message


def test_base_urls_are_told_where_the_beginning_is_wrong(server: Served) -> None:
    for base, client in ((server.url, "openai"), (f"{server.url}/v1", "anthropic")):
        said: Any = [{"role": "user", "content": "Hello"}]
        error: Any
        if client == "openai":
            with pytest.raises(openai.NotFoundError) as ours:
                server.openai(base_url=base).chat.completions.create(model=server.model, messages=said)
            error = ours.value
        else:
            messages = server.anthropic(base_url=base).messages
            with pytest.raises(anthropic.NotFoundError) as theirs:
                messages.create(model=server.model, messages=said, max_tokens=1)
            error = theirs.value
        assert "OpenAI's clients ends in /v1, and that of Anthropic's clients does not" in str(error)
    assert "base URL" not in server.http.post("/V1/messages").text


def test_a_slash_at_the_end_changes_nothing(server: Served) -> None:
    body = {
        "model": server.model,
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 3,
        "temperature": 0,
    }
    for path in ("/v1/chat/completions", "/v1/messages"):
        with_slash, without = (server.http.post(path + end, json=body).json() for end in ("/", ""))
        assert {*with_slash} == {*without}
        assert "error" not in with_slash
    assert server.http.get("/v1/models/").json() == server.http.get("/v1/models").json()


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/messages", "POST"),
        ("PUT", "/v1/chat/completions", "POST"),
        ("GET", "/v1/responses/input_tokens", "POST"),
        ("DELETE", "/v1/responses/input_tokens", "POST"),
        ("POST", "/v1/models", "GET"),
        ("DELETE", "/v1/models/demo", "GET"),
        ("PATCH", "/v1/responses/resp_1", "DELETE, GET"),
        ("POST", "/v1/prompt_cache/schemas/a", "DELETE, GET, PATCH, PUT"),
        ("POST", "/health", "GET"),
    ],
)
def test_a_wrong_method_is_told_those_that_there_are(
    server: Served, method: str, path: str, allowed: str
) -> None:
    for headers in ({}, ANTHROPIC):
        found = server.http.request(method, path, headers=headers)
        assert (found.status_code, found.headers["allow"]) == (405, allowed)
        message = found.json()["error"]["message"]
        assert method in message
        assert path in message
        assert re.search(r"[Uu]se |[Ss]end |Choose ", message)


def calls(package: Any) -> Iterator[tuple[str, str]]:
    """Every request that a vendor's client can send, by method and path."""
    folder = Path(package.__file__).parent / "resources"
    for file in sorted(folder.rglob("*.py")):
        for method, path in CALL.findall(file.read_text(encoding="utf-8")):
            filled = re.sub(r"\{\w+\}", "some_1", path)
            yield method.replace("get_api_list", "get").upper(), "/v1" + filled.removeprefix("/v1")


@pytest.mark.parametrize(("package", "headers"), [(openai, {}), (anthropic, ANTHROPIC)])
def test_what_else_the_vendors_clients_can_ask_is_answered_in_words(
    server: Served, package: Any, headers: dict[str, str]
) -> None:
    asked = {*calls(package)}
    assert len(asked) > 50
    guessed = []
    for method, path in sorted(asked):
        found = server.http.request(method, path, headers=headers)
        if found.status_code in (200, 400):  # an endpoint; an empty body is refused
            continue
        assert found.status_code in (404, 405), (method, path)
        told = found.json()
        assert ("request_id" in told) == bool(headers)
        message = told["error"]["message"]
        assert re.search(r"(GET|POST|PUT) /v1/|pml serve|no model", message), message
        if "Did you mean" in message or "There is no endpoint" in message:
            guessed.append((path, message))
    assert all("Did you mean" not in message for _, message in guessed), guessed


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "/v1/chat/completions", "stores no chat completions"),
        ("GET", "/v1/chat/completions/chatcmpl-1", "stores no chat completions"),
        ("POST", "/v1/responses/compact", "shortens no conversations"),
        ("POST", "/v1/messages/batches", "runs no batches"),
        ("POST", "/v1/batches", "runs no batches"),
        ("POST", "/v1/moderations", "does not moderate texts"),
        ("GET", "/v1/files", "stores no files"),
        ("POST", "/v1/images/generations", "text only"),
        ("POST", "/v1/conversations", "stores no conversations"),
        ("DELETE", "/v1/models/demo", "cannot change the model"),
        ("POST", "/v1/complete", "POST /v1/messages"),
    ],
)
def test_what_is_not_offered_is_said(server: Served, method: str, path: str, words: str) -> None:
    message = server.http.request(method, path).json()["error"]["message"]
    assert message.startswith(f"{method} {path} is not offered. ")
    assert words in message


def test_a_wrong_path_needs_a_key_too(tmp_path: Path) -> None:
    with served(tmp_path, access=Access(keys=("right",))) as server:
        assert server.http.post("/chat/completions").status_code == 401
        assert server.http.post("/chat/completions", headers={"x-api-key": "right"}).status_code == 404


HOSTS = {
    "host.docker.internal:8000": "host.docker.internal",
    "Workstation.local": "workstation.local",
    "192.168.1.20:8123": "192.168.1.20",
    "[fe80::1]:8000": "[fe80::1]",
    "prompt_cache": "prompt_cache",
}


def test_a_foreign_name_is_told_the_option_that_allows_it(server: Served, tmp_path: Path) -> None:
    for host, name in HOSTS.items():
        for headers in ({}, ANTHROPIC):
            refused = server.http.get("/v1/models", headers={"host": host, **headers})
            assert refused.status_code == 403
            message = refused.json()["error"]["message"]
            assert f"`pml serve --allowed-host {name}`" in message
            assert f"'{host}'" in message
    with served(tmp_path, access=Access(hosts=frozenset(HOSTS.values()))) as allowing:
        for host in HOSTS:
            assert allowing.http.get("/v1/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["a b", "user@localhost", "localhost;rm", "x" * 300, "`x`"])
def test_what_is_no_name_is_not_put_into_a_command(server: Served, host: str) -> None:
    refused = server.http.get("/v1/models", headers={"host": host})
    assert refused.status_code == 403
    assert "--allowed-host" not in refused.text
