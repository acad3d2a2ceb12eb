"""What Prometheus is told: every request to /v1 by what it asked for and its status, under few labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.server.http.access import Access
from tests.app.server.raw import connect, eventually, hang_up, request
from tests.app.server.served import LONG, Served, served

DOCUMENT = (Path(__file__).parents[4] / "docs" / "server.md").read_text(encoding="utf-8")
SAID = [{"role": "user", "content": "Hello"}]
KEY = {"x-api-key": "key"}
Labels = tuple[str, str, str]


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("counting"), access=Access(("key",))) as running:
        yield running


def exposed(server: Served) -> str:
    return server.http.get("/metrics", headers=KEY).text


def counts(server: Served) -> dict[Labels, float]:
    """How often each status came, by path, dialect and status."""
    pattern = r'pml_responses_total\{dialect="(.*?)",path="(.*?)",status="(.*?)"\} (\S+)'
    found = re.findall(pattern, exposed(server))
    return {(path, dialect, status): float(number) for dialect, path, status, number in found}


def more(server: Served, before: dict[Labels, float]) -> dict[Labels, float]:
    """What has come since."""
    now = counts(server)
    return {one: number - before.get(one, 0) for one, number in now.items() if number != before.get(one, 0)}


def ask(server: Served, path: str, changes: Any = None, **given: Any) -> int:
    body = {"model": server.model, "messages": SAID, "max_tokens": 1, **(changes or {})}
    return server.http.post(path, json=body, **{"headers": KEY, **given}).status_code


def test_each_request_is_counted_by_its_status(counting: Served) -> None:
    before = counts(counting)
    chat, messages = "/v1/chat/completions", "/v1/messages"
    for path in (chat, messages, messages):
        assert ask(counting, path) == 200
    assert ask(counting, messages, {"max_tokens": "5"}) == 400
    assert ask(counting, messages, {"thinking": {"type": "enabled"}}) == 400
    assert ask(counting, chat, {"model": "x"}) == 404
    assert ask(counting, chat, headers={}) == 401
    assert counting.http.get(messages, headers=KEY).status_code == 405
    for name in ("a", "b", "a/b"):
        counting.http.get(f"/v1/models/{name}", headers={**KEY, "anthropic-version": "2023-06-01"})
        counting.http.delete(f"/v1/prompt_cache/schemas/{name}", headers=KEY)
        counting.http.get(f"/v1/{name}", headers=KEY)
    schema = "/v1/prompt_cache/schemas/{name}"
    wanted = {
        (chat, "openai", "200"): 1,
        (messages, "anthropic", "200"): 2,
        (messages, "anthropic", "400"): 2,
        (chat, "openai", "404"): 1,
        (chat, "openai", "401"): 1,
        (messages, "anthropic", "405"): 1,
        ("/v1/models/{name}", "anthropic", "404"): 3,
        (schema, "openai", "404"): 2,
        ("other", "openai", "404"): 4,
    }
    eventually(lambda: more(counting, before) == wanted, f"{more(counting, before)} is {wanted}")


def test_there_are_no_paths_but_those_of_the_description(counting: Served) -> None:
    for number in range(50):
        counting.http.get(f"/v1/nothing{number}", headers=KEY)
    known = {*counting.http.get("/v1/openapi.json", headers=KEY).json()["paths"]} | {
        "/v1/openapi.json",
        "other",
    }
    assert {path for path, _, _ in counts(counting)} <= known


def test_who_goes_before_an_answer_has_no_status(counting: Served) -> None:
    before = counts(counting)
    body = {"model": counting.model, "messages": [{"role": "user", "content": LONG}], "max_tokens": 1500}
    line = connect(counting.url)
    sent = request("/v1/chat/completions", body)
    line.sendall(sent.replace(b"\r\n\r\n", b"\r\nx-api-key: key\r\n\r\n", 1))
    eventually(lambda: counting.service.inside == 1, "it is taken in")
    hang_up(line, rudely=False)
    wanted = {("/v1/chat/completions", "openai", "none"): 1}
    eventually(lambda: more(counting, before) == wanted, "it is counted")


def test_each_figure_says_what_it_counts_and_the_page_names_it(counting: Served) -> None:
    text = exposed(counting)
    helps = dict(re.findall(r"# HELP (\w+) (.*)", text))
    figures = {name: words for name, words in helps.items() if not name.endswith("_created")}
    for name in figures:
        assert f"`{name}" in DOCUMENT, name
    for outcome in ("done", "ended"):
        assert re.search(rf"\b{outcome}\b", figures["pml_requests_total"])
