"""Faults of what is sent as PML, and schemas that are not there: told by what a client can do over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.app.server.served import Served

PATH = "/v1/prompt_cache/schemas"


@pytest.fixture
def client(server: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as made:
        yield made


@pytest.mark.parametrize(
    "pml",
    [
        '<schema name="a"><module name="b" src="it\'s"/></schema>',
        '<schema name="a"><module name="b" src="b.md">Text.</module></schema>',
        '<schema name="a"><include/></schema>',
        '<schema name="a"><include src=""/></schema>',
        "# Notes",
        "{}",
        '<schema name="a">if a <b:</schema>',
    ],
)
def test_faults_say_what_a_client_can_do(server: Served, client: httpx.Client, pml: str) -> None:
    inline = pml if "<" in pml else f"{pml}<"  # else it would be a name
    asked = {"model": server.model, "messages": [], "prompt_cache": {"schema": inline}}
    for answer in (
        client.put(f"{PATH}/a", json={"pml": pml}),
        client.post("/v1/chat/completions", json=asked),
    ):
        error = answer.json()["error"]
        assert answer.status_code == 400
        for told in (error, *error["diagnostics"]):
            words = f"{told['message']} {told.get('hint')}"
            assert not re.search(
                r"folder|save|check its name|pml import|src=|src names|remove.*module", words
            ), words


def test_what_is_not_utf_8_is_to_be_sent_so(client: httpx.Client) -> None:
    told = client.put(f"{PATH}/a", content=b"<schema \xff", headers={"content-type": "text/xml"}).json()
    assert told["error"]["message"].endswith("Send it in UTF-8.")


@pytest.mark.parametrize(
    ("method", "words"),
    [("GET", "Store it with PUT"), ("PATCH", "Nothing was changed"), ("DELETE", "Nothing was deleted")],
)
def test_a_schema_that_is_not_there_is_told_by_what_was_asked(
    client: httpx.Client, method: str, words: str
) -> None:
    error = client.request(method, f"{PATH}/nowhere", json={} if method == "PATCH" else None).json()["error"]
    assert error["message"].startswith(f"There is no schema 'nowhere'. {words}")
    assert (method == "DELETE") == ("PUT" not in error["message"])
