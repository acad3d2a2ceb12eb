"""The latest requests over HTTP and by `pml why`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from app.server.http.access import Access
from tests.app.server.recent.test_reasons import RULES, ask
from tests.app.server.served import Served, served

Pml = Callable[..., SimpleNamespace]
PATH = "/v1/prompt_cache/requests"


def test_requests_are_listed_and_explained(server: Served) -> None:
    made = ask(server, f"At noon. {RULES}", "One?")
    again = server.http.post(
        "/v1/messages",
        json={"model": "alias", "max_tokens": 1, "system": f"At one. {RULES}", "messages": [USER]},
    )
    listed = server.http.get(PATH, params={"page_size": 2}).json()["requests"]
    assert [one["id"] for one in listed] == [again.json()["id"], made["id"]]
    for name in (listed[0]["id"], again.headers["x-request-id"]):
        told = server.http.get(f"{PATH}/{name}").json()
        assert told == listed[0]
        assert (told["why"]["reason"], told["why"]["block"]) == ("changed", "turn 1 (system)")
    assert listed[1]["read"] == made["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert server.http.get(f"{PATH}/chatcmpl-none").status_code == 404


def test_clients_with_keys_see_their_own_requests(tmp_path: Path) -> None:
    with served(tmp_path, access=Access(("one", "two")), keyed=True) as server:
        keys = [{"authorization": f"Bearer {key}"} for key in ("one", "two")]
        body = {"model": "alias", "max_tokens": 1, "messages": [USER]}
        made = server.http.post("/v1/chat/completions", json=body, headers=keys[0]).json()
        own, others = (server.http.get(PATH, headers=key).json()["requests"] for key in keys)
        assert [one["id"] for one in own] == [made["id"]]
        assert others == []


def test_a_command_explains_a_request(server: Served, run_pml: Pml) -> None:
    ask(server, f"At two. {RULES}", "One?")
    made = ask(server, f"At six. {RULES}", "One?")
    told = run_pml("why", made["id"], "--url", server.url).out
    assert "in turn 1 (system)" in told
    assert "At six" in told
    listed = run_pml("why", "--url", f"{server.url}/v1", "--latest", "1").out
    assert made["id"] in listed
    assert "changed in turn 1 (system)" in listed
    found = json.loads(run_pml("why", made["id"], "--url", server.url, "--json").out)
    assert found["why"]["compared_with"]
    refused = run_pml("why", "chatcmpl-none", "--url", server.url)
    assert (refused.status, "no recent request" in refused.err) == (1, True)
    assert "No server answers" in run_pml("why", "--url", "http://127.0.0.1:9").err


USER = {"role": "user", "content": "Hello"}
