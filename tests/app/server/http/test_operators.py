"""What is one for all clients: the operator's alone, where clients are apart or there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from app.server.http.access import Access
from tests.app.server.served import served

OF_ALL = ("/metrics", "/v1/prompt_cache/residency")
KEYS = ("one", "two")


def asked(url: str, key: str, **more: Any) -> httpx.Response:
    return httpx.get(url, headers={"authorization": f"Bearer {key}", **more})


@pytest.mark.parametrize("isolate", [True, pytest.param(False, marks=pytest.mark.long)])
def test_an_operators_key_opens_what_is_one_for_all_and_nothing_else(tmp_path: Path, isolate: bool) -> None:
    with served(tmp_path, access=Access(KEYS, operators=("ops",)), isolate=isolate) as server:
        body = {"model": server.model, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}
        path = f"{server.url}/v1/chat/completions"
        assert httpx.post(path, json=body, headers={"x-api-key": "one"}).status_code == 200
        for one in OF_ALL:
            assert asked(server.url + one, "ops").status_code == 200
            refused = asked(server.url + one, "one")
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
            assert "PML_OPERATOR_KEYS" in refused.json()["error"]["message"]
            assert asked(server.url + one, "wrong").status_code == 401
        assert "pml_requests_total" in asked(f"{server.url}/metrics", "ops").text
        assert asked(server.url + OF_ALL[1], "ops").json()["segments"]
        assert asked(f"{server.url}/v1/models", "ops").status_code == 401
        assert httpx.post(path, json=body, headers={"x-api-key": "ops"}).status_code == 401


def test_nobody_sees_what_is_of_all_where_clients_are_apart(tmp_path: Path) -> None:
    with served(tmp_path, access=Access(KEYS), isolate=True) as server:
        for one in OF_ALL:
            refused = asked(server.url + one, "one")
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
            assert "--isolate" in refused.json()["error"]["message"]
            assert "PML_OPERATOR_KEYS" in refused.json()["error"]["message"]
            told = asked(server.url + one, "two", **{"anthropic-version": "2023-06-01"}).json()
            assert told["error"]["type"] == "permission_error"
        assert asked(f"{server.url}/health", "one").json() == {"status": "ok"}


def test_an_operators_key_is_needed_where_all_may_come(tmp_path: Path) -> None:
    with served(tmp_path, access=Access(operators=("ops",))) as server:
        for one in OF_ALL:
            assert httpx.get(server.url + one).status_code == 403
            assert asked(server.url + one, "ops").status_code == 200
        assert httpx.get(f"{server.url}/v1/models").status_code == 200
